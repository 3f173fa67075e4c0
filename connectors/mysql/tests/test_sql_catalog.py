"""``CREATE CATALOG … WITH ('type' = 'jdbc')``: the tables of a real server, read and written by SQL texts."""

from __future__ import annotations

from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError
from headrace_sql import SqlSession

from tests.servers.mysql import MySQLServer

TABLE = """CREATE TABLE orders (id BIGINT UNSIGNED, who VARCHAR(20) NOT NULL, amount DECIMAL(10, 2), flag TINYINT(1), small SMALLINT,
  at DATETIME(3), day DATE, note TEXT, raw BLOB, rate DOUBLE, kind ENUM('a', 'b'), PRIMARY KEY (id))"""


def session_of(server: MySQLServer, database: str, monkeypatch: pytest.MonkeyPatch) -> SqlSession:
    monkeypatch.setenv("CATALOG_PASSWORD", server.password)
    session = SqlSession()
    hr.sql(
        f"CREATE CATALOG db WITH ('type' = 'jdbc', 'base-url' = 'jdbc:mysql://{server.host}:{server.port}', "
        f"'default-database' = '{database}', 'username' = '{server.user}', 'password' = '${{CATALOG_PASSWORD}}')",
        session=session,
    )
    hr.sql("USE CATALOG db", session=session)
    return session


def test_tables_of_a_server_are_known_with_columns_and_keys(
    mysql_server: MySQLServer, mysql_database: str, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(TABLE)
    database.execute(
        "INSERT INTO orders (id, who, amount, flag, at) VALUES (1, 'x', 2.50, 1, '2026-01-01 00:00:01.5'), (2, 'y', 4, 0, NULL)"
    )
    session = session_of(mysql_server, mysql_database, monkeypatch)
    described = hr.sql("DESCRIBE orders", session=session).collect()
    assert described.select("name", "type", "null", "key").rows() == [
        ("id", "DECIMAL(20, 0)", False, "PRI(id)"), ("who", "STRING", False, None),
        ("amount", "DECIMAL(10, 2)", True, None), ("flag", "BOOLEAN", True, None), ("small", "SMALLINT", True, None),
        ("at", "TIMESTAMP(3)", True, None), ("day", "DATE", True, None), ("note", "STRING", True, None),
        ("raw", "BYTES", True, None), ("rate", "DOUBLE", True, None), ("kind", "STRING", True, None),
    ]  # fmt: skip
    assert ("orders",) in hr.sql("SHOW TABLES", session=session).collect().rows()
    rows = hr.sql("SELECT who, amount * 2 AS twice, flag FROM orders", session=session).collect().rows()
    assert sorted((who, str(twice), flag) for who, twice, flag in rows) == [("x", "5.00", True), ("y", "8.00", False)]
    database.execute("CREATE TABLE pairs (a INT, b VARCHAR(5), PRIMARY KEY (b, a))")
    assert (
        "PRIMARY KEY (`b`, `a`) NOT ENFORCED"
        in hr.sql("SHOW CREATE TABLE pairs", session=session).collect()["result"][0]
    )
    shown = hr.sql("SHOW CREATE TABLE orders", session=session).collect()["result"][0]
    assert "'password' = '${CATALOG_PASSWORD}'" in shown


def test_rows_are_written_into_a_table_of_a_server(
    mysql_server: MySQLServer, mysql_database: str, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE sums (k VARCHAR(5) PRIMARY KEY, total BIGINT)")
    session = session_of(mysql_server, mysql_database, monkeypatch)
    text = "INSERT INTO sums SELECT k, SUM(v) FROM (VALUES ('a', 1), ('b', 2), ('a', 3)) AS t(k, v) GROUP BY k"
    hr.sql(text, session=session).run("light", show_progress=False)
    assert sorted(database.execute("SELECT k, total FROM sums")) == [("a", 4), ("b", 2)]


def test_nothing_is_made_there(
    mysql_server: MySQLServer, mysql_database: str, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(mysql_server, mysql_database, monkeypatch)
    for text in ("CREATE TABLE t (a INT) WITH ('connector' = 'print')", "CREATE DATABASE d"):
        with pytest.raises(Exception, match="are made there"):
            hr.sql(text, session=session)
    hr.sql("CREATE TEMPORARY VIEW v AS SELECT 1 AS a", session=session)
    assert hr.sql("SELECT a FROM v", session=session).collect().rows() == [(1,)]
    with pytest.raises(ExpressionError, match="unknown table 'nowhere'"):
        hr.sql("SELECT * FROM nowhere", session=session)


def test_a_wrong_password_is_told_without_showing_it(mysql_server: MySQLServer, mysql_database: str) -> None:
    text = (
        f"CREATE CATALOG db WITH ('type' = 'jdbc', 'base-url' = 'jdbc:mysql://{mysql_server.host}:{mysql_server.port}', "
        f"'default-database' = '{mysql_database}', 'username' = 'nobody', 'password' = 'hunter2')"
    )
    with pytest.raises(ExpressionError, match="cannot be read") as caught:
        hr.sql(text, session=SqlSession())
    assert "hunter2" not in caught.value.message
