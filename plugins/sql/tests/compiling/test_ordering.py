"""ORDER BY: a stream is sorted by its event time as the watermark goes on, also by one that SELECT does not give."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError

SECONDS = [5, 3, 9, 7, 20, 18, 1, 25]


@pytest.fixture
def table(tmp_path: Path) -> str:
    rows = [{"a": n, "k": "xy"[n % 2], "ts": f"2024-05-06 10:00:{at:02d}.000"} for n, at in enumerate(SECONDS)]
    (tmp_path / "t.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return (
        "CREATE TABLE t (a INT, k STRING, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/t.ndjson', 'format' = 'json');\n"
    )


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # The row of second 1 comes behind second 20: it is late.
        ("SELECT a FROM t ORDER BY ts", [1, 0, 3, 2, 5, 4, 7]),
        ("SELECT a * 10 AS b FROM t AS x ORDER BY x.ts", [10, 0, 30, 20, 50, 40, 70]),
        ("SELECT a, ts FROM t ORDER BY 2", [1, 0, 3, 2, 5, 4, 7]),
        ("SELECT b FROM (SELECT a AS b, ts FROM t WHERE k = 'x') ORDER BY ts", [0, 2, 4]),
        ("SELECT SUM(a) OVER (PARTITION BY k ORDER BY ts) FROM t ORDER BY ts", [1, 0, 4, 2, 9, 6, 16]),
        (
            "SELECT COUNT(*) FROM t GROUP BY TUMBLE(ts, INTERVAL '10' SECOND) "
            "ORDER BY TUMBLE_ROWTIME(ts, INTERVAL '10' SECOND)",
            [4, 1, 2],
        ),
        ("SELECT a FROM t ORDER BY ts, a DESC", [1, 0, 3, 2, 5, 4, 7]),
        ("SELECT a FROM t ORDER BY p", [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_rows_come_in_the_order_of_their_event_time(table: str, size: int, query: str, expected: list[Any]) -> None:
    frame = hr.sql(table + query).collect(max_batch_records=size)
    assert len(frame.columns) == (2 if ", ts" in query.split("FROM")[0] else 1)
    assert [row[0] for row in frame.rows()] == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a FROM t ORDER BY ts LIMIT 3", [0, 1, 6]),
        ("SELECT a FROM t ORDER BY ts DESC FETCH FIRST 2 ROWS ONLY", [4, 7]),
        ("SELECT a FROM t ORDER BY ts LIMIT 2 OFFSET 1", [0, 1]),
        ("SELECT a FROM t ORDER BY p LIMIT 2", [0, 1]),
    ],
)
def test_the_first_rows_by_a_time_that_is_not_selected(table: str, query: str, expected: list[int]) -> None:
    frame = hr.sql(table + query).collect(max_batch_records=2)
    assert frame.columns == ["a"]
    assert sorted(frame["a"]) == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT a FROM t ORDER BY a", "must begin with its time attribute"),
        ("SELECT a FROM t ORDER BY ts DESC", "must begin with its time attribute"),
        ("SELECT a AS ts FROM t ORDER BY ts", "must begin with its time attribute"),
        ("SELECT DISTINCT k FROM t ORDER BY ts LIMIT 2", "uses an expression that is not in SELECT"),
    ],
)
def test_other_orders_are_refused(table: str, query: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        hr.sql(table + query)


def test_late_rows_are_dropped_also_where_nobody_reads_the_number(table: str) -> None:
    # PyFlink's planner leaves such a column out, and with it the dropping: it gives all eight rows.
    query = "SELECT a FROM (SELECT a, ROW_NUMBER() OVER (ORDER BY ts) AS n FROM t)"
    assert hr.sql(table + query).collect(max_batch_records=1)["a"].to_list() == [1, 0, 3, 2, 5, 4, 7]


def test_rows_of_one_moment_are_sorted_by_what_stands_behind(tmp_path: Path) -> None:
    rows = [{"a": a, "b": b, "ts": f"2024-05-06 10:00:0{at}.000"} for a, b, at in
            [(1, 2, 1), (2, None, 1), (3, 2, 1), (4, 9, 1), (5, 0, 0), (6, 1, 2)]]  # fmt: skip
    (tmp_path / "t.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = (
        "CREATE TABLE t (a INT, b INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/t.ndjson', 'format' = 'json');\n"
    )
    for order, wanted in (
        ("b DESC, a DESC", [5, 4, 3, 1, 2, 6]),
        ("b", [5, 2, 1, 3, 4, 6]),
        ("b NULLS LAST", [5, 1, 3, 4, 2, 6]),
    ):
        frame = hr.sql(f"{text} SELECT a FROM t ORDER BY ts, {order}").collect(max_batch_records=2)
        assert frame["a"].to_list() == wanted


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a FROM t ORDER BY a DESC", [(7,), (6,), (5,), (4,), (3,), (2,), (1,), (0,)]),
        ("SELECT a FROM t ORDER BY k DESC, ts", [(1,), (3,), (5,), (7,), (6,), (0,), (2,), (4,)]),
        ("SELECT k, SUM(a) AS s FROM t GROUP BY k ORDER BY s DESC", [("y", 16), ("x", 12)]),
        ("SELECT NULLIF(a, 3) AS b FROM t WHERE a BETWEEN 2 AND 4 ORDER BY 1", [(None,), (2,), (4,)]),
        ("SELECT k FROM t WHERE a < 3 UNION ALL SELECT 'x' ORDER BY k", [("x",), ("x",), ("x",), ("y",)]),
    ],
)
def test_with_flinks_option_rows_come_in_any_order_when_the_input_ends(
    table: str, size: int, query: str, expected: list[Any]
) -> None:
    text = f"SET '__table.exec.sort.non-temporal.enabled__' = 'true';\n{table}{query}"
    assert hr.sql(text).collect(max_batch_records=size).rows() == expected
