"""A table without a key is read only if its reader is told that rows stay where they are."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest
from headrace.flow.messages import Queue
from headrace.foundation.errors import JobError
from headrace.interfaces.source import EARLIEST
from headrace_postgres import PostgresSource, PostgresSourceSettings
from postgres_world import PostgresDatabase


def source(postgres: PostgresDatabase, **more: object) -> PostgresSource:
    return PostgresSource(PostgresSourceSettings.of(postgres.options(page_rows=4, **more), plugin="postgres"))


def test_a_table_without_a_key_is_refused_because_changed_rows_move(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (id integer, name text)")
    with pytest.raises(JobError, match=r"no key by which.*") as caught:
        source(postgres).queues()
    assert "key=['ctid']" in str(caught.value)


def test_in_the_order_of_the_file_each_row_comes_once(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (id integer, name text)")
    postgres.execute("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 10) n")
    reader = source(postgres, key=["ctid"]).open(Queue("t"), EARLIEST)
    try:
        found: list[int] = []
        while len(found) < 10:
            batch = reader.poll(100, timedelta(seconds=1))
            assert batch is not None
            assert batch.frame is not None
            found += batch.frame["id"].to_list()
    finally:
        reader.close()
    assert found == list(range(1, 11))


def test_a_view_has_no_order_of_a_file(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t0 (id integer)")
    postgres.execute("CREATE VIEW t AS SELECT id FROM t0")
    with pytest.raises(JobError) as caught:
        source(postgres).queues()
    assert "ctid" not in str(caught.value)


def test_counting_may_take_longer_than_a_page(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t0 (id integer PRIMARY KEY)")
    postgres.execute("INSERT INTO t0 SELECT generate_series(1, 7)")
    postgres.execute("CREATE VIEW t AS SELECT id FROM t0, pg_sleep(2) AS slow")
    with closing(source(postgres, key=["id"], read_timeout="1 s").open(Queue("t"), EARLIEST)) as reader:
        assert reader.latest == 7
