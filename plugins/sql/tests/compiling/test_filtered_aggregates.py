"""FILTER: the argument of an aggregate is not evaluated for the rows that it leaves out."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import CheckpointError
from headrace_sql import SqlSession

ROWS = pl.DataFrame({"k": ["a", "a", "b"], "v": [6, 8, 9], "w": [0, 4, 3], "s": ["x", "1", "2"]})


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT COUNT(*), SUM(v / w) FILTER (WHERE w > 0) FROM v", [(3, 5)]),
        ("SELECT COUNT(*), SUM(v / w) FILTER (WHERE w > 0), SUM(v / w) FILTER (WHERE w > 3) FROM v", [(3, 5, 2)]),
        ("SELECT COUNT(*), COUNT(DISTINCT CAST(s AS INT)) FILTER (WHERE s <> 'x') FROM v", [(3, 2)]),
        ("SELECT k, MAX(v / w) FILTER (WHERE w <> 0), COUNT(*) FROM v GROUP BY k", [("a", 2, 2), ("b", 3, 1)]),
        # Without FILTER the row fails as a whole.
        ("SELECT COUNT(*), SUM(v / w) FROM v", [(2, 5)]),
        ("SELECT COUNT(*), SUM(v / w), SUM(v / w) FILTER (WHERE w > 0) FROM v", [(2, 5, 5)]),
    ],
)
def test_rows_that_are_left_out_do_not_fail(
    query: str, wanted: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for dead letters
    session = SqlSession()
    hr.register("v", ROWS, session=session)
    assert sorted(hr.sql(query, session=session).collect().rows()) == wanted


def test_with_over_rows_that_are_left_out_do_not_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = SqlSession()
    hr.register("v", ROWS, session=session)
    query = (
        "SELECT k, SUM(CAST(s AS INT)) FILTER (WHERE s <> 'x') OVER (PARTITION BY k ORDER BY v) AS a, "
        "COUNT(v / w) FILTER (WHERE w <> 0) OVER () AS b FROM v"
    )
    assert sorted(hr.sql(query, session=session).collect().rows(), key=repr) == [
        ("a", 1, 2),
        ("a", None, 2),
        ("b", 2, 2),
    ]


_TABLES = """CREATE TABLE t (v INT, s STRING) WITH ('connector' = 'filesystem', 'path' = 'in.ndjson', 'format' = 'json');
CREATE TABLE o (a INT, b INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json', 'changes' = 'column');
INSERT INTO o (a, b) SELECT """


def test_a_changed_job_finds_its_aggregates_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    filtered, plain = "SUM(CAST(s AS INT)) FILTER (WHERE s <> '2') AS a", "SUM(CAST(s AS INT)) AS b"
    texts = [
        f"{_TABLES} x.a, x.b FROM (SELECT {', '.join(each)} FROM t) AS x"
        for each in ((filtered, plain), (plain, filtered))
    ]
    for number, text in enumerate(texts, 1):
        with (tmp_path / "in.ndjson").open("a") as file:
            file.writelines(f'{{"v": {number}, "s": "{each}"}}\n' for each in (1, 2))
        hr.sql(text, session=SqlSession()).run("light", show_progress=False, checkpoint="checkpoint")
    lines = [line for part in sorted(tmp_path.glob("out/part*")) for line in part.read_text().splitlines()]
    assert lines[-1] == '{"change":"update_after","a":2,"b":6}'


def test_a_case_written_by_hand_is_not_taken_for_a_sum_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.ndjson").write_text('{"v": 1, "s": "1"}\n{"v": 2, "s": "2"}\n')
    before = "SUM(CAST(s AS INT)) FILTER (WHERE s <> '2') AS a, SUM(CASE WHEN s <> '2' THEN CAST(s AS INT) END) AS b"
    after = "SUM(CAST(s AS INT)) FILTER (WHERE s <> '2') AS a, SUM(CAST(s AS INT)) AS b"
    job = hr.sql(f"{_TABLES} x.a, x.b FROM (SELECT {before} FROM t) AS x", session=SqlSession())
    job.run("light", show_progress=False, checkpoint="checkpoint")
    job = hr.sql(f"{_TABLES} x.a, x.b FROM (SELECT {after} FROM t) AS x", session=SqlSession())
    with pytest.raises(CheckpointError, match="has aggregates now that its stored state does not have"):
        job.run("light", show_progress=False, checkpoint="checkpoint")
