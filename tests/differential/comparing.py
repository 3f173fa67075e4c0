"""Comparing rows as multisets.

Rows are compared by position, names do not count. The rules:

- NULL equals NULL and nothing else.
- Whole numbers and decimals are equal when their values are: 2, 2.0 and 2.00 are one value. A scale is not a value.
- Floating-point numbers are equal when they agree in 12 significant digits. NaN equals NaN, −0.0 equals 0.0. A float that is a
  whole number equals that number.
- Times are equal when the microsecond is. A time in a zone is compared in UTC.
- Lists and structs are compared by their elements.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

Row = tuple[Any, ...]


def row_of(values: Iterable[Any]) -> Row:
    """Return a row by its comparable values."""
    return tuple(value_of(value) for value in values)


def value_of(value: Any) -> Any:
    """Return what a value is compared by: equal values of the rules above are equal and hash alike."""
    if isinstance(value, bool) or value is None:
        return ("bool", value) if value is not None else None  # True is no 1
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return Decimal(f"{value:.12g}").normalize() + 0
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, Decimal):
        return value.normalize() + 0 if abs(value.adjusted()) < 28 else value
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return tuple((name, value_of(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(value_of(each) for each in value)
    return value


def difference(expected: Counter[Row], found: Counter[Row], *, names: tuple[str, str] = ("expected", "found")) -> str:
    """Return what two multisets of rows differ in, as a text to read; empty when they are equal."""
    missing, extra = expected - found, found - expected
    if not missing and not extra:
        return ""
    lines = [f"{sum(expected.values())} rows {names[0]}, {sum(found.values())} {names[1]}"]
    lines += [f"  only {names[0]}: {shown(row)}{_times(count)}" for row, count in _first(missing)]
    lines += [f"  only {names[1]}: {shown(row)}{_times(count)}" for row, count in _first(extra)]
    return "\n".join(lines)


def shown(row: Sequence[Any]) -> str:
    """Return a row to read."""
    return ", ".join(_shown(value) for value in row)


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "bool":
        return str(value[1]).upper()
    return f"{value:f}" if isinstance(value, Decimal) else repr(value) if isinstance(value, str | bytes) else str(value)


def _first(rows: Counter[Row]) -> list[tuple[Row, int]]:
    return sorted(rows.items(), key=lambda item: repr(item[0]))[:8]


def _times(count: int) -> str:
    return "" if count == 1 else f"  ×{count}"
