"""Jobs on Spark: a table into another one, and changes of a table, whose slot moves with the micro-batches."""

from __future__ import annotations

from pathlib import Path

import headrace as hr
import pytest
from postgres_world import PostgresDatabase

pytestmark = pytest.mark.spark


def test_table_to_table(postgres: PostgresDatabase, tmp_path: Path) -> None:
    postgres.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, price NUMERIC(10, 2))")
    postgres.execute("INSERT INTO t SELECT n, 'name ' || n, n / 4.0 FROM generate_series(1, 500) n")
    job = (
        hr.stream("test", "spark")
        .from_postgres(**postgres.options(page_rows=90))
        .where("id % 2 = 0")
        .select("id", name="upper(name)", price="price * 2")
        .to_postgres(**postgres.options(table="copy", create_table=True, key=["id"]))
    )
    options = {"checkpoint": str(tmp_path / "checkpoint"), "show_progress": False, "master": "local[2]"}
    assert job.run("spark", **options).dead_letters == 0
    wanted = [(n, f"NAME {n}") for n in range(2, 501, 2)]
    assert postgres.execute("SELECT id, name FROM copy ORDER BY id") == wanted
    postgres.execute("INSERT INTO t VALUES (502, 'late', 1)")
    job.run("spark", **options)
    assert postgres.execute("SELECT id, name FROM copy ORDER BY id") == [*wanted, (502, "LATE")]


@pytest.mark.parametrize("full", [True, False])
def test_changes_of_a_table(followed: PostgresDatabase, tmp_path: Path, full: bool) -> None:
    followed.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, v INT)")
    if full:
        followed.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    followed.execute("INSERT INTO t SELECT n, n % 7, n FROM generate_series(1, 400) n")
    stream = hr.stream("test", "sparkchanges").from_postgres_changes(**followed.options(chunk_rows=90, slot="of_spark"))
    job = (
        stream.key_by("g")
        .agg(n="count(*)", s="sum(v)")
        .to_postgres(**followed.options(table="sums", create_table=True, key=["g"], mode="upsert"))
    )
    options = {"checkpoint": str(tmp_path / "checkpoint"), "show_progress": False, "master": "local[2]", "until": "end"}
    places = []
    for step in range(2):
        job.run("spark", **options)
        assert followed.execute("SELECT g, n, s FROM sums ORDER BY g") == followed.execute(
            "SELECT g, count(*), sum(v) FROM t GROUP BY g ORDER BY g"
        ), step
        places.append(
            followed.execute("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'of_spark'")
        )
        followed.execute("UPDATE t SET g = (g + 1) % 7, v = v + 1 WHERE id % 3 = 0; DELETE FROM t WHERE id % 10 = 0")
    assert len(set(map(str, places))) == 2, "the slot moves"
