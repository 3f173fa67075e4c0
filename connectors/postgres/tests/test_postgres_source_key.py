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


def test_a_view_cannot_be_read_in_the_order_of_a_file(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE VIEW t AS SELECT 1 AS id")
    with pytest.raises(JobError, match="it is a view") as caught:
        source(postgres, key=["ctid"]).queues()
    assert caught.value.option == "key"


def test_an_unknown_column_names_the_option_that_it_is_in(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY, name text)")
    with pytest.raises(JobError, match="no column 'idd'") as caught:
        source(postgres, key=["idd"]).queues()
    assert caught.value.option == "key"
    with pytest.raises(JobError, match="no column 'nam'") as caught:
        source(postgres, columns=["id", "nam"]).queues()
    assert caught.value.option == "columns"


def read_by(postgres: PostgresDatabase, key: list[str]) -> list[int]:
    found: list[int] = []
    with closing(source(postgres, key=key).open(Queue("t"), EARLIEST)) as reader:
        while (batch := reader.poll(100, timedelta(seconds=1))) is not None:
            assert batch.frame is not None
            found += batch.frame["id"].to_list()
    return found


@pytest.mark.parametrize("rows", [4, 5, 7, 8])
def test_a_key_that_is_null_in_some_rows_is_refused_wherever_a_page_ends(postgres: PostgresDatabase, rows: int) -> None:
    postgres.execute("CREATE TABLE t (id integer, place integer)")
    postgres.execute("INSERT INTO t SELECT n, n FROM generate_series(1, %s) n", (rows,))
    assert read_by(postgres, ["place"]) == list(range(1, rows + 1))
    postgres.execute("INSERT INTO t VALUES (100, NULL)")
    with pytest.raises(JobError, match="the key place is NULL in some rows") as caught:
        read_by(postgres, ["place"])
    assert caught.value.option == "key"


@pytest.mark.parametrize("rows", [3, 4, 5, 6])
def test_a_key_that_is_not_unique_is_refused_wherever_a_page_ends(postgres: PostgresDatabase, rows: int) -> None:
    postgres.execute("CREATE TABLE t0 (id integer, place integer)")
    postgres.execute("CREATE VIEW t AS SELECT * FROM t0")
    postgres.execute("INSERT INTO t0 SELECT n, n FROM generate_series(1, %s) n", (rows,))
    assert read_by(postgres, ["place"]) == list(range(1, rows + 1))
    postgres.execute("INSERT INTO t0 VALUES (100, %s)", (rows,))
    with pytest.raises(JobError, match="the key place is not unique"):
        read_by(postgres, ["place"])
