"""Which rows are late: results of Flink 2.3, its watermark advanced after every row, over rows with equal and disordered times."""

# ruff: noqa: E501  # texts are put together from constants; one case, one line

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import headrace as hr
import pytest

#: Key and second of each row; its number is its value.
ROWS = [
    "b 0.999",
    "b 1.999",
    "a 2.000",
    "b 1.998",
    "a 1.501",
    "a 3.001",
    "b 2.502",
    "a 2.502",
    "b 3.002",
    "a 3.002",
    "a 3.002",
    "b 3.002",
    "a 3.004",
    "b 3.004",
    "a 3.999",
    "b 3.999",
    "a 1.406",
    "a 4.405",
    "b 4.906",
    "b 3.999",
    "a 5.999",
    "b 5.999",
    "a 5.999",
    "b 6.000",
    "a 4.999",
]
DELAYS = {"x0": "ts", "x1": "ts - INTERVAL '0.001' SECOND"}
QUERIES = {
    "tumble": "SELECT k, TUMBLE_START(ts, INTERVAL '1' SECOND), COUNT(*), MAX(v) FROM {0} GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND)",
    "session": "SELECT k, SESSION_START(ts, INTERVAL '0.5' SECOND), COUNT(*), MAX(v) FROM {0} GROUP BY k, SESSION(ts, INTERVAL '0.5' SECOND)",
    "over": "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM {0}",
    "near": "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '0.2' SECOND PRECEDING AND CURRENT ROW) FROM {0}",
    "first": "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, v / 5 ORDER BY ts) AS rn FROM {0}) WHERE rn = 1",
    "match": "SELECT * FROM {0} MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.v AS a, B.v AS b AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE B AS B.v > A.v)",
}
EXPECTED: list[tuple[str, str, list[Any]]] = [
    ("x0", "tumble", [('a', 2.0, 1, 2), ('a', 3.0, 5, 14), ('a', 4.0, 1, 17), ('a', 5.0, 1, 20), ('b', 0.0, 1, 0), ('b', 1.0, 1, 1), ('b', 3.0, 3, 13), ('b', 4.0, 1, 18), ('b', 6.0, 1, 23)]),
    ("x0", "session", [('a', 1.501, 2, 4), ('a', 2.502, 5, 12), ('a', 3.999, 2, 17), ('a', 5.999, 2, 22), ('b', 0.999, 1, 0), ('b', 1.998, 2, 3), ('b', 3.002, 3, 13), ('b', 3.999, 1, 15), ('b', 4.906, 1, 18), ('b', 5.999, 2, 23)]),
    ("x0", "over", [('a', 10, 24), ('a', 12, 31), ('a', 14, 36), ('a', 17, 43), ('a', 2, 2), ('a', 20, 51), ('a', 5, 7), ('a', 9, 16), ('b', 0, 0), ('b', 1, 1), ('b', 13, 27), ('b', 15, 36), ('b', 18, 46), ('b', 21, 54), ('b', 23, 62), ('b', 6, 7), ('b', 8, 15)]),
    ("x0", "near", [('a', 10, 24), ('a', 12, 36), ('a', 14, 14), ('a', 17, 17), ('a', 2, 2), ('a', 20, 20), ('a', 5, 5), ('a', 9, 24), ('b', 0, 0), ('b', 1, 1), ('b', 13, 21), ('b', 15, 15), ('b', 18, 18), ('b', 21, 21), ('b', 23, 44), ('b', 6, 6), ('b', 8, 8)]),
    ("x0", "first", [('a', 10), ('a', 17), ('a', 2), ('a', 20), ('a', 5), ('b', 0), ('b', 11), ('b', 15), ('b', 21), ('b', 8)]),
    ("x0", "match", [('a', 12, 14), ('a', 17, 20), ('a', 2, 5), ('b', 0, 1), ('b', 8, 18)]),
    ("x1", "tumble", [('a', 2.0, 1, 2), ('a', 3.0, 5, 14), ('a', 4.0, 1, 17), ('a', 5.0, 2, 22), ('b', 0.0, 1, 0), ('b', 1.0, 1, 1), ('b', 3.0, 4, 15), ('b', 4.0, 1, 18), ('b', 5.0, 1, 21), ('b', 6.0, 1, 23)]),
    ("x1", "session", [('a', 1.501, 2, 4), ('a', 2.502, 5, 12), ('a', 3.999, 2, 17), ('a', 5.999, 2, 22), ('b', 0.999, 1, 0), ('b', 1.998, 2, 3), ('b', 2.502, 4, 13), ('b', 3.999, 1, 15), ('b', 4.906, 1, 18), ('b', 5.999, 2, 23)]),
    ("x1", "over", [('a', 10, 24), ('a', 12, 31), ('a', 14, 36), ('a', 17, 43), ('a', 2, 6), ('a', 20, 51), ('a', 22, 59), ('a', 4, 4), ('a', 5, 14), ('a', 7, 13), ('a', 9, 21), ('b', 0, 0), ('b', 1, 1), ('b', 11, 25), ('b', 13, 32), ('b', 15, 39), ('b', 18, 46), ('b', 21, 54), ('b', 23, 62), ('b', 6, 7), ('b', 8, 15)]),
    ("x1", "near", [('a', 10, 24), ('a', 12, 36), ('a', 14, 14), ('a', 17, 17), ('a', 2, 2), ('a', 20, 42), ('a', 22, 42), ('a', 4, 4), ('a', 5, 5), ('a', 7, 7), ('a', 9, 24), ('b', 0, 0), ('b', 1, 1), ('b', 11, 19), ('b', 13, 32), ('b', 15, 15), ('b', 18, 18), ('b', 19, 19), ('b', 21, 21), ('b', 23, 44), ('b', 6, 6), ('b', 8, 19)]),
    ("x1", "first", [('a', 10), ('a', 17), ('a', 2), ('a', 20), ('a', 5), ('b', 0), ('b', 11), ('b', 15), ('b', 21), ('b', 8)]),
    ("x1", "match", [('a', 12, 14), ('a', 17, 20), ('a', 2, 5), ('a', 9, 10), ('b', 0, 1), ('b', 13, 15), ('b', 18, 21), ('b', 8, 11)]),
]  # fmt: skip


@pytest.fixture(autouse=True)
def tables(tmp_path: Path) -> None:
    lines = [
        json.dumps({"k": row.split()[0], "v": v, "ts": f"2024-01-01 00:00:0{row.split()[1]}"})
        for v, row in enumerate(ROWS)
    ]
    (tmp_path / "x.ndjson").write_text("\n".join(lines) + "\n")
    for name, delay in DELAYS.items():
        hr.sql(
            f"CREATE TABLE {name} (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS {delay}) WITH "
            f"('connector' = 'file', 'path' = '{tmp_path / 'x.ndjson'}', 'format' = 'json')"
        )


@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize(
    ("table", "query", "expected"), EXPECTED, ids=[f"{table}-{query}" for table, query, _ in EXPECTED]
)
def test_rows_are_late_as_in_flink(table: str, query: str, expected: list[Any], size: int) -> None:
    made = hr.sql(QUERIES[query].format(table)).collect(max_batch_records=size).rows()
    begin = datetime(2024, 1, 1)
    shown = [
        tuple((each - begin).total_seconds() if isinstance(each, datetime) else each for each in row) for row in made
    ]
    assert sorted(shown, key=repr) == expected


#: Second and value. The match of 1 and 10 waits for that of 5, which begins before it and ends by WITHIN.
WAITING = ["1 5", "2 1", "3 10", "4 2", "6 2", "8 2", "9 2", "12 2", "20 2", "40 2"]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_match_that_waits_for_another_is_in_time_for_a_window_behind(size: int, tmp_path: Path) -> None:
    """Until it is given, the watermark behind stays before its last row."""
    lines = [
        json.dumps({"k": "a", "v": int(row.split()[1]), "ts": f"2024-01-01 00:00:{int(row.split()[0]):02d}"})
        for row in WAITING
    ]
    (tmp_path / "waiting.ndjson").write_text("\n".join(lines) + "\n")
    matches = (
        "SELECT * FROM waiting MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.v AS a, MATCH_ROWTIME() AS at "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B*? C) WITHIN INTERVAL '10' SECOND DEFINE C AS C.v = A.v * 10)"
    )
    windows = "SELECT TUMBLE_START(at, INTERVAL '5' SECOND) AS s, SUM(a) AS a FROM ({}) GROUP BY TUMBLE(at, INTERVAL '5' SECOND)"
    made = hr.sql(
        "CREATE TABLE waiting (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH "
        f"('connector' = 'file', 'path' = '{tmp_path / 'waiting.ndjson'}', 'format' = 'json'); "
        + windows.format(matches)
    ).collect(max_batch_records=size)
    assert made.rows() == [(datetime(2024, 1, 1), 1)]
