"""Constants: an expression without columns is one, wherever a constant is wanted."""

# ruff: noqa: S608, E501  # texts are put together from constants; one case, one line

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError

BEGIN = datetime(2024, 1, 1)


@pytest.fixture(autouse=True)
def tables(tmp_path: Path) -> None:
    """Table ``t`` (k, v, d, ts)."""
    seconds = (0, 1, 5, 6, 12, 20)
    times = [str(BEGIN + timedelta(seconds=second)) for second in seconds]
    values = {"k": list("ababab"), "v": [1, 2, 3, 4, 5, 6], "d": [1.25, 2.25, 3.25, 4.25, 5.25, 6.25], "ts": times}
    pl.DataFrame(values).write_ndjson(tmp_path / "t.ndjson")
    hr.sql(
        "CREATE TABLE t (k STRING, v INT, d DECIMAL(5, 2), ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = "
        f"'filesystem', 'path' = '{tmp_path / 't.ndjson'}', 'format' = 'json')"
    )


def rows(text: str) -> list[tuple[Any, ...]]:
    return sorted(hr.sql(text).collect().rows(), key=repr)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("LAG(v, 1 + 1)", [None, None, None, None, 1, 2]),
        ("LAG(v, 2, 0 - 1)", [-1, -1, -1, -1, 1, 2]),
        ("LAG(v, CAST(2 AS INT), -1)", [-1, -1, -1, -1, 1, 2]),
        ("LAG(v, 0)", [1, 2, 3, 4, 5, 6]),
        ("LAG(k, 1, 'x' || 'y')", ["xy", "xy", "a", "b", "a", "b"]),
        ("LAG(v, 1, CAST(NULL AS INT))", [None, None, 1, 2, 3, 4]),
        ("LAG(ts, 1, TIMESTAMP '2000-01-01 00:00:00')", [datetime(2000, 1, 1)] * 2 + [BEGIN + timedelta(seconds=n) for n in (0, 1, 5, 6)]),
        ("LAG(d, 2, CAST(0 AS DECIMAL(12, 2)))", [*[Decimal("0.00")] * 4, Decimal("1.25"), Decimal("2.25")]),
        ("LAG(d, 2, 0)", [*[Decimal("0.00")] * 4, Decimal("1.25"), Decimal("2.25")]),
        ("LAG(CAST(d AS DOUBLE), 2, 0)", [0.0, 0.0, 0.0, 0.0, 1.25, 2.25]),
    ],
)  # fmt: skip
def test_distance_and_default_of_lag(call: str, expected: list[Any]) -> None:
    made = hr.sql(f"SELECT v, {call} OVER (PARTITION BY k ORDER BY ts) AS x FROM t").collect()
    assert made.sort("v")["x"].to_list() == expected


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("ROWS BETWEEN 1 + 1 PRECEDING AND CURRENT ROW", [1, 2, 4, 6, 9, 12]),
        ("RANGE BETWEEN INTERVAL '5' SECOND * 2 PRECEDING AND CURRENT ROW", [1, 2, 4, 6, 8, 6]),
        ("RANGE BETWEEN INTERVAL '1' SECOND + INTERVAL '4' SECOND PRECEDING AND CURRENT ROW", [1, 2, 4, 6, 5, 6]),
    ],
)
def test_frames(frame: str, expected: list[int]) -> None:
    made = hr.sql(f"SELECT v, SUM(v) OVER (PARTITION BY k ORDER BY ts {frame}) AS s FROM t").collect()
    assert made.sort("v")["s"].to_list() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT v FROM t ORDER BY v LIMIT 1 + 1 OFFSET 2 - 1", [(2,), (3,)]),
        ("SELECT v FROM t ORDER BY v LIMIT CAST('2' AS INT)", [(1,), (2,)]),
        ("SELECT v FROM (SELECT v, ROW_NUMBER() OVER (ORDER BY v DESC) AS rn FROM t) WHERE rn <= 1 + 1", [(5,), (6,)]),
        ("SELECT v FROM (SELECT v, ROW_NUMBER() OVER (ORDER BY v DESC) AS rn FROM t) WHERE 2 * 2 > rn AND rn > 1", [(4,), (5,)]),
        ("SELECT v FROM (SELECT v, ROW_NUMBER() OVER (ORDER BY v DESC) AS rn FROM t) WHERE rn < 2.5", [(5,), (6,)]),
        ("SELECT v FROM t WHERE k SIMILAR TO 'a' || '%' AND v < 4", [(1,), (3,)]),
        ("SELECT REGEXP_EXTRACT('ab12', '([a-z]+)' || '([0-9]+)', 1 + 1) FROM t WHERE v = 1", [("12",)]),
        ("SELECT REGEXP_EXTRACT('äb12', '(\\p{L}+)([0-9]+)', 1) FROM t WHERE v = 1", [("äb",)]),
        ("SELECT REGEXP_EXTRACT('äb12', '(\\p{L}+)([0-9]+)', 3) FROM t WHERE v = 1", [(None,)]),
        ("SELECT REGEXP_EXTRACT('äb12', '(?<=b)(1)(2)', 2) FROM t WHERE v = 1", [("2",)]),
        ("SELECT JSON_VALUE('{\"a\": 5}', '$.' || 'a') FROM t WHERE v = 1", [("5",)]),
        ("SELECT JSON_QUERY('{\"a\": [5]}', 'lax $.' || 'a') FROM t WHERE v = 1", [("[5]",)]),
        ("SELECT TRUNCATE(d, 2 - 1) FROM t WHERE v = 1", [(Decimal("1.2"),)]),
        ("SELECT SIGN(0.01), SIGN(-0.25), SIGN(1.25) FROM t WHERE v = 1", [(Decimal(1), Decimal(-1), Decimal(1))]),
        ("SELECT TIMESTAMPADD(SECOND, 2 * 3, ts) FROM t WHERE v = 1", [(BEGIN + timedelta(seconds=6),)]),
        ("SELECT ts + INTERVAL '1' SECOND * 2 FROM t WHERE v = 1", [(BEGIN + timedelta(seconds=2),)]),
        ("SELECT ts - 2 * INTERVAL '1' MONTH FROM t WHERE v = 1", [(datetime(2023, 11, 1),)]),
        ("SELECT a.v, b.v FROM t AS a JOIN t AS b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 5 * INTERVAL '1' SECOND AND a.v <> b.v",
         [(1, 3), (2, 4)]),
        ("SELECT LISTAGG(k, '-' || '+') OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t WHERE v < 3", [("a",), ("a-+b",)]),
        ("SELECT LISTAGG(k, '-' || '+') FROM t WHERE v < 3", [("a-+b",)]),
    ],
)  # fmt: skip
def test_other_places(text: str, expected: list[Any]) -> None:
    assert rows(text) == expected


@pytest.mark.parametrize(
    ("window", "starts"),
    [
        ("TUMBLE(TABLE t, DESCRIPTOR(ts), 2 * INTERVAL '5' SECOND)", {0: 4, 10: 1, 20: 1}),
        ("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '3' SECOND)", {-7: 2, 3: 3, 13: 1}),
        ("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '-1' SECOND)", {-1: 4, 9: 1, 19: 1}),
        ("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, - INTERVAL '1' SECOND)", {-1: 4, 9: 1, 19: 1}),
        ("TUMBLE(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' SECOND, `OFFSET` => INTERVAL '-1' SECOND)", {-1: 4, 9: 1, 19: 1}),
        # As Flink 2.3 gives them.
        ("HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND, INTERVAL '-2' SECOND)",
         {-7: 2, -2: 4, 3: 3, 8: 1, 13: 1, 18: 1}),
        ("HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND, INTERVAL '7' SECOND)",
         {-8: 2, -3: 4, 2: 2, 7: 1, 12: 2, 17: 1}),
        ("CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '10' SECOND, INTERVAL '-2' SECOND)", {-2: 4, 8: 1, 18: 1}),
    ],
)  # fmt: skip
def test_lengths_and_offsets_of_windows(window: str, starts: dict[int, int]) -> None:
    text = f"SELECT window_start, COUNT(*) FROM TABLE({window}) GROUP BY window_start, window_end"
    expected = sorted(((BEGIN + timedelta(seconds=second), count) for second, count in starts.items()), key=repr)
    assert rows(text) == expected
    # The rows of each window, one by one.
    made = rows(f"SELECT window_start, v FROM TABLE({window})")
    assert sorted((start, sum(1 for other, _ in made if other == start)) for start, _ in set(expected)) == sorted(
        expected
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT LAG(v, v) OVER (ORDER BY ts) FROM t", "the distance of LAG is a whole number"),
        ("SELECT LAG(v, -1) OVER (ORDER BY ts) FROM t", "the distance of LAG is a whole number from 0 on, not -1"),
        ("SELECT LAG(v, 1, k) OVER (ORDER BY ts) FROM t", "the default of LAG must be a constant"),
        ("SELECT LAG(v, 1, 'x') OVER (ORDER BY ts) FROM t", "the default value of LAG has another type"),
        ("SELECT LAG(v, 1, 1 / 0) OVER (ORDER BY ts) FROM t", "division by zero"),
        ("SELECT v FROM t ORDER BY v LIMIT v", "LIMIT is a whole number"),
        ("SELECT v FROM t ORDER BY v LIMIT 1.5", "LIMIT is a whole number from 0 on, not 1.5"),
        ("SELECT v FROM t ORDER BY v LIMIT NULL", "LIMIT is a whole number"),
        ("SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MONTH)) GROUP BY window_start, window_end",
         "months have no fixed length"),
        ("SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '5' SECOND)) GROUP BY window_start, "
         "window_end",
         "the offset must be less than the length of the windows"),
        ("SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '-5' SECOND)) GROUP BY window_start, window_end",
         "the length of a window must be greater than 0"),
        ("SELECT SUM(v) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '1' MONTH PRECEDING AND CURRENT ROW) FROM t", "months have no fixed "
            "length"),
        ("SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES A.v AS v PATTERN (A B) WITHIN INTERVAL '1' MONTH DEFINE B AS B.v > 1)",
         "months have no fixed length"),
    ],
)  # fmt: skip
def test_what_is_no_constant_is_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        hr.sql(text)


def test_delays_of_watermarks(tmp_path: Path) -> None:
    options = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path / 't.ndjson'}', 'format' = 'json')"
    plans = []
    for number, delay in enumerate(
        ("ts - INTERVAL '6' SECOND", "ts - 2 * INTERVAL '3' SECOND", "withOffset(ts, 2 * 3000)")
    ):
        hr.sql(f"CREATE TABLE w{number} (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS {delay}) {options}")
        plan = str(hr.sql(f"EXPLAIN SELECT v FROM w{number}").collect()["result"][0])
        plans.append(next(line.replace(f"w{number}", "w") for line in plan.splitlines() if "○  watermark" in line))
    assert len(set(plans)) == 1
    assert "delay 6 s" in plans[0]
