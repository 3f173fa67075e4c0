"""EXISTS, IN and their negations between rows of the same window: given when the window closes, and never taken back."""

# ruff: noqa: S608  # texts are put together from constants; one case, one line

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.plan.graph import OperatorNode
from headrace_stateful.joins.join import Join

A = [("a", 1), ("b", 2), ("c", 3), ("a", 11), ("b", 15), ("d", 14), ("a", 25), ("b", 26), (None, 27), ("c", 41)]
B = [("a", 2), ("c", 4), ("c", 5), ("b", 12), ("a", 12), ("d", 25), ("b", 27), ("b", 45)]
SAME = "L.window_start = R.window_start AND L.window_end = R.window_end"
LEFT = "(SELECT * FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND))) AS L"
RIGHT = LEFT.replace("TABLE a", "TABLE b").replace("AS L", "AS R")
MEETS = [("a", 1), ("c", 3), ("a", 11), ("b", 15), ("b", 26)]
ALONE = [row for row in A if row not in MEETS]


@pytest.fixture(autouse=True)
def tables(tmp_path: Path) -> None:
    for name, rows in (("a", A), ("b", B)):
        lines = [json.dumps({"k": key, "ts": f"2024-01-01 00:00:{second:02d}"}) for key, second in rows]
        (tmp_path / f"{name}.ndjson").write_text("\n".join(lines) + "\n")
        hr.sql(
            f"CREATE TABLE {name} (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH "
            f"('connector' = 'file', 'path' = '{tmp_path / name}.ndjson', 'format' = 'json')"
        )


def rows(text: str, **options: Any) -> list[tuple[Any, ...]]:
    made = hr.sql(text).collect(**options).rows()
    return sorted(
        (tuple(each.second if isinstance(each, datetime) else each for each in row) for row in made), key=repr
    )


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (f"EXISTS (SELECT * FROM {RIGHT} WHERE L.k = R.k AND {SAME})", MEETS),
        (f"NOT EXISTS (SELECT 1 FROM {RIGHT} WHERE L.k = R.k AND {SAME})", ALONE),
        (f"L.k IN (SELECT k FROM {RIGHT} WHERE {SAME})", MEETS),
        (f"NOT (L.k IN (SELECT k FROM {RIGHT} WHERE {SAME}))", [row for row in ALONE if row[0] is not None]),
        (f"L.k NOT IN (SELECT k FROM {RIGHT} WHERE {SAME})", [row for row in ALONE if row[0] is not None]),
        ("(L.k, L.window_start, L.window_end) IN (SELECT k, window_start, window_end FROM "
         "(SELECT * FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '10' SECOND))))", MEETS),
        (f"EXISTS (SELECT * FROM {RIGHT} WHERE L.k = R.k AND R.ts > L.ts AND {SAME})", [("a", 1), ("c", 3), ("a", 11), ("b", 26)]),
        # The windows of the right side as a table in FROM, and as results of an aggregation.
        (f"EXISTS (SELECT * FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS R WHERE L.k = R.k AND {SAME})", MEETS),
        ("EXISTS (SELECT * FROM (SELECT k, window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(ts), "
         f"INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end) AS R WHERE n = 1 AND L.k = R.k AND {SAME})",
         [row for row in MEETS if row != ("c", 3)]),
    ],
)  # fmt: skip
def test_rows_with_and_without_a_partner(condition: str, expected: list[Any]) -> None:
    text = f"SELECT L.k, L.ts FROM {LEFT} WHERE {condition}"
    for options in ({}, {"max_batch_records": 1}, {"shards": 3}):
        assert rows(text, **options) == sorted(expected, key=repr)
    changes = hr.sql(text).collect(changes=True)
    assert set(changes["op"]) == {"+I"}
    (join,) = [n.spec for n in hr.sql(text).plan().of_kind(OperatorNode).values() if isinstance(n.spec, Join)]
    assert join.window is not None  # rows are forgotten when their window closes


def test_windows_go_on_behind_it() -> None:
    text = (
        f"SELECT L.window_start, COUNT(*) FROM {LEFT} WHERE NOT EXISTS (SELECT 1 FROM {RIGHT} WHERE L.k = R.k AND {SAME}) "
        "GROUP BY L.window_start, L.window_end"
    )
    assert rows(text) == [(0, 1), (10, 1), (20, 2), (40, 1)]
    wider = (
        f"SELECT TUMBLE_START(L.window_time, INTERVAL '20' SECOND), COUNT(*) FROM {LEFT} WHERE EXISTS "
        f"(SELECT 1 FROM {RIGHT} WHERE L.k = R.k AND {SAME}) GROUP BY TUMBLE(L.window_time, INTERVAL '20' SECOND)"
    )
    assert rows(wider) == [(0, 4), (20, 1)]


@pytest.mark.spark
def test_on_spark() -> None:
    text = f"SELECT L.k, L.ts FROM {LEFT} WHERE NOT EXISTS (SELECT 1 FROM {RIGHT} WHERE L.k = R.k AND {SAME})"
    assert rows(text, backend="spark") == sorted(ALONE, key=repr)


@pytest.mark.parametrize(
    ("text", "kept"), [('"window_start"', False), ('"__own_window_start"', True), ("window_start", True)]
)
def test_a_text_in_the_condition_that_looks_like_a_column_stays_as_it_is(text: str, kept: bool) -> None:
    """The windows' own columns are renamed below the join: in the condition's columns, not in its texts."""
    condition = f"L.k = R.k AND {SAME} AND L.k || '\"window_start\"' <> R.k || '{text}' AND L.window_start < R.ts"
    found = rows(f"SELECT L.k, L.ts FROM {LEFT} JOIN {RIGHT} ON {condition}")
    pairs = [(k, t) for k, t in A for other, at in B if k == other and t // 10 == at // 10 and at % 10]
    assert found == (sorted(pairs, key=repr) if kept else [])
