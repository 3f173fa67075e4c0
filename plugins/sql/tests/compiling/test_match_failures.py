"""MATCH_RECOGNIZE with expressions that fail: the row goes to the dead letters, and matches are as if it had never come."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace_sql import SqlSession

#: (id, x, y)
ROWS = [(1, 10, 2), (2, 20, 0), (3, 30, 5), (4, 5, 1), (5, 7, 0), (6, 8, 1), (7, 1, 1), (8, 60, 3)]
CASES: dict[str, tuple[str, list[tuple[Any, ...]], list[int]]] = {
    "a condition of the first row": (
        "MEASURES FIRST(A.id) AS f, LAST(B.id) AS l AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+ C) "
        "DEFINE A AS A.x / A.y > 0, B AS B.x > 5, C AS C.x < 6",
        [(1, 3)], [5],
    ),
    "a condition with the row before": (
        "MEASURES A.id AS f, B.id AS l AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN INTERVAL '5' SECOND "
        "DEFINE A AS A.x > 0, B AS B.x / (B.y - LAST(A.y)) > 0",
        [(2, 3), (5, 6), (6, 8)], [7],
    ),
    "a function in a condition": (
        "MEASURES A.id AS f, 0 AS l AFTER MATCH SKIP PAST LAST ROW PATTERN (A) "
        "DEFINE A AS CAST(SUBSTRING('123x5678', CAST(A.id AS INT), 1) AS INT) > 6",
        [(7, 0), (8, 0)], [4],
    ),
    "alternatives": (
        "MEASURES A.id AS f, B.id AS l AFTER MATCH SKIP TO NEXT ROW PATTERN ((A | B)) DEFINE A AS A.x / A.y > 5, B AS B.x = 1",
        [(3, None), (6, None), (None, 7), (8, None)], [2, 5],
    ),
    "a measure": (
        "MEASURES A.id AS f, A.x / A.y AS l AFTER MATCH SKIP PAST LAST ROW PATTERN (A) DEFINE A AS A.x > 5",
        [(1, 5), (3, 6), (6, 8), (8, 20)], [2, 5],
    ),
    "a measure that is a function of several rows": (
        "MEASURES A.id AS f, CAST(CONCAT(CAST(A.y AS STRING), SUBSTRING('12345678', CAST(B.x AS INT), 1)) AS INT) / B.y AS l "
        "AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE A AS A.y = 1, B AS B.x < 8",
        [(6, 11)], [5],
    ),
}  # fmt: skip


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("case", CASES)
def test_what_fails_goes_to_the_dead_letters(
    case: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clause, wanted, dead = CASES[case]
    (tmp_path / "t.ndjson").write_text(
        "".join(json.dumps({"id": n, "x": x, "y": y, "ts": f"2024-01-01 00:00:{n:02d}"}) + "\n" for n, x, y in ROWS)
    )
    text = f"""CREATE TABLE t (id BIGINT, x BIGINT, y BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
      WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/t.ndjson', 'format' = 'json');
      SELECT f, l FROM t MATCH_RECOGNIZE (ORDER BY ts {clause}) AS m"""
    rows = hr.sql(text, session=SqlSession()).collect(max_batch_records=size).rows()
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)
    assert sorted(_ids(tmp_path)) == dead


def _ids(place: Path) -> list[Any]:
    found = []
    for part in place.glob("dead-letters/**/part*.json"):
        for line in part.read_text().splitlines():
            row = json.loads(line).get("row") or json.loads(line)
            found.append((json.loads(row) if isinstance(row, str) else row)["id"])
    return found
