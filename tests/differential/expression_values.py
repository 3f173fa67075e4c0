"""Typed columns of hostile values for random expressions, and each value as a SQL literal."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import polars as pl

_TEXTS = [
    "", " ", "  ", "a", "A", "%", "_", "\\", "$1", "(", "[", "é", "ß", "\u212a", "İ", "ǅ", "🙂", "e\u0301", "\ufeff", "a\nb", "\x00",
    "\t", "'", "''", '"', "2024-02-30", "2024-05-06", "2024-05-06 07:08:09.5", "9999-12-31T23:59:59Z", "0001-01-01",
    "2024-02-29", "10000-01-01", "-0001-01-01", "23:59:60", "12:30", "7:8:9", "2024-05-06T07:08:09+02:00",
    "-5", "+5", " 7 ", "0", "-0", "00012", "1.5", "-1.55", ".5", "5.", "1e3", "1E-3", "1e400", "NaN", "inf", "-Infinity", "0x1F",
    "1_000", "9" * 18, "9" * 19, "9" * 38, "9" * 40, "0." + "9" * 37, "0.125", "0.12499999999", "２", "١",
    "true", "TRUE", "f", "yes", "0 ", "null", "NULL",
    '{"a":[1,{"b":null}],"c":"x"}', '{"a":', '[1,2]', '"s"', "$.a", "http://u@h:1/p?q=1&r=%20#f", "10.0.0.1", "::1", "10.0.0.0/8",
    "256.1.1.1", "%zz", "%41", "SGk=", "a,b,,c", "k1=v1;k2=v2", "x" * 300, "ab" * 40, "ff", "FF0", "hello big-WORLD", "aaaa",
    "yyyy-MM-dd", "DAY", "UTC", "Asia/Tokyo", "(?=a)", "(a+)+$", "\\d+", "[a-z]*", "a|b",
]  # fmt: skip
_INTEGERS = [0, 1, -1, 2, 3, -3, 7, 10, -10, 31, 63, 64, 65, 100, 127, 128, 255, -300, 1000, 10**6, 2**31 - 1, 2**31, -(2**31),
             10**12, -(10**15), 2**53, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1, 1_700_000_000]  # fmt: skip
_FLOATS = [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.1, 1.005, 2.675, 1e-300, 5e-324, 1e15, 1e16, 9007199254740993.0,
           9.223372036854775e18, 9.223372036854776e18, -9.223372036854776e18, 1e38, -1e300, math.inf, -math.inf, math.nan]  # fmt: skip
_DAYS = [dt.date(1, 1, 1), dt.date(1, 12, 31), dt.date(1582, 10, 10), dt.date(1899, 12, 31), dt.date(1900, 2, 28),
         dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2000, 2, 29), dt.date(2020, 12, 31), dt.date(2024, 2, 29),
         dt.date(2024, 3, 31), dt.date(2025, 12, 28), dt.date(9999, 1, 1), dt.date(9999, 12, 31)]  # fmt: skip
_TIMES = [dt.time(0), dt.time(0, 0, 0, 1), dt.time(7, 8, 9), dt.time(12, 30), dt.time(23, 59, 59, 999_999)]
_MOMENTS = [dt.datetime.combine(day, time) for day in _DAYS for time in (_TIMES[0], _TIMES[2], _TIMES[4])]
_DECIMALS = ["0", "0.00", "1", "-1", "0.5", "-0.5", "1.5", "2.5", "-2.5", "0.125", "1.005", "99999999.99", "-99999999.99", "0.01",
             "12345678.91", "0.000001"]  # fmt: skip
ZONED, NAIVE = pl.Datetime("us", "UTC"), pl.Datetime("us")
_MAP = pl.List(pl.Struct({"key": pl.String, "value": pl.Int64}))
_STRUCT = pl.Struct({"x": pl.Int64, "y": pl.String})


def _decimals(precision: int, scale: int) -> list[Decimal]:
    # As tuples: arithmetic would round to the 28 digits of Python's context.
    edge = Decimal((0, (9,) * precision, -scale))
    below = Decimal((0, (*(9,) * (precision - 1), 8), -scale))
    step = Decimal((0, (1,), -scale))
    small = [Decimal(text) for text in _DECIMALS]
    fitting = [each for each in small if abs(each) <= edge and -int(each.as_tuple().exponent) <= scale]
    half = [each for each in (Decimal("0.5"), Decimal("1.5"), Decimal("-2.5")) if scale >= 1 and abs(each) < edge]
    return [edge, edge.copy_negate(), below, step, -step, *fitting, *half]


#: The columns: name, type, and the values that its rows are drawn from. NULL comes in all of them.
COLUMNS: dict[str, tuple[pl.DataType, list[Any]]] = {
    "s": (pl.String(), _TEXTS),
    "t": (pl.String(), _TEXTS),
    "i": (pl.Int64(), _INTEGERS),
    "j": (pl.Int64(), [*_INTEGERS, *range(-4, 9)]),
    "small": (pl.Int8(), [0, 1, -1, 2, 5, -128, 127]),
    "medium": (pl.Int32(), [0, 1, -1, 3, 2**31 - 1, -(2**31)]),
    "unsigned": (pl.UInt64(), [0, 1, 2**63, 2**64 - 1]),
    "f": (pl.Float64(), _FLOATS),
    "g": (pl.Float64(), _FLOATS),
    "narrow": (pl.Float32(), [0.0, -0.0, 0.5, 1.5, -2.5, 16777216.0, math.inf, math.nan]),
    "d": (pl.Decimal(10, 2), _decimals(10, 2)),
    "wide": (pl.Decimal(38, 10), _decimals(38, 10)),
    "whole": (pl.Decimal(38, 0), _decimals(38, 0)),
    "fraction": (pl.Decimal(38, 37), _decimals(38, 37)),
    "b": (pl.Boolean(), [True, False]),
    "c": (pl.Boolean(), [True, False]),
    "raw": (pl.Binary(), [b"", b"abc", b"\xff\xfe", b"\x00", "é🙂".encode(), b"2024-05-06"]),
    "day": (pl.Date(), _DAYS),
    "at": (ZONED, [each.replace(tzinfo=dt.UTC) for each in _MOMENTS]),
    "local": (NAIVE, _MOMENTS),
    "clock": (pl.Time(), _TIMES),
    "span": (pl.Duration("us"), [dt.timedelta(0), dt.timedelta(days=-1, microseconds=1), dt.timedelta(days=40_000)]),
    "numbers": (pl.List(pl.Int64()), [[], [1], [1, None, 3], [2**63 - 1, -(2**63)], [3, 1, 2, 1], [None]]),
    "texts": (pl.List(pl.String()), [[], [""], ["a", None], ["b", "a", "b"], [None], ["é", "🙂"]]),
    "floats": (pl.List(pl.Float64()), [[], [1.5], [math.nan, 0.0, -0.0, None], [math.inf, -1.0]]),
    "nested": (pl.List(pl.List(pl.Int64())), [[], [[]], [[1, 2], None, [3]], [[None]]]),
    "m": (_MAP, [[], [{"key": "a", "value": 1}, {"key": "é", "value": None}], [{"key": None, "value": 2}],
                 [{"key": "a", "value": 1}, {"key": "a", "value": 2}]]),
    "r": (_STRUCT, [{"x": 1, "y": "a"}, {"x": None, "y": None}, {"x": -(2**63), "y": "🙂"}]),
}  # fmt: skip

SCHEMA: dict[str, pl.DataType] = {name: kind for name, (kind, _) in COLUMNS.items()}


def rows(chance: Any, count: int, columns: set[str] | None = None) -> pl.DataFrame:
    """Return random rows: each value one of its column's, or NULL."""
    made = []
    for name, (kind, values) in COLUMNS.items():
        if columns is None or name in columns:
            drawn = [None if chance.random() < 0.15 else chance.choice(values) for _ in range(count)]
            made.append(pl.Series(name, drawn, dtype=kind))
    return pl.DataFrame(made) if made else pl.DataFrame({"i": [0] * count})


_TYPE_TEXTS: dict[str, str] = {
    "String": "STRING", "Int64": "BIGINT", "Int8": "TINYINT", "Float64": "DOUBLE",
    "Boolean": "BOOLEAN", "Binary": "BINARY", "Date": "DATE", "Time": "TIME",
}  # fmt: skip


def type_text(kind: pl.DataType) -> str | None:
    """Return how CAST names a type; None for one that it cannot name."""
    if isinstance(kind, pl.Decimal):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if kind == ZONED:
        return "TIMESTAMP"
    if kind == NAIVE:
        return "timestamp_ntz"
    return _TYPE_TEXTS.get(type(kind).__name__)


def literal(value: Any, kind: pl.DataType) -> str | None:
    """Return the value as a constant of SQL with this very type; None if there is no way to write it."""
    named = type_text(kind)
    if named is None:
        return None
    if value is None:
        return f"CAST(NULL AS {named})"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(kind, pl.Int64):
        return str(value)
    if isinstance(kind, pl.Float64) and math.isfinite(value):
        text = repr(value)
        return text if "e" in text else text + "e0"
    return f"CAST('{value}' AS {named})"
