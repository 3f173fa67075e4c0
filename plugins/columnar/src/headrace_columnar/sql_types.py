"""Types in SQL expressions: which ones can be combined, and implicit conversions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
from headrace.flow.schema import type_name
from headrace.foundation.errors import nearest
from headrace_columnar.rowwise import by_series


class NotConstant:
    """The type of NOT_CONSTANT: marks an operand whose value is not known before the job runs."""

    def __repr__(self) -> str:
        return "NOT_CONSTANT"


NOT_CONSTANT: Final = NotConstant()

TIMESTAMP: Final = pl.Datetime("us", "UTC")
TIMESTAMP_NTZ: Final = pl.Datetime("us")
#: Decimal digits that hold every value of an integer type.
_INTEGER_DIGITS: Final = {
    "Int8": 3,
    "UInt8": 3,
    "Int16": 5,
    "UInt16": 5,
    "Int32": 10,
    "UInt32": 10,
    "Int64": 19,
    "UInt64": 20,
}


@dataclass(frozen=True, slots=True)
class Typed:
    """A part of an expression: how to compute it, its type, and its value when that is known already.

    ``node`` is the syntax node it came from, for error messages.
    """

    expression: pl.Expr
    data_type: pl.DataType
    node: Any = None
    constant: Any = NOT_CONSTANT

    @property
    def is_constant(self) -> bool:
        return self.constant is not NOT_CONSTANT

    @property
    def is_null(self) -> bool:
        return isinstance(self.data_type, pl.Null)


@dataclass(frozen=True, slots=True)
class MonthInterval(pl.DataType):
    """The type of ``INTERVAL … MONTH`` and ``… YEAR``: no fixed length, so it can only be added to a date or time."""

    def __str__(self) -> str:
        return "interval of months"


def shown(data_type: pl.DataType) -> str:
    """Return a type as error messages show it."""
    if isinstance(data_type, MonthInterval):
        return str(data_type)
    return type_name(data_type)


def is_integer(data_type: pl.DataType) -> bool:
    return data_type.is_integer()


def is_number(data_type: pl.DataType) -> bool:
    return data_type.is_numeric()


def is_decimal(data_type: pl.DataType) -> bool:
    return isinstance(data_type, pl.Decimal)


def is_text(data_type: pl.DataType) -> bool:
    return isinstance(data_type, pl.String | pl.Categorical | pl.Enum)


def entry_types(kind: pl.DataType) -> tuple[pl.DataType, pl.DataType] | None:
    """Return the types of a map's keys and values; None for a type that is not a map."""
    inner = kind.inner if isinstance(kind, pl.List) else None
    if not isinstance(inner, pl.Struct) or [field.name for field in inner.fields] != ["key", "value"]:
        return None
    key, value = (field.dtype if isinstance(field.dtype, pl.DataType) else field.dtype() for field in inner.fields)
    return key, value


def is_scalar(data_type: pl.DataType) -> bool:
    return not data_type.is_nested() and not isinstance(data_type, pl.Object | MonthInterval)


def decimal_digits(data_type: pl.DataType) -> tuple[int, int]:
    """Return (digits before the point, digits behind it) that hold every value of an integer or decimal type."""
    if isinstance(data_type, pl.Decimal):
        return data_type.precision - data_type.scale, data_type.scale
    return _INTEGER_DIGITS.get(type(data_type).__name__, 38), 0


def integer_type(left: pl.DataType, right: pl.DataType) -> pl.DataType:
    """Return the type in which two integers are compared and computed: int64, wider only for unsigned 64 bits."""
    wide = (pl.UInt64, pl.Int128, pl.UInt128)
    return pl.Int128() if isinstance(left, wide) or isinstance(right, wide) else pl.Int64()


def common_type(left: pl.DataType, right: pl.DataType) -> pl.DataType | None:
    """Return the type that holds values of both (for CASE, COALESCE, IN, =, …), or None when they do not go together.

    Strings never mix with numbers or times: use a CAST.
    """
    if left == right:
        return left
    if isinstance(left, pl.Null):
        return right
    if isinstance(right, pl.Null):
        return left
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if is_text(left) and is_text(right):
        return pl.String()
    if isinstance(left, pl.Date | pl.Datetime) and isinstance(right, pl.Date | pl.Datetime):
        zones = [kind.time_zone for kind in (left, right) if isinstance(kind, pl.Datetime)]
        return pl.Datetime("us", next((zone for zone in zones if zone is not None), None))
    if isinstance(left, pl.Duration) and isinstance(right, pl.Duration):
        return pl.Duration("us")
    if isinstance(left, pl.List | pl.Array) and isinstance(right, pl.List | pl.Array):
        inner = common_type(_instance(left.inner), _instance(right.inner))
        return pl.List(inner) if inner is not None else None
    if isinstance(left, pl.Struct) and isinstance(right, pl.Struct):
        return _common_struct(left, right)
    return None


def _common_number(left: pl.DataType, right: pl.DataType) -> pl.DataType:
    if left.is_float() or right.is_float():
        # A decimal has more digits than a float32; whole numbers are taken as float32, as in Flink and in Spark.
        narrow = all(isinstance(kind, pl.Float32) or is_integer(kind) for kind in (left, right))
        return pl.Float32() if narrow else pl.Float64()
    if is_decimal(left) or is_decimal(right):
        (left_whole, left_scale), (right_whole, right_scale) = decimal_digits(left), decimal_digits(right)
        scale = max(left_scale, right_scale)
        return pl.Decimal(min(38, max(left_whole, right_whole) + scale), scale)
    return integer_type(left, right)


def _common_struct(left: pl.Struct, right: pl.Struct) -> pl.DataType | None:
    if [field.name for field in left.fields] != [field.name for field in right.fields]:
        return None
    fields: dict[str, pl.DataType] = {}
    for mine, other in zip(left.fields, right.fields, strict=True):
        inner = common_type(_instance(mine.dtype), _instance(other.dtype))
        if inner is None:
            return None
        fields[mine.name] = inner
    return pl.Struct(fields)


def _instance(data_type: Any) -> pl.DataType:
    made: pl.DataType = data_type() if isinstance(data_type, type) else data_type
    return made


def inner_type(data_type: pl.DataType) -> pl.DataType:
    """Return the type of the elements of an array."""
    assert isinstance(data_type, pl.List | pl.Array)
    return _instance(data_type.inner)


_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_TICKS = {"ms": 86_400_000, "us": 86_400_000_000}


def in_calendar(expression: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Return a date or timestamp with NULL outside of the years 1 to 9999.

    Beyond, polars panics in many functions (its calendar ends at the year 262142) and Python has no such dates.
    """
    if isinstance(kind, pl.Date) or (isinstance(kind, pl.Datetime) and kind.time_unit in _TICKS):
        return by_series([expression], _in_calendar, kind)
    return expression


def _in_calendar(times: pl.Series) -> pl.Series:
    kind = times.dtype
    first, last = _FIRST_DAY, _LAST_DAY
    if isinstance(kind, pl.Datetime):
        ticks = _TICKS[kind.time_unit]
        first, last = _FIRST_DAY * ticks, (_LAST_DAY + 1) * ticks - 1
    physical = times.to_physical()
    least, most = physical.min(), physical.max()
    if least is None or (least >= first and most <= last):  # type: ignore[operator]
        return times
    return times.zip_with(physical.is_between(first, last), pl.Series([None], dtype=kind).new_from_index(0, len(times)))


def widen(typed: Typed, target: pl.DataType) -> pl.Expr:
    """Return the expression with ``target`` (a result of common_type) as its type. Never fails for any value.

    A number that does not fit the wider decimal becomes NULL, which can happen only when 38 digits are not enough.
    """
    source = typed.data_type
    if source == target:
        return typed.expression
    if isinstance(source, pl.Null):
        return pl.lit(None, dtype=target)
    if typed.is_constant and not isinstance(source, pl.Decimal) and not isinstance(target, pl.Decimal | pl.Datetime):
        return pl.lit(typed.constant, dtype=target)
    if isinstance(source, pl.Datetime) and isinstance(target, pl.Datetime):
        return _widen_datetime(typed.expression, source, target)
    if isinstance(source, pl.Date) and isinstance(target, pl.Datetime) and target.time_zone:
        naive = in_calendar(typed.expression, source).cast(pl.Datetime("us"))
        return _widen_datetime(naive, pl.Datetime("us"), target)
    if isinstance(source, pl.Date):
        return in_calendar(typed.expression, source).cast(target, strict=False)
    return typed.expression.cast(target, strict=False)


def _widen_datetime(expression: pl.Expr, source: pl.Datetime, target: pl.Datetime) -> pl.Expr:
    if source.time_unit != target.time_unit:
        expression = expression.cast(pl.Datetime(target.time_unit, source.time_zone))
    if target.time_zone is None or source.time_zone == target.time_zone:
        return expression
    expression = in_calendar(expression, pl.Datetime(target.time_unit, source.time_zone))
    if source.time_zone is None:
        # A time without zone is read as UTC, as everywhere in headrace.
        expression = expression.dt.replace_time_zone("UTC")
    return expression.dt.convert_time_zone(target.time_zone)


def column_hint(name: str, names: Iterable[str]) -> str:
    """Return the hint for an unknown column: one that differs only in case, the nearest one, or all."""
    known = list(names)
    for candidate in known:
        if candidate.casefold() == name.casefold():
            return f"names of columns are case-sensitive: did you mean {candidate!r}?"
    found = nearest(name, known)
    if found:
        return f"did you mean {found!r}?"
    return "columns: " + ", ".join(known[:20]) + (", …" if len(known) > 20 else "") if known else "there are no columns"
