# ruff: noqa: S608  # texts of SQL are what is tested
"""Catalogs and databases: names in them, what files keep, SHOW and DESCRIBE."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError
from headrace_sql import SqlSession

ROWS = "WITH ('connector' = 'datagen', 'number-of-rows' = '{}', 'fields.x.kind' = 'sequence')"
Ask = Callable[[str], pl.DataFrame]


def asking(session: SqlSession) -> Ask:
    def rows(text: str) -> pl.DataFrame:
        job = hr.sql(text, session=session)
        made = job.collect() if job.script.queries or job.script.inserts else pl.DataFrame()
        return list(made.values())[-1] if isinstance(made, dict) else made

    return rows


@pytest.fixture
def ask() -> Ask:
    return asking(SqlSession())


def test_names_lie_in_the_database_that_is_used(ask: Ask) -> None:
    ask(
        f"CREATE DATABASE sales; CREATE TABLE t (x BIGINT) {ROWS.format(1)}; CREATE TABLE sales.t (x BIGINT) {ROWS.format(2)}"
    )
    ask(
        f"CREATE CATALOG c WITH ('type' = 'generic_in_memory', 'default-database' = 'd'); CREATE TABLE c.d.t (x BIGINT) {ROWS.format(3)}"
    )
    counted = "SELECT COUNT(*) AS n FROM {}"
    wanted = {
        "t": 1,
        "sales.t": 2,
        "c.d.t": 3,
        "default_catalog.default_database.t": 1,
        "`default_catalog`.`sales`.`t`": 2,
    }
    for name, count in wanted.items():
        assert ask(counted.format(name))["n"].to_list() == [count]
    ask("USE sales")
    assert ask(counted.format("t"))["n"].to_list() == [2]
    ask("USE CATALOG c")
    assert ask(counted.format("t"))["n"].to_list() == [3]
    assert ask("SHOW CURRENT CATALOG").rows() == [("c",)]
    assert ask("SHOW CURRENT DATABASE").rows() == [("d",)]
    ask("USE default_catalog.sales")
    joined = "SELECT a.x, b.x AS y FROM t AS a JOIN c.d.t AS b ON a.x = b.x"
    assert sorted(ask(joined).rows()) == [(0, 0), (1, 1)]


def test_rows_go_into_a_table_of_another_database(ask: Ask) -> None:
    ask(
        "CREATE DATABASE d; CREATE TABLE d.s (a BIGINT) WITH ('connector' = 'print'); CREATE TABLE s (b INT) WITH ('connector' = 'print')"
    )
    assert ask("INSERT INTO d.s SELECT 1 AS x").columns == ["a"]


def test_a_view_reads_the_tables_of_where_it_was_made(ask: Ask) -> None:
    ask(f"CREATE DATABASE d; USE d; CREATE TABLE t (x BIGINT) {ROWS.format(4)}; CREATE VIEW v AS SELECT x FROM t")
    ask(f"USE default_database; CREATE TABLE t (x BIGINT) {ROWS.format(9)}")
    assert ask("SELECT COUNT(*) AS n FROM d.v")["n"].to_list() == [4]


def test_what_python_registers_is_known_everywhere() -> None:
    session = SqlSession()
    hr.register("f", pl.DataFrame({"a": [1, 2]}), session=session)
    ask = asking(session)
    ask("CREATE DATABASE d; USE d")
    assert ask("SELECT SUM(a) AS s FROM f")["s"].to_list() == [3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("USE CATALOG nowhere", "unknown catalog 'nowhere'"),
        ("USE nowhere", "has no database 'nowhere'"),
        ("SELECT * FROM nowhere.t", "has no database 'nowhere'"),
        ("SELECT * FROM no.place.t", "unknown catalog 'no'"),
        ("CREATE TABLE nowhere.t (a INT)", "has no database 'nowhere'"),
        ("CREATE DATABASE default_database", "already"),
        ("DROP DATABASE default_database", "the one that is used"),
        ("DROP CATALOG default_catalog", "the one that is used"),
        ("CREATE CATALOG c WITH ('type' = 'hive')", "'hive' is not supported"),
        ("CREATE CATALOG c", "has no type"),
        ("CREATE CATALOG c WITH ('type' = 'file')", "needs a directory"),
        ("CREATE CATALOG c WITH ('type' = 'file', 'paht' = 'x')", "no option 'paht'"),
        ("CREATE CATALOG c WITH ('type' = 'jdbc', 'base-url' = 'jdbc:oracle:x', 'default-database' = 'd', 'username' = 'u', "
         "'password' = 'p')", "base-url"),
        ("CREATE CATALOG c WITH ('type' = 'jdbc')", "needs 'base-url'"),
        ("USE MODULES core", "one module of functions"),
        ("SHOW TABLES FROM nowhere", "has no database 'nowhere'"),
        ("DESCRIBE nowhere", "unknown table 'nowhere'"),
        ("SHOW JOBS", "headrace jobs"),
    ],
)  # fmt: skip
def test_mistakes(ask: Ask, text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        ask(text)


def test_databases_are_dropped_with_what_they_have_only_on_demand(ask: Ask) -> None:
    ask("CREATE DATABASE d COMMENT 'mine' WITH ('a' = 'b'); CREATE VIEW d.v AS SELECT 1 AS one")
    assert ask("DESCRIBE DATABASE EXTENDED d").rows() == [("name", "d"), ("comment", "mine"), ("option:a", "b")]
    with pytest.raises(ExpressionError, match="not empty"):
        ask("DROP DATABASE d RESTRICT")
    ask("DROP DATABASE d CASCADE; DROP DATABASE IF EXISTS d; CREATE DATABASE d")
    with pytest.raises(ExpressionError, match="unknown table 'v'"):
        ask("SELECT * FROM d.v")


def test_files_keep_definitions_for_other_processes(tmp_path: Path) -> None:
    catalog = f"CREATE CATALOG lake WITH ('type' = 'file', 'path' = '{tmp_path}/lake');"
    ask = asking(SqlSession())
    ask(catalog + "CREATE DATABASE lake.sales; USE lake.sales")
    ask(
        f"CREATE TABLE `odd.name/x` (x BIGINT, WATERMARK FOR ts AS ts, ts AS TIMESTAMP '2026-01-01 00:00:00') {ROWS.format(3)}"
    )
    ask("CREATE VIEW v (y) AS SELECT x -- as it is written\n FROM `odd.name/x`")
    files = sorted(each.relative_to(tmp_path) for each in (tmp_path / "lake").rglob("*.sql"))
    assert [str(each) for each in files] == ["lake/sales/odd%2Ename%2Fx.table.sql", "lake/sales/v.view.sql"]
    assert {stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "lake").rglob("*.sql")} == {0o600}
    other = asking(SqlSession())
    other(catalog)
    assert other("SELECT COUNT(y) AS n FROM lake.sales.v")["n"].to_list() == [3]
    assert other("SHOW TABLES FROM lake.sales").rows() == [("odd.name/x",), ("v",)]
    other("USE lake.sales; ALTER TABLE `odd.name/x` SET ('number-of-rows' = '8')")
    assert ask("SELECT COUNT(y) AS n FROM v")["n"].to_list() == [8]
    with pytest.raises(ExpressionError, match="has 'v' already"):
        other("CREATE VIEW v AS SELECT 1 AS a")
    other("CREATE VIEW IF NOT EXISTS v AS SELECT 1 AS a; DROP VIEW v")
    with pytest.raises(ExpressionError, match="unknown table 'v'"):
        ask("SELECT * FROM v")


def test_files_are_written_only_when_the_whole_text_is_right(tmp_path: Path) -> None:
    ask = asking(SqlSession())
    ask(
        f"CREATE CATALOG lake WITH ('type' = 'file', 'path' = '{tmp_path}'); USE CATALOG lake; CREATE VIEW kept AS SELECT 1 AS a"
    )
    with pytest.raises(ExpressionError, match="unknown table 'nowhere'"):
        ask("CREATE VIEW v AS SELECT 1 AS a; DROP VIEW kept; SELECT * FROM nowhere")
    assert [each.name for each in tmp_path.rglob("*.sql")] == ["kept.view.sql"]


def test_temporary_definitions_are_not_kept(tmp_path: Path) -> None:
    ask = asking(SqlSession())
    ask(
        f"CREATE CATALOG lake WITH ('type' = 'file', 'path' = '{tmp_path}'); USE CATALOG lake; CREATE TEMPORARY VIEW v AS SELECT 1 AS a"
    )
    assert ask("SELECT * FROM v").rows() == [(1,)]
    assert list(tmp_path.rglob("*.sql")) == []


def test_files_keep_functions(tmp_path: Path) -> None:
    catalog = f"CREATE CATALOG lake WITH ('type' = 'file', 'path' = '{tmp_path}'); USE CATALOG lake;"
    path = "headrace_sql.reading.durations:duration_us"
    asking(SqlSession())(f"{catalog} CREATE FUNCTION micros AS '{path}' LANGUAGE PYTHON")
    ask = asking(SqlSession())
    assert ask(f"{catalog} SHOW USER FUNCTIONS LIKE 'micro%'").rows() == [("micros",)]
    assert ask("SELECT micros('2 s', 'k') AS m").rows() == [(2_000_000,)]
    assert path in ask("SHOW CREATE FUNCTION micros")["result"][0]
    ask("DROP FUNCTION micros")
    assert list(tmp_path.rglob("*.sql")) == []


def test_secrets_are_not_shown(ask: Ask) -> None:
    ask(
        "CREATE TABLE s (a INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:mysql://h/d', 'table-name' = 't', 'username' = 'u', "
        "'password' = 'hunter2'); CREATE TABLE p (a INT) WITH ('connector' = 'jdbc', 'password' = '${PLACE}')"
    )
    assert "'password' = '******'" in ask("SHOW CREATE TABLE s")["result"][0]
    assert "'password' = '${PLACE}'" in ask("SHOW CREATE TABLE p")["result"][0]


def test_secrets_with_other_names_are_not_shown(ask: Ask) -> None:
    ask(
        "CREATE TABLE s (a INT) WITH ('connector' = 'http', 'url' = 'https://me:hunter2@h/a', 'signature-key' = 'hunter2', "
        "'headers.Authorization' = 'Bearer hunter2', 'headers.Cookie' = 'hunter2', 'headers.X-Team' = 'blue')"
    )
    shown = ask("SHOW CREATE TABLE s")["result"][0]
    assert "hunter2" not in shown
    assert "'headers.X-Team' = 'blue'" in shown


def test_lists_are_searched_with_patterns(ask: Ask) -> None:
    ask("CREATE VIEW a_1 AS SELECT 1 AS x; CREATE VIEW ab1 AS SELECT 1 AS x; CREATE VIEW B AS SELECT 1 AS x")
    assert ask("SHOW VIEWS LIKE 'a%'").rows() == [("a_1",), ("ab1",)]
    assert ask("SHOW VIEWS NOT LIKE 'a%'").rows() == [("B",)]
    assert ask("SHOW VIEWS ILIKE 'b'").rows() == [("B",)]
    assert ask(r"SHOW VIEWS LIKE 'a\_1'").rows() == [("a_1",)]
    assert ask("SHOW TABLES LIKE 'a_1'").rows() == [("a_1",), ("ab1",)]
    assert ask("SHOW COLUMNS FROM B LIKE 'x'")["type"].to_list() == ["BIGINT"]
    assert ("LOWER",) in ask("SHOW FUNCTIONS").rows()
    assert ask("SHOW FUNCTIONS LIKE 'JSON_EX%'").rows() == [("JSON_EXISTS",)]
    assert ask("SHOW CREATE VIEW B")["result"][0].endswith("`B` AS\nSELECT 1 AS x")


def test_options_stay_in_a_session_until_they_are_reset(ask: Ask) -> None:
    ask("SET 'table.local-time-zone' = 'Asia/Shanghai'")
    assert ask("SELECT CAST(TO_TIMESTAMP_LTZ(0, 3) AS STRING) AS t").rows() == [("1970-01-01 08:00:00.000",)]
    assert ask("SET").rows() == [("table.local-time-zone", "Asia/Shanghai")]
    ask("RESET 'table.local-time-zone'")
    assert ask("SELECT CAST(TO_TIMESTAMP_LTZ(0, 3) AS STRING) AS t").rows() == [("1970-01-01 00:00:00.000",)]
