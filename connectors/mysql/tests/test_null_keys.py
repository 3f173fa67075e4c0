"""Groups whose key is NULL, into tables: they are written where the key takes NULL, and are dead letters with the reason where not."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace_sql import SqlSession
from headrace_sql.operators.frames import FrameSource
from mysql_world import Database

from tests.servers.mysql import MySQLServer

BACKENDS = ["light", pytest.param("spark", marks=pytest.mark.spark)]
SINK = """CREATE TABLE s ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = 'jdbc', 'url' = 'jdbc:mysql://{host}:{port}/{database}',
  'table-name' = '{table}', 'username' = '{user}', 'password' = '{password}');"""


def sink_of(database: Database, table: str, columns: str, key: str = "k") -> str:
    server = database.server
    return SINK.format(
        columns=columns, key=key, host=server.host, port=server.port, user=server.user, password=server.password,
        database=database.name, table=table,
    )  # fmt: skip


def run(job: Any, backend: str, path: Path) -> Any:
    options: dict[str, Any] = {"master": "local[2]"} if backend == "spark" else {}
    return job.run(backend, checkpoint=str(path / "checkpoint"), show_progress=False, **options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_group_of_null_is_a_dead_letter(database: Database, tmp_path: Path, backend: str) -> None:
    database.execute("CREATE TABLE t (k VARCHAR(9) PRIMARY KEY, n BIGINT)")
    session = SqlSession()
    hr.register("rows", pl.DataFrame({"k": ["a", None, "b", None]}), session=session)
    text = sink_of(database, "t", "k STRING, n BIGINT") + "INSERT INTO s SELECT k, COUNT(*) FROM rows GROUP BY k"
    report = run(hr.sql(text, session=session), backend, tmp_path)
    assert database.execute("SELECT * FROM t ORDER BY k") == [("a", 1), ("b", 1)]
    assert report.dead_letters >= 1
    assert {each.reason for each in report.dead_letter_reasons} == {"column k is NOT NULL, but the value is NULL"}
    written = "".join(each.read_text() for each in (tmp_path / "checkpoint" / "dead-letters").rglob("*.json"))
    assert '{\\"k\\":null,\\"n\\":' in written


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_that_get_and_lose_a_null_key(logged: Database, tmp_path: Path, backend: str) -> None:
    """A table is followed while the key of its groups becomes NULL and something else again."""
    logged.execute("CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(20))")
    logged.execute("CREATE TABLE t (k VARCHAR(20) PRIMARY KEY, n BIGINT)")
    logged.execute("INSERT INTO orders VALUES (1, 'Uma'), (2, NULL), (3, NULL), (4, 'Sven')")
    server = logged.server
    text = f"""CREATE TABLE orders (id INT, customer STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'mysql-cdc',
      'hostname' = '{server.host}', 'port' = '{server.port}', 'username' = '{server.user}', 'password' = '{server.password}',
      'database-name' = '{logged.name}', 'table-name' = 'orders', 'server-id' = '5410');
      {sink_of(logged, "t", "k STRING, n BIGINT")} INSERT INTO s SELECT customer, COUNT(*) FROM orders GROUP BY customer"""
    assert run(hr.sql(text), backend, tmp_path).dead_letters >= 1
    assert logged.execute("SELECT * FROM t ORDER BY k") == [("Sven", 1), ("Uma", 1)]
    logged.execute("UPDATE orders SET customer = NULL WHERE id = 4")
    report = run(hr.sql(text), backend, tmp_path)
    assert logged.execute("SELECT * FROM t ORDER BY k") == [("Uma", 1)]
    assert report.dead_letters >= 1
    logged.execute("UPDATE orders SET customer = 'Uma' WHERE id = 2")
    logged.execute("DELETE FROM orders WHERE customer IS NULL")
    assert run(hr.sql(text), backend, tmp_path).dead_letters >= 1
    assert logged.execute("SELECT * FROM t ORDER BY k") == [("Uma", 2)]


def test_a_unique_key_that_takes_null_holds_the_group_of_null_once(database: Database, tmp_path: Path) -> None:
    """To a server, NULL is never the same as NULL: the row of before is removed first."""
    database.execute("CREATE TABLE t (k VARCHAR(9) NULL, n BIGINT, UNIQUE KEY one (k))")
    options = database.options(mode="upsert", max_cached_rows=1)
    frame = pl.DataFrame({"k": ["a", None, "b", None, None]})
    counts = hr.stream("test", "nulls").from_(FrameSource.of(frame)).key_by("k").agg(n="count(*)")
    report = counts.to_mysql(**options).run(
        "light", checkpoint=str(tmp_path / "c"), max_batch_records=1, show_progress=False
    )
    assert report.dead_letters == 0
    assert database.execute("SELECT * FROM t ORDER BY k") == [(None, 3), ("a", 1), ("b", 1)]


def test_a_key_that_takes_no_null_makes_dead_letters_of_a_stream_of_python(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (k VARCHAR(9) PRIMARY KEY, n BIGINT)")
    frame = pl.DataFrame({"k": ["a", None, "b", None]})
    counts = hr.stream("test", "nulls").from_(FrameSource.of(frame)).key_by("k").agg(n="count(*)")
    report = counts.to_mysql(**database.options(mode="upsert")).run(
        "light", checkpoint=str(tmp_path / "c"), show_progress=False
    )
    assert database.execute("SELECT * FROM t ORDER BY k") == [("a", 1), ("b", 1)]
    assert report.dead_letters >= 1
    assert "k" in report.dead_letter_reasons[0].reason
    assert isinstance(database.server, MySQLServer)
