"""Values for checks: ordinary ones by number, and those at the limits of each type."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import polars as pl
from headrace.flow.schema import Schema

_EPOCH = dt.datetime(2024, 2, 29, 23, 59, 58, tzinfo=dt.UTC)

#: Every type of ``headrace.flow.schema``, as a user writes it.
ALL_TYPES: tuple[str, ...] = (
    "string", "boolean", "int8", "int16", "int32", "int64", "float32", "float64", "decimal(38, 18)", "decimal(12, 2)",
    "date", "time", "timestamp", "timestamp_ntz", "duration", "binary", "json", "array<int64>", "array<string>",
    "struct<a: int64, b: string>",
)  # fmt: skip
#: The types of JSON: a sink is checked with these, unless its author declares more.
BASIC_TYPES: tuple[str, ...] = ("string", "boolean", "int64", "float64")

_TEXTS = (
    "", " ", "plain", "null", "None", "grüße 漢字 🙂", "a\u0301\u0327", "\u202eright to left\u202c", "\ufeffmark",
    "quotes ' \" ` \\ % _", "x'); DROP TABLE t; --", "line\nbreak", "tab\tand\r\nreturn", '{"a": [1, 2}', "a,b;c|d",
    "control \x01 \x7f", "NUL \x00 inside",
)  # fmt: skip

_EDGES: Mapping[str, Sequence[Any]] = {
    "string": _TEXTS,
    "boolean": (True, False),
    "int8": (0, -1, -128, 127),
    "int16": (0, -1, -(2**15), 2**15 - 1),
    "int32": (0, -1, -(2**31), 2**31 - 1),
    "int64": (0, -1, -(2**63), 2**63 - 1, 2**53 + 1),
    "float32": (0.0, 1.5, -2.25, 2.0**100, 2.0**-100),
    "float64": (0.0, 0.1, -2.5, 1.7976931348623157e308, 5e-324, 1e22),
    "decimal(38, 18)": (Decimal("0"), Decimal("12345678901234567890.123456789012345678"), Decimal("-0.000000000000000001")),
    "decimal(12, 2)": (Decimal("0.00"), Decimal("-1.10"), Decimal("9999999999.99"), Decimal("0.01")),
    "date": (dt.date(2024, 2, 29), dt.date(1970, 1, 1), dt.date(1900, 1, 1), dt.date(9999, 12, 31)),
    "time": (dt.time(0, 0), dt.time(23, 59, 59, 999_999), dt.time(12, 30, 0, 1)),
    "timestamp": (
        dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, dt.UTC), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC), dt.datetime(2037, 12, 31, 1, 2, 3, tzinfo=dt.UTC),
    ),
    "timestamp_ntz": (
        dt.datetime(2024, 2, 29, 23, 59, 59, 999_999), dt.datetime(1970, 1, 1, 0, 0, 1), dt.datetime(9999, 12, 31, 1, 2),
    ),
    "duration": (dt.timedelta(0), dt.timedelta(microseconds=1), dt.timedelta(days=-2, hours=3), dt.timedelta(days=400)),
    "binary": (b"", b"\x00\xff\xfe", b"plain", bytes(range(256))),
    "json": ('{"a": 1, "b": [null, "x"]}', "[]", '"text"', "17", "{}"),
    "array<int64>": ([], [1], [1, None, -(2**63)], list(range(50))),
    "array<string>": ([], [""], ["a", None, "漢"]),
    "struct<a: int64, b: string>": ({"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": -1, "b": ""}),
}  # fmt: skip


def edge_values(type_name: str) -> Sequence[Any]:
    """Return the values at the limits of a type (one of ``ALL_TYPES``), without NULL."""
    return _EDGES[type_name]


_MAKERS: Mapping[type[pl.DataType], Callable[[int], Any]] = {
    pl.String: lambda number: f"text {number}",
    pl.Boolean: lambda number: number % 2 == 0,
    pl.Int32: lambda number: number % 2**31,
    pl.Int64: lambda number: number,
    pl.Float32: lambda number: number % 1000 + 0.5,
    pl.Float64: lambda number: number + 0.25,
    pl.Date: lambda number: (_EPOCH + dt.timedelta(days=number % 5000)).date(),
    pl.Time: lambda number: dt.time(number % 24, number % 60, number % 60, number % 1_000_000),
    pl.Duration: lambda number: dt.timedelta(milliseconds=number),
    pl.Binary: lambda number: b"\x00\xff" + str(number).encode(),
}


def sample(kind: pl.DataType, number: int) -> Any:
    """Return an ordinary value of a type, a different one for each number if the type has enough values."""
    if isinstance(kind, pl.List):
        return [sample(kind.inner, number + i) for i in range(number % 3)]  # type: ignore[arg-type]
    if isinstance(kind, pl.Struct):
        return {field.name: sample(field.dtype, number) for field in kind.fields}  # type: ignore[arg-type]
    if isinstance(kind, pl.Decimal):
        digits = min(kind.precision or 38, 15)
        return Decimal(number % 10**digits).scaleb(-kind.scale)
    if isinstance(kind, pl.Datetime):
        moment = _EPOCH + dt.timedelta(seconds=number, microseconds=number)
        return moment if kind.time_zone else moment.replace(tzinfo=None)
    if isinstance(kind, pl.Int8):
        return number % 128
    if isinstance(kind, pl.Int16):
        return number % 2**15
    return _MAKERS[type(kind)](number)


def sample_rows(schema: Schema, first: int, count: int) -> list[dict[str, Any]]:
    """Return rows of ordinary values, without NULLs."""
    return [{name: sample(kind, n) for name, kind in schema.items()} for n in range(first, first + count)]


def mixed_rows(schema: Schema, first: int, count: int) -> list[dict[str, Any]]:
    """Return rows with NULLs: each column is NULL at regular intervals, which differ between columns."""
    rows = sample_rows(schema, first, count)
    for column, name in enumerate(schema):
        for at, row in enumerate(rows):
            if (first + at) % (column + 3) == 1:
                row[name] = None
    return rows


#: Most values are of these: the checks below need not look.
_HASHABLE = frozenset({str, int, bool, bytes, Decimal, dt.datetime, dt.date, dt.time, dt.timedelta})


def canonical(value: Any) -> Any:
    """Return something hashable that is equal for equal values, with NaN equal to itself."""
    if type(value) in _HASHABLE:
        return value
    if isinstance(value, float) and value != value:
        return "\0NaN"
    if isinstance(value, Mapping):
        return tuple(sorted((str(k), canonical(v)) for k, v in value.items() if v is not None))
    if isinstance(value, list | tuple):
        return tuple(canonical(v) for v in value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value


def counted(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] | None = None) -> Counter[Any]:
    """Count equal rows. If ``columns`` is given, only these are compared; a missing value is the same as NULL."""
    wanted = None if columns is None else sorted(columns)
    counts: Counter[Any] = Counter()
    for row in rows:
        names = sorted(row) if wanted is None else wanted
        counts[tuple((name, canonical(row[name])) for name in names if row.get(name) is not None)] += 1
    return counts
