"""SELECT without FROM, and columns of processing time in what a SELECT that stands alone gives."""

# ruff: noqa: S608  # texts are put together from constants; one case, one line

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError, PlanError


@pytest.fixture(autouse=True)
def tables(tmp_path: Path) -> None:
    """Table ``t`` (k, v, ts, p), in which p is processing time; frame ``u`` (n)."""
    times = [str(datetime(2024, 1, 1) + timedelta(seconds=second)) for second in (0, 1, 5, 6, 12, 20)]
    pl.DataFrame({"k": list("ababab"), "v": [1, 2, 3, 4, 5, 6], "ts": times}).write_ndjson(tmp_path / "t.ndjson")
    hr.sql(
        "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts) WITH ('connector' = "
        f"'filesystem', 'path' = '{tmp_path / 't.ndjson'}', 'format' = 'json')"
    )
    hr.register("u", pl.DataFrame({"n": [1, 2]}))


def rows(text: str) -> list[tuple[Any, ...]]:
    return sorted(hr.sql(text).collect().rows(), key=repr)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1, 'a' AS y, CAST('5' AS BIGINT) + 1", [(1, "a", 6)]),
        ("SELECT COUNT(*), SUM(2)", [(1, 2)]),
        ("SELECT CAST(0.1 AS FLOAT) = 0.1", [(False,)]),  # docs/sql.md: TRUE in Flink
        ("SELECT 1 WHERE 1 = 2", []),
        ("SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 1", [(1,), (1,), (2,)]),
        ("SELECT 1 UNION SELECT 1", [(1,)]),
        ("WITH w AS (SELECT 1 AS a, 'x' AS b) SELECT b, a + n FROM w JOIN u ON a <= n", [("x", 2), ("x", 3)]),
        ("SELECT * FROM (SELECT 5 AS a)", [(5,)]),
        ("SELECT n FROM u WHERE EXISTS (SELECT 1)", [(1,), (2,)]),
        ("SELECT n FROM u WHERE NOT EXISTS (SELECT 1)", []),
        ("SELECT n FROM u WHERE n IN (SELECT 1)", [(1,)]),
        ("SELECT n FROM u WHERE n > (SELECT 1)", [(2,)]),
        ("SELECT (SELECT MAX(n) FROM u) + 1", [(3,)]),
        ("SELECT a FROM (SELECT ARRAY[1, 2] AS r) CROSS JOIN UNNEST(r) AS x(a)", [(1,), (2,)]),
    ],
)
def test_select_without_from(text: str, expected: list[Any]) -> None:
    assert rows(text) == expected


def test_names_of_columns_without_one() -> None:
    assert hr.sql("SELECT 1, n, (SELECT MAX(n) FROM u) FROM u").collect().columns == ["EXPR$0", "n", "EXPR$2"]


def test_insert_of_a_select_without_from(tmp_path: Path) -> None:
    hr.sql(
        f"CREATE TABLE s (a INT, b STRING) WITH ('connector' = 'file', 'path' = '{tmp_path / 'out'}', 'format' = 'json')"
    )
    hr.sql("INSERT INTO s SELECT 7, 'x'").run("light")
    lines = [line for path in (tmp_path / "out").glob("part-*") for line in path.read_text().splitlines()]
    assert lines == ['{"a":7,"b":"x"}']


@pytest.mark.parametrize(
    ("text", "message"),
    [("SELECT *", r"\* needs FROM"), ("SELECT a", "unknown column 'a'"), ("SELECT t.*", "unknown table 't'")],
)
def test_nothing_can_be_named_without_from(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        hr.sql(text)


@pytest.mark.parametrize(
    ("text", "places", "count"),
    [
        ("SELECT v, p FROM t", [1], 6),
        ("SELECT p FROM t", [0], 6),
        ("SELECT * FROM t", [3], 6),
        ("SELECT p AS a, v, t.p AS b FROM t", [0, 2], 6),
        ("SELECT PROCTIME()", [0], 1),
        ("SELECT v, PROCTIME() AS p FROM t", [1], 6),
        ("SELECT q FROM (SELECT p AS q, v FROM t) WHERE v > 4", [0], 2),
        ("SELECT v, p FROM t UNION ALL SELECT v, p FROM t", [1], 12),
        ("SELECT p FROM t UNION ALL SELECT p FROM t", [0], 12),
        ("SELECT v, p FROM t UNION ALL SELECT v, CAST(ts AS TIMESTAMP_LTZ(3)) FROM t WHERE v > 9", [1], 6),
        ("SELECT a.v, a.p, b.p FROM t AS a JOIN t AS b ON a.v = b.v", [1, 2], 6),
        ("SELECT k, p FROM (SELECT k, p, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p) AS rn FROM t) WHERE rn = 1", [1], 2),
    ],
)  # fmt: skip
def test_processing_time_is_the_time_of_the_row(text: str, places: list[int], count: int) -> None:
    before = datetime.now(UTC)
    found = hr.sql(text).collect().rows()
    assert len(found) == count
    assert all(before - timedelta(seconds=1) <= row[place] <= datetime.now(UTC) for row in found for place in places)


def test_a_union_of_processing_times_has_windows() -> None:
    text = "SELECT COUNT(*) FROM (SELECT p FROM t UNION ALL SELECT p FROM t) GROUP BY TUMBLE(p, INTERVAL '10000' DAY)"
    assert rows(text) == [(12,)]


def test_processing_time_of_rows_that_change_is_refused() -> None:
    text = "SELECT a.v, a.p FROM t AS a LEFT JOIN t AS b ON a.v = b.v + 1"
    with pytest.raises(PlanError, match="a retracted row would have another time"):
        hr.sql(text).collect()
    assert len(hr.sql(text.replace("a.v, a.p", "a.v")).collect()) == 6


SESSION = "TABLE(SESSION(TABLE t{}, DESCRIPTOR(ts), INTERVAL '5' SECOND))"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Sessions of all rows together: as Flink 2.3 gives them.
        (f"SELECT window_start, window_end, COUNT(*) FROM {SESSION.format('')} GROUP BY window_start, window_end",
         [(0, 11, 4), (12, 17, 1), (20, 25, 1)]),
        (f"SELECT window_start, window_end, COUNT(*), k FROM {SESSION.format('')} GROUP BY k, window_start, window_end",
         [(0, 11, 2, "a"), (0, 11, 2, "b"), (12, 17, 1, "a"), (20, 25, 1, "b")]),
        (f"SELECT window_start, window_end, SUM(v) FROM {SESSION.format(' PARTITION BY k')} GROUP BY window_start, window_end, MOD(v, 2)",
         [(0, 10, 4), (1, 11, 6), (12, 17, 5), (20, 25, 6)]),
        (f"SELECT window_start, window_end, SUM(v) FROM {SESSION.format(' PARTITION BY k')} GROUP BY k, window_start, window_end",
         [(0, 10, 4), (1, 11, 6), (12, 17, 5), (20, 25, 6)]),
        (f"SELECT window_start, window_end, SUM(v) FROM {SESSION.format('')} "
         "GROUP BY GROUPING SETS ((k, window_start, window_end), (window_start, window_end))",
         [(0, 11, 10), (0, 11, 4), (0, 11, 6), (12, 17, 5), (12, 17, 5), (20, 25, 6), (20, 25, 6)]),
        ("SELECT SESSION_START(ts, INTERVAL '5' SECOND), SESSION_END(ts, INTERVAL '5' SECOND), COUNT(*) FROM t "
         "GROUP BY SESSION(ts, INTERVAL '5' SECOND)", [(0, 11, 4), (12, 17, 1), (20, 25, 1)]),
    ],
)  # fmt: skip
def test_sessions_of_other_keys_than_the_groups(text: str, expected: list[Any]) -> None:
    begin = datetime(2024, 1, 1)
    moments = [tuple(begin + timedelta(seconds=second) for second in row[:2]) + tuple(row[2:]) for row in expected]
    assert rows(text) == sorted(moments, key=repr)


def test_the_time_of_a_session_is_a_key() -> None:
    text = (
        f"SELECT window_time, MOD(v, 2), COUNT(*) FROM {SESSION.format('')} "
        "GROUP BY MOD(v, 2), window_start, window_end, window_time"
    )
    end = datetime(2024, 1, 1, 0, 0, 10, 999_000)
    assert rows(text)[:2] == [(end, 0, 2), (end, 1, 2)]
