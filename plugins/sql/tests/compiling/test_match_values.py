"""MATCH_RECOGNIZE with values on which Python and SQL differ: times of several types, long decimals, large numbers, NaN."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError

COLUMNS = "ts TIMESTAMP(3), z TIMESTAMP_LTZ(3), x BIGINT, d DECIMAL(38, 2), dt DATE, s STRING"


def matches(place: Path, define: str, *, measures: str = "A.x AS a, B.x AS b", size: int = 100, **values: Any) -> Any:
    """Return the matches of "A B" over five rows, a second apart. ``values``: columns by the number of the row."""
    lines = []
    for number in range(5):
        row = {
            "ts": f"2024-01-01 00:00:0{number}",
            "z": f"2024-01-01 00:00:0{number}Z",
            "x": number,
            "dt": "2024-01-01",
        }
        row |= {name: value(number) for name, value in values.items()}
        lines.append(json.dumps(row) + "\n")
    (place / "rows.ndjson").write_text("".join(lines), encoding="utf-8")
    text = (
        f"CREATE TABLE t ({COLUMNS}, WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'path' = '{place}/rows.ndjson', "
        f"'format' = 'json'); SELECT * FROM (SELECT *, CAST(s AS DOUBLE) AS k FROM t) MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts "
        f"MEASURES {measures} ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE {define})"
    )
    return [row[1:] for row in hr.sql(text).collect(max_batch_records=size).rows()]


@pytest.mark.parametrize(
    ("define", "wanted"),
    [
        ("A AS A.dt <= A.ts, B AS B.ts > A.dt", [(0, 1), (2, 3)]),
        ("A AS A.ts < A.dt + INTERVAL '3' SECOND, B AS B.ts >= A.dt + INTERVAL '2' SECOND", [(1, 2)]),
        ("A AS A.ts BETWEEN A.dt AND A.dt, B AS B.z >= A.ts", [(0, 1)]),
        ("A AS A.dt = '2024-01-01', B AS B.x > 0", [(0, 1), (2, 3)]),
        ("A AS A.x < 1e0, B AS B.x > A.x", [(0, 1)]),
    ],
)
def test_values_of_several_types(tmp_path: Path, define: str, wanted: list[Any]) -> None:
    assert matches(tmp_path, define) == wanted


def test_types_that_cannot_be_compared_are_told(tmp_path: Path) -> None:
    with pytest.raises(ExpressionError, match="cannot compare int64 with string"):
        matches(tmp_path, "A AS A.x > '0', B AS TRUE")


def test_long_decimals_are_not_rounded(tmp_path: Path) -> None:
    """Python calculates with 28 digits unless it is told otherwise."""
    long = "1234567890123456789012345678901.2"
    made = matches(
        tmp_path, "A AS A.x >= 0, B AS B.d + 0 > A.d + 0", measures="B.d - A.d AS a, A.d + B.d AS b, SUM(B.d) AS c",
        d=lambda number: f"{long}{number}",
    )  # fmt: skip
    assert made == [
        (Decimal("0.01"), Decimal("2469135780246913578024691357802.41"), Decimal(f"{long}1")),
        (Decimal("0.01"), Decimal("2469135780246913578024691357802.45"), Decimal(f"{long}3")),
    ]


def test_decimals_with_too_many_digits_are_null(tmp_path: Path) -> None:
    made = matches(tmp_path, "A AS TRUE, B AS TRUE", measures="A.d + B.d AS a, B.d - A.d AS b", d=lambda _: "9" * 36)
    assert made == [(None, Decimal("0.00"))] * 2


def test_numbers_that_are_too_large_wrap_around(tmp_path: Path) -> None:
    """As they do in SUM and + elsewhere; the job does not fail."""
    made = matches(tmp_path, "A AS TRUE, B AS TRUE", measures="A.x + B.x AS a", x=lambda _: 2**63 - 1)
    assert made == [(-2,), (-2,)]


def test_more_conditions_than_a_number_has_bits(tmp_path: Path) -> None:
    conditions = " AND ".join(f"A.x <> {number}" for number in range(4, 100))
    assert matches(tmp_path, f"A AS {conditions}, B AS B.x <> 1") == [(1, 2), (3, 4)]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_nan_is_a_key(tmp_path: Path, size: int) -> None:
    made = matches(tmp_path, "A AS TRUE, B AS TRUE", size=size, s=lambda number: "NaN" if number % 3 == 0 else "1.5")
    assert sorted(made) == [(0, 3), (1, 2)]
