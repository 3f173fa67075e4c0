"""``CREATE CATALOG … WITH ('type' = 'jdbc')``: the tables of a PostgreSQL server, read and written by SQL texts."""

from __future__ import annotations

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError, JobError
from headrace_sql import SqlSession
from postgres_world import PostgresDatabase

TABLE = """
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE kind AS ENUM ('a', 'b');
CREATE TABLE orders (
  id BIGINT PRIMARY KEY, who VARCHAR(20) NOT NULL, amount NUMERIC(10, 2), any_amount NUMERIC, flag BOOLEAN, small SMALLINT,
  at TIMESTAMP(3), instant TIMESTAMPTZ, day DATE, note TEXT, raw BYTEA, rate DOUBLE PRECISION, one REAL, sort kind, tags TEXT[],
  about JSONB, number positive, mark UUID
);
INSERT INTO orders (id, who, amount, flag, at, small, number, tags) VALUES
  (1, 'x', 2.50, true, '2026-01-01 00:00:01.5', 7, 3, '{p,q}'), (2, 'y', 4, false, NULL, 8, 4, NULL)
"""


def session_of(database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> SqlSession:
    server = database.server
    monkeypatch.setenv("CATALOG_PASSWORD", server.password)
    session = SqlSession()
    hr.sql(
        f"CREATE CATALOG db WITH ('type' = 'jdbc', 'base-url' = 'jdbc:postgresql://{server.host}:{server.port}', "
        f"'default-database' = '{database.name}', 'username' = '{server.user}', 'password' = '${{CATALOG_PASSWORD}}')",
        session=session,
    )
    hr.sql("USE CATALOG db", session=session)
    return session


def test_tables_of_a_server_are_known_with_columns_and_keys(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute(TABLE)
    session = session_of(postgres, monkeypatch)
    described = hr.sql("DESCRIBE orders", session=session).collect()
    assert described.select("name", "type", "null", "key").rows() == [
        ("id", "BIGINT", False, "PRI(id)"), ("who", "STRING", False, None), ("amount", "DECIMAL(10, 2)", True, None),
        ("any_amount", "STRING", True, None), ("flag", "BOOLEAN", True, None), ("small", "SMALLINT", True, None),
        ("at", "TIMESTAMP(3)", True, None), ("instant", "TIMESTAMP_LTZ(6)", True, None), ("day", "DATE", True, None),
        ("note", "STRING", True, None), ("raw", "BYTES", True, None), ("rate", "DOUBLE", True, None),
        ("one", "FLOAT", True, None), ("sort", "STRING", True, None), ("tags", "STRING", True, None),
        ("about", "STRING", True, None), ("number", "INT", True, None), ("mark", "STRING", True, None),
    ]  # fmt: skip
    rows = hr.sql("SELECT who, amount * 2 AS twice, small, number, tags FROM orders", session=session).collect().rows()
    assert sorted((who, str(twice), *rest) for who, twice, *rest in rows) == [
        ("x", "5.00", 7, 3, "{p,q}"),
        ("y", "8.00", 8, 4, None),
    ]
    assert len(hr.sql("SELECT * FROM orders", session=session).collect()) == 2
    shown = hr.sql("SHOW CREATE TABLE orders", session=session).collect()["result"][0]
    assert "'password' = '${CATALOG_PASSWORD}'" in shown
    databases = hr.sql("SHOW DATABASES", session=session).collect().to_series().to_list()
    assert postgres.name in databases
    assert "template0" not in databases


def test_tables_of_other_schemas(postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres.execute(
        "CREATE TABLE t (id INT PRIMARY KEY); CREATE SCHEMA sales; CREATE TABLE sales.t (id INT PRIMARY KEY)"
    )
    postgres.execute("INSERT INTO sales.t VALUES (5); CREATE VIEW sales.v AS SELECT id + 1 AS id FROM sales.t")
    session = session_of(postgres, monkeypatch)
    assert {("t",), ("sales.t",), ("sales.v",)} <= set(hr.sql("SHOW TABLES", session=session).collect().rows())
    assert hr.sql("SELECT id FROM `sales.t`", session=session).collect().rows() == [(5,)]
    whole = f"SELECT id FROM db.`{postgres.name}`.`public.t`"  # noqa: S608
    assert hr.sql(whole, session=session).collect().rows() == []
    # A view has no key; the text names one.
    with pytest.raises(JobError, match="it has no key"):
        hr.sql("SELECT id FROM `sales.v`", session=session)


def test_rows_are_written_into_a_table_of_a_server(postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres.execute("CREATE TABLE sums (k VARCHAR(5) PRIMARY KEY, total BIGINT)")
    session = session_of(postgres, monkeypatch)
    text = "INSERT INTO sums SELECT k, SUM(v) FROM (VALUES ('a', 1), ('b', 2), ('a', 3)) AS t(k, v) GROUP BY k"
    hr.sql(text, session=session).run("light", show_progress=False)
    assert sorted(postgres.execute("SELECT k, total FROM sums")) == [("a", 4), ("b", 2)]
    with pytest.raises(ExpressionError, match="unknown table 'nowhere'"):
        hr.sql("SELECT * FROM nowhere", session=session)


def test_a_wrong_password_is_told_without_showing_it(postgres: PostgresDatabase) -> None:
    server = postgres.server
    text = (
        f"CREATE CATALOG db WITH ('type' = 'jdbc', 'base-url' = 'jdbc:postgresql://{server.host}:{server.port}', "
        f"'default-database' = '{postgres.name}', 'username' = 'nobody', 'password' = 'hunter2')"
    )
    with pytest.raises(ExpressionError, match="cannot be read") as caught:
        hr.sql(text, session=SqlSession())
    assert "hunter2" not in caught.value.message
