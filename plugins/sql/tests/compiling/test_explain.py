"""EXPLAIN shows plans and runs nothing."""

# ruff: noqa: S608  # texts are put together from constants; one case, one line

from __future__ import annotations

import re
from pathlib import Path

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError


@pytest.fixture
def out(tmp_path: Path) -> Path:
    hr.register("u", pl.DataFrame({"k": ["a", "b"], "n": [1, 2]}))
    for name in ("s", "s2"):
        path = tmp_path / "out" / name
        hr.sql(
            f"CREATE TABLE {name} (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'json')"
        )
    return tmp_path / "out"


SECOND = "INSERT INTO s2 SELECT k, n FROM u WHERE n > 1;"
INSERTS = f"INSERT INTO s SELECT k, n FROM u; {SECOND}"


@pytest.mark.parametrize(
    ("text", "sinks"),
    [
        ("EXPLAIN INSERT INTO s SELECT k, n FROM u", ["s"]),
        ("EXPLAIN PLAN FOR INSERT INTO s SELECT k, n FROM u", ["s"]),
        (
            "EXPLAIN ESTIMATED_COST, CHANGELOG_MODE, JSON_EXECUTION_PLAN, PLAN_ADVICE INSERT INTO s VALUES ('a', 1)",
            ["s"],
        ),
        (f"EXPLAIN STATEMENT SET BEGIN {INSERTS} END;", ["s", "s2"]),
        (f"EXPLAIN EXECUTE STATEMENT SET BEGIN {INSERTS} END;", ["s", "s2"]),
        ("EXPLAIN SELECT k, COUNT(*) FROM u GROUP BY k", ["result"]),
    ],
)
def test_the_plan_is_shown_and_nothing_is_written(
    text: str, sinks: list[str], out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = hr.sql(text)
    frame = job.collect()
    assert frame.columns == ["result"]
    assert frame.height == 1
    plan = frame["result"][0]
    assert [name for name in re.findall(r"■ +(\w+)", plan) if name != "dead_letters_file"] == sinks
    job.run("light")
    printed = capsys.readouterr().out
    assert printed.strip() == plan.strip()  # the lines as they are, not as JSON
    assert not out.exists()


def test_what_stands_beside_it_runs(out: Path) -> None:
    job = hr.sql(
        f"EXPLAIN STATEMENT SET BEGIN INSERT INTO s SELECT k, n FROM u; END; EXPLAIN SELECT k FROM u; {SECOND}"
    )
    job.run("light")
    assert [path.name for path in out.iterdir()] == ["s2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("EXPLAIN INSERT INTO s SELECT m, n FROM u", "unknown column 'm'"),
        ("EXPLAIN CREATE VIEW v AS SELECT k FROM u", "only queries, INSERTs and statement sets are explained"),
        ("EXPLAIN STATEMENT SET BEGIN INSERT INTO s SELECT k, n FROM u;", "EXPLAIN STATEMENT SET has no END"),
        ("EXPLAIN STATEMENT SET BEGIN SELECT k FROM u; END;", "a statement set has INSERTs only"),
        ("EXPLAIN ESTIMATED_COST, CHANGELOG SELECT k FROM u", "CHANGELOG is not a detail of EXPLAIN"),
        ("EXPLAIN", "expected the statement to explain"),
    ],
)
def test_mistakes(text: str, message: str, out: Path) -> None:
    with pytest.raises(ExpressionError, match=message):
        hr.sql(text)
    assert not out.exists()


def test_details_without_meaning_are_notices(out: Path) -> None:
    assert hr.sql("EXPLAIN ESTIMATED_COST SELECT k FROM u").notices == (
        "EXPLAIN ESTIMATED_COST has no effect here: plans have one form",
    )
