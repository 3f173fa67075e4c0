"""Top-N and joins within windows: what they give, that they only add rows, and that late rows are dropped."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Batch, Queue
from headrace.flow.schema import Schema
from headrace.testing import MemorySink
from headrace_sql.operators.window_assign import TableWindow, WindowAssign

ROWS = [
    ("a", 1, 0), ("b", 2, 1), ("a", 3, 5), (None, 4, 6), ("b", 5, 12),
    ("a", 9, 3),  # late: its window ended at 10, and the watermark is 11
    ("a", 6, 20), ("b", 7, 21),
]  # fmt: skip
TUMBLE = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
HOP = "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))"
SAME = "L.window_start = R.window_start AND L.window_end = R.window_end"
SUMS = f"SELECT k, window_start, window_end, SUM(v) AS s FROM {TUMBLE} GROUP BY k, window_start, window_end"

TIMED_SUMS = SUMS.replace("SELECT k", "SELECT k, window_time").replace("GROUP BY k", "GROUP BY k, window_time")


@pytest.fixture(autouse=True)
def table(tmp_path: Path) -> None:
    lines = [json.dumps({"k": k, "v": v, "ts": f"2024-01-01 00:00:{second:02d}"}) for k, v, second in ROWS]
    (tmp_path / "t.ndjson").write_text("\n".join(lines) + "\n")
    hr.sql(
        "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) "
        "WITH ('connector' = 'filesystem', 'path' = '${PATH}', 'format' = 'json');"
        f"CREATE VIEW w AS SELECT * FROM {TUMBLE};"
        "CREATE VIEW last_of_t AS SELECT k, v, ts FROM "
        "(SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM t) WHERE rn = 1;"
        f"CREATE VIEW sums AS SELECT k, window_start AS w1, window_time AS wt, SUM(v) AS s FROM {TUMBLE} "
        "GROUP BY k, window_start, window_end, window_time;"
        f"CREATE VIEW best AS SELECT s, window_time AS wt FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end "
        f"ORDER BY s DESC) AS rn FROM ({TIMED_SUMS})) WHERE rn = 1",
        variables={"PATH": str(tmp_path / "t.ndjson")},
    )


def top(rank: str, of: str = "w", condition: str = "rn <= 2") -> str:
    return f"(SELECT *, ROW_NUMBER() OVER ({rank}) AS rn FROM {of}) WHERE {condition}"


CASES: list[tuple[str, list[tuple[Any, ...]]]] = [
    (
        f"SELECT SECOND(window_end), k, v, rn FROM {top('PARTITION BY window_start, window_end ORDER BY v DESC')}",
        [(10, None, 4, 1), (10, "a", 3, 2), (20, "b", 5, 1), (30, "b", 7, 1), (30, "a", 6, 2)],
    ),
    (
        f"SELECT SECOND(window_end), k, s FROM {top('PARTITION BY window_start, window_end ORDER BY s DESC', f'({SUMS})', 'rn = 1')}",
        [(10, "a", 4), (20, "b", 5), (30, "b", 7)],
    ),
    (
        f"SELECT k, v FROM {top('PARTITION BY window_start, window_end, k ORDER BY ts DESC', condition='rn = 1')}",
        [("b", 2), ("a", 3), (None, 4), ("b", 5), ("a", 6), ("b", 7)],
    ),
    (
        "SELECT SECOND(TUMBLE_END(window_time, INTERVAL '20' SECOND)), COUNT(*), SUM(v) FROM (SELECT window_time, v FROM "
        f"{top('PARTITION BY window_start, window_end ORDER BY v DESC')}) GROUP BY TUMBLE(window_time, INTERVAL '20' SECOND)",
        [(20, 3, 12), (40, 2, 13)],
    ),
    (f"SELECT L.v, R.v FROM w L JOIN w R ON L.k = R.k AND {SAME} AND L.v < R.v", [(1, 3)]),
    (
        "SELECT L.v, R.v, SECOND(L.window_end), SECOND(R.window_end) FROM (SELECT * FROM w WHERE v < 5) L "
        f"FULL JOIN (SELECT * FROM w WHERE v > 1) R ON L.v = R.v AND {SAME}",
        [*((v, v, 10, 10) for v in (2, 3, 4)), (1, None, 10, None), (None, 5, None, 20), *((None, v, None, 30) for v in (6, 7))],
    ),
    (
        f"SELECT L.s, R.s FROM ({SUMS}) L LEFT JOIN ({SUMS.replace('GROUP', 'WHERE v > 3 GROUP')}) R ON L.k = R.k AND {SAME}",
        [(4, None), (2, None), (4, None), (5, 5), (6, 6), (7, 7)],
    ),
    (
        # The start of a window is a key like any other for windows of its results.
        "SELECT SECOND(w1), SECOND(window_start), SUM(s) FROM TABLE(TUMBLE(TABLE sums, DESCRIPTOR(wt), INTERVAL '20' SECOND)) "
        "GROUP BY w1, window_start, window_end",
        [(0, 0, 10), (10, 0, 5), (20, 20, 13)],
    ),
    (
        # The window_time of a Top-N of windows is a time attribute.
        "SELECT SECOND(window_end), COUNT(*) FROM TABLE(TUMBLE(TABLE best, DESCRIPTOR(wt), INTERVAL '20' SECOND)) "
        "GROUP BY window_start, window_end",
        [(20, 2), (40, 1)],
    ),
    (
        "SELECT SECOND(TUMBLE_END(wt, INTERVAL '20' SECOND)), COUNT(*) FROM (SELECT L.window_time AS wt FROM w L JOIN w R "
        f"ON L.v = R.v AND {SAME}) GROUP BY TUMBLE(wt, INTERVAL '20' SECOND)",
        [(20, 5), (40, 2)],
    ),
    (
        f"SELECT L.v, R.v FROM {HOP} L JOIN {HOP} R ON {SAME} AND L.v + 1 = R.v",
        [(1, 2), (1, 2), (2, 3), (3, 4), (3, 4), (4, 5), (6, 7), (6, 7)],
    ),
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(("text", "expected"), CASES)
def test_windows_give_their_rows_once(text: str, expected: list[tuple[Any, ...]], size: int) -> None:
    frame = hr.sql(text).collect(changes=True, max_batch_records=size)
    assert set(frame["op"]) == {"+I"}
    assert sorted(frame.drop("op").rows(), key=repr) == sorted(expected, key=repr)


def test_a_top_n_of_windows_of_processing_time_is_a_changelog() -> None:
    sums = (
        "SELECT k, window_start, window_end, SUM(v) AS s FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '1' DAY)) "
        "GROUP BY k, window_start, window_end"
    )
    text = f"SELECT k, s FROM {top('PARTITION BY window_start, window_end ORDER BY s DESC', f'({sums})', 'rn = 1')}"
    assert hr.sql(text).collect().rows() == [("a", 19)]


def test_state_ttl_reaches_every_operator_that_keeps_rows() -> None:
    text = "SET 'table.exec.state.ttl' = '5 s'; SET 'table.exec.state.ttl' = '5 s'; "
    queries = (
        f"SELECT k, v FROM {top('PARTITION BY k ORDER BY v DESC')}",
        f"SELECT k, v FROM {top('PARTITION BY k ORDER BY p', condition='rn = 1')}",
        f"SELECT k, v FROM {top('PARTITION BY k ORDER BY ts', condition='rn = 1')}",
        "SELECT DISTINCT k FROM t", "SELECT k FROM t GROUP BY k", "SELECT k, SUM(v) FROM t GROUP BY k",
        "SELECT k FROM t WHERE v IN (SELECT v FROM w)", "SELECT a.k FROM t a LEFT JOIN t b ON a.v = b.v",
        "SELECT k FROM t INTERSECT SELECT k FROM w", "SELECT k FROM t UNION SELECT k FROM w",
    )  # fmt: skip
    for query in queries:
        specs: list[Any] = [getattr(node, "spec", None) for node in hr.sql(text + query).plan().nodes.values()]
        lengths = [spec.ttl_us for spec in specs if getattr(spec, "ttl_us", "none") != "none"]
        assert lengths, query
        assert set(lengths) == {5_000_000}, query


@pytest.mark.parametrize(
    "query", [
        "SELECT v, window_start FROM TABLE(TUMBLE(TABLE gaps, DESCRIPTOR(ts), INTERVAL '10' SECOND))",
        "SELECT v, SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW) FROM gaps",
        "SELECT v, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) FROM gaps",
        "SELECT v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM gaps) WHERE rn = 1",
        "SELECT v FROM gaps MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.v AS v PATTERN (A))",
        "SELECT l.v FROM gaps AS l LEFT JOIN last_of_t FOR SYSTEM_TIME AS OF l.ts AS r ON l.k = r.k",
    ],
)  # fmt: skip
def test_a_row_without_a_time_goes_to_the_dead_letters(query: str, tmp_path: Path) -> None:
    rows = [{"k": "a", "v": 1, "ts": None}, {"k": "a", "v": 2, "ts": "2024-01-01 00:00:05"}]
    (tmp_path / "gaps.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = hr.sql(
        "CREATE TABLE gaps (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/gaps.ndjson', 'format' = 'json'); {query}"
    )
    given, bad = MemorySink(), MemorySink()
    stream = next(iter(job.script.relations().values())).stream
    stream.dead_letters(lambda letters: letters.to(bad)).to(given).run("light")
    assert [row["v"] for row in given.rows] == [2]
    assert [json.loads(row["row"])["v"] for row in bad.rows] == [1]
    assert "no time in column" in bad.rows[0]["reason"]


def test_bounds_of_windows_are_right_for_times_of_any_unit() -> None:
    for unit in ("ms", "us", "ns"):
        moment = pl.Series("ts", [datetime(2024, 1, 1, 0, 0, 5)]).cast(pl.Datetime(unit))
        schema = Schema({"ts": moment.dtype})
        spec = WindowAssign(TableWindow("tumbling", 10_000_000, 10_000_000, 0, "ts"), ("start", "end", "last"))
        place = [pl.Series(OFFSET, [0]), pl.Series(INDEX, [0], dtype=pl.Int32)]
        (made,) = spec.open(schema).process(Batch(Queue("q"), pl.DataFrame([*place, moment])))
        assert isinstance(made, Batch)
        assert made.frame.select("start", "end").rows() == [(datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 10))]
        assert dict(spec.output_schema(schema) or {})["start"] == made.frame.schema["start"]
