"""Views that number their rows by time, without a bound, under every clause that may stand around them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySink

VIEW = """
CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), xs ARRAY<INT>, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json');
CREATE VIEW n AS SELECT k, v, ts, xs, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM t;
"""
ROWS = [{"k": "a", "v": i % 4, "ts": f"2024-01-01 00:00:{i:02d}", "xs": [i, i + 1]} for i in range(8)]


def rows_of(query: str, tmp_path: Path) -> list[tuple[Any, ...]]:
    (tmp_path / "t.ndjson").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    job = hr.sql(VIEW.format(path=tmp_path / "t.ndjson") + query)
    sink = MemorySink()
    next(iter(job.script.relations().values())).stream.to(sink).run("light", show_progress=False)
    return sorted(tuple(row.values()) for row in sink.rows)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT COUNT(*) AS c, MAX(rn) AS m FROM TABLE(TUMBLE(TABLE n, DESCRIPTOR(ts), INTERVAL '4' SECOND)) "
         "GROUP BY window_start, window_end", [(4, 4), (4, 8)]),
        ("SELECT rn FROM (SELECT * FROM TABLE(TUMBLE(TABLE n, DESCRIPTOR(ts), INTERVAL '4' SECOND))) WHERE rn < 3", [(1,), (2,)]),
        ("SELECT rn, x FROM n CROSS JOIN UNNEST(xs) AS u(x) WHERE x > 6", [(7, 7), (8, 7), (8, 8)]),
        ("SELECT rn, x FROM n CROSS JOIN UNNEST(xs) AS u(x) WHERE rn <= 2 AND x > 0", [(1, 1), (2, 1), (2, 2)]),
        ("SELECT rn, x FROM n LEFT JOIN UNNEST(xs) AS u(x) ON TRUE WHERE rn <= 1 OR x > 7", [(1, 0), (1, 1), (8, 8)]),
        ("SELECT rn, s FROM n, LATERAL TABLE(STRING_SPLIT(k, ',')) AS u(s) WHERE rn > 7", [(8, "a")]),
        ("SELECT m.a, m.b FROM n MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.rn AS a, B.rn AS b ONE ROW PER MATCH "
         "AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE B AS B.v > A.v) AS m", [(1, 2), (3, 4), (5, 6), (7, 8)]),
        ("SELECT rn, SUM(rn) OVER (PARTITION BY k ORDER BY ts) AS s FROM n WHERE v >= 0",
         [(i, i * (i + 1) // 2) for i in range(1, 9)]),
        ("SELECT a.rn, b.v FROM n AS a JOIN t AS b ON a.rn = b.v + 5 AND a.ts BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts",
         [(5, 0), (6, 1), (7, 2), (8, 3)]),
    ],
)  # fmt: skip
def test_numbered_rows_are_rows_like_others(query: str, wanted: list[tuple[Any, ...]], tmp_path: Path) -> None:
    assert rows_of(query, tmp_path) == wanted


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, rn FROM n UNION ALL SELECT k, rn FROM n WHERE v > 0",
        "SELECT k, rn FROM n UNION ALL SELECT k, rn FROM (SELECT * FROM n WHERE v > 0)",
        "SELECT a.k, a.rn FROM n AS a JOIN n AS b ON a.rn = b.rn AND a.ts BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts",
    ],
)
def test_a_view_that_is_read_twice_is_computed_once(query: str, tmp_path: Path) -> None:
    """Computed twice it would keep its state twice, and give each of its dead letters twice."""
    (tmp_path / "t.ndjson").write_text("".join(json.dumps({**row, "ts": None}) + "\n" for row in ROWS))
    job = hr.sql(
        VIEW.format(path=tmp_path / "t.ndjson")
        + f"CREATE TABLE o (k STRING, rn BIGINT) WITH ('connector' = 'print'); INSERT INTO o {query}"
    )
    assert [node_id for node_id in job.plan().nodes if node_id.startswith("over_aggregate")] == ["over_aggregate"]
    report = job.run("light", show_progress=False, checkpoint=str(tmp_path / "checkpoint"))
    assert report.dead_letters == len(ROWS)
