# ruff: noqa: S608  # texts of SQL are what is tested
"""What is typed, and what is shown for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from headrace.foundation.errors import OptionError
from headrace_shell.shell import COMMANDS, Leave
from headrace_shell.showing import Output, cell

NUMBERS = "CREATE TABLE n (x BIGINT, y AS x * 2) WITH ('connector' = 'datagen', 'number-of-rows' = '3', 'fields.x.kind' = 'sequence');"


def test_rows_are_shown_as_tables(it: Any) -> None:
    it.type(NUMBERS)
    assert it.rows("SELECT x, y, x > 0 AS big, CAST(NULL AS STRING) AS nothing FROM n;") == [
        ["0", "0", "FALSE", "NULL"], ["1", "2", "TRUE", "NULL"], ["2", "4", "TRUE", "NULL"],
    ]  # fmt: skip
    assert "ok" in it.said()
    assert "3 rows" in it.said()


def test_results_that_change_are_shown_as_they_are_at_the_end(it: Any) -> None:
    shown = it.rows("SELECT k, COUNT(*) AS n FROM (VALUES ('a'), ('b'), ('a')) AS t(k) GROUP BY k;")
    assert sorted(shown) == [["a", "2"], ["b", "1"]]


def test_definitions_stay_from_statement_to_statement(it: Any) -> None:
    it.type(NUMBERS + "CREATE VIEW v AS SELECT x FROM n WHERE x > 0;")
    assert it.rows(r"\d") == [["n"], ["v"]]
    assert [each[:2] for each in it.rows(r"\d n")] == [["x", "BIGINT"], ["y", "BIGINT"]]
    assert it.rows("SELECT COUNT(*) AS c FROM v;") == [["2"]]
    assert ["LOWER"] in it.rows(r"\df low")
    it.type("SET 'table.local-time-zone' = 'Asia/Shanghai';")
    assert it.rows("SET;") == [["table.local-time-zone", "Asia/Shanghai"]]


def test_the_first_mistake_ends_a_line_of_statements(it: Any) -> None:
    it.type("CREATE VIEW a AS SELECT 1 AS x; SELECT nope FROM a; CREATE VIEW b AS SELECT 1 AS x;")
    assert not it.worked
    assert "unknown column 'nope'" in it.said()
    assert it.rows("SHOW VIEWS;") == [["a"]]


def test_inserts_run_and_are_counted(it: Any, tmp_path: Path) -> None:
    it.type(
        NUMBERS
        + f"CREATE TABLE s (a BIGINT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/out', 'format' = 'json');"
    )
    it.type("INSERT INTO s SELECT x FROM n;")
    assert "3 rows written to s" in it.said()
    assert it.rows("SELECT SUM(a) AS t FROM s;") == [["3"]]


def test_dead_letters_are_told(it: Any, tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"a": 1}\nnonsense\n')
    it.type(
        f"CREATE TABLE t (a BIGINT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/in.ndjson', 'format' = 'json');"
    )
    assert it.rows("SELECT a FROM t;") == [["1"]]
    assert "1 dead letters to" in it.said()


def test_a_file_takes_effect_as_a_whole(it: Any, tmp_path: Path) -> None:
    (tmp_path / "wrong.sql").write_text(f"{NUMBERS} CREATE VIEW v AS SELECT x FROM n; SELECT nope FROM v;")
    it.type(rf"\i {tmp_path}/wrong.sql")
    assert not it.worked
    assert it.rows(r"\d") == []
    (tmp_path / "right.sql").write_text(f"{NUMBERS} SELECT MAX(x) AS m FROM n; SHOW TABLES;")
    assert it.rows(rf"\i {tmp_path}/right.sql") == [["2"], ["n"]]


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_results_go_into_files(it: Any, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"r.{suffix}"
    it.type(rf"\o {path}")
    it.type("SELECT 1 AS a, 'x' AS b, ARRAY[1, 2] AS c;")
    assert "1 row written to" in it.said()
    if suffix == "csv":
        assert path.read_text() == 'a,b,c\n1,x,"[1, 2]"\n'
    elif suffix == "json":
        assert json.loads(path.read_text()) == {"a": 1, "b": "x", "c": [1, 2]}
    else:
        assert pl.read_parquet(path).rows() == [(1, "x", [1, 2])]
    it.type(r"\o")
    it.type(r"\format table")
    assert it.rows("SELECT 1 AS a;") == [["1"]]


def test_settings(it: Any) -> None:
    it.type(r"\timing on")
    it.type("SELECT 1 AS a;")
    assert "time: " in it.said()
    it.type(r"\set WORD 'hello'")
    assert it.rows("SELECT ${WORD} AS w;") == [["hello"]]
    assert "WORD = 'hello'" in it.type(r"\set")
    assert "source FrameSource" in it.type(r"\explain SELECT 1 AS a")
    shown = it.type(r"\?")
    assert all(each.name in shown for each in COMMANDS)


@pytest.mark.parametrize(
    "wrong",
    [
        r"\backend nowhere",
        r"\format xml",
        r"\until soon",
        r"\timing maybe",
        r"\explain",
        r"\nothing",
        r"\i nowhere.sql",
        r"\format parquet",
    ],
)
def test_mistakes_of_commands(it: Any, wrong: str) -> None:
    it.type(wrong)
    assert not it.worked
    assert "error: " in it.said()


@pytest.mark.parametrize("word", [r"\q", "quit", "exit;"])
def test_leaving(it: Any, word: str) -> None:
    with pytest.raises(Leave):
        it.type(word)


def test_values_in_tables() -> None:
    assert cell([{"key": "a", "value": 1}]) == "{a=1}"
    assert cell({"x": 1, "y": None}) == "(1, NULL)"
    assert cell(b"\x01") == "x'01'"
    with pytest.raises(OptionError, match="parquet can be written only to a file"):
        Output("parquet")
