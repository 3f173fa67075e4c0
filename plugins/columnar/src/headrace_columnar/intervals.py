"""INTERVAL literals, and arithmetic of dates, times and intervals."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace_columnar.rowwise import by_series, float_quotient
from headrace_columnar.sql_types import MonthInterval, Typed, in_calendar, is_integer, shown, widen
from sqlglot import exp

if TYPE_CHECKING:
    from headrace_columnar.compiler import Compiler

_MICROSECONDS = {
    "MICROSECOND": 1, "MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000, "WEEK": 604_800_000_000,
}  # fmt: skip
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SHORT = {
    "MIN": "MINUTE", "MINS": "MINUTE", "SEC": "SECOND", "SECS": "SECOND", "MS": "MILLISECOND", "US": "MICROSECOND",
    "HR": "HOUR", "HRS": "HOUR", "MON": "MONTH", "MONS": "MONTH", "Y": "YEAR", "D": "DAY", "H": "HOUR",
}  # fmt: skip
_DAY_MICROSECONDS = _MICROSECONDS["DAY"]
_CALENDAR_MONTHS = 120_000
_CALENDAR_MICROSECONDS = 3_660_000 * _MICROSECONDS["DAY"]
_SPAN_ORDER = ("DAY", "HOUR", "MINUTE", "SECOND")


def unit_name(text: str) -> str | None:
    """Return the unit a word means (``days`` → ``DAY``), or None."""
    word = text.strip().upper()
    word = _SHORT.get(word, word)
    if word in _MICROSECONDS or word in _MONTHS:
        return word
    singular = word.removesuffix("S")
    return singular if singular in _MICROSECONDS or singular in _MONTHS else None


def interval(compiler: Compiler, node: exp.Interval) -> Typed:
    """Compile INTERVAL '5' MINUTE, INTERVAL '1-2' YEAR TO MONTH, INTERVAL '1 02:03' DAY TO MINUTE, …"""
    value, unit = node.this, node.args.get("unit")
    if not isinstance(value, exp.Literal) or unit is None:
        raise compiler.error(node, "an INTERVAL needs a constant and a unit", hint="write INTERVAL '5' MINUTE")
    text = str(value.this).strip()
    if isinstance(unit, exp.IntervalSpan):
        return _span(compiler, node, text, unit)
    name = unit_name(unit.name)
    if name is None:
        raise compiler.error(
            node, f"unknown unit {unit.name!r}", hint=f"units: {', '.join([*_MICROSECONDS, *_MONTHS])}"
        )
    if not re.fullmatch(r"[+-]?\d+(\.\d+)?", text):
        raise compiler.error(value, f"{text!r} is not a number of {name.lower()}s")
    if name in _MONTHS:
        if "." in text:
            raise compiler.error(value, f"an interval of {name.lower()}s must be a whole number")
        return months(node, int(text) * _MONTHS[name])
    whole, _, fraction = text.lstrip("+-").partition(".")
    micros = int(whole) * _MICROSECONDS[name] + int(fraction or 0) * _MICROSECONDS[name] // 10 ** len(fraction)
    return duration(compiler, node, -micros if text.startswith("-") else micros)


def months(node: Any, count: int) -> Typed:
    """Return an interval of months; its value is only the constant."""
    return Typed(pl.lit(None), MonthInterval(), node, count)


def duration(compiler: Compiler, node: Any, microseconds: int) -> Typed:
    try:
        value = datetime.timedelta(microseconds=microseconds)
    except OverflowError:
        raise compiler.error(node, "this interval is too long") from None
    return Typed(pl.lit(value, dtype=pl.Duration("us")), pl.Duration("us"), node, value)


def _span(compiler: Compiler, node: exp.Interval, text: str, unit: exp.IntervalSpan) -> Typed:
    first, last = unit_name(unit.this.name), unit_name(unit.expression.name)
    sign = -1 if text.startswith("-") else 1
    bare = text.lstrip("+-")
    if (first, last) == ("YEAR", "MONTH"):
        found = re.fullmatch(r"(\d+)-(\d+)", bare)
        if found is None:
            raise compiler.error(node.this, f"{text!r} is not of the form 'years-months'")
        return months(node, sign * (int(found[1]) * 12 + int(found[2])))
    if first not in _SPAN_ORDER or last not in _SPAN_ORDER or _SPAN_ORDER.index(first) >= _SPAN_ORDER.index(last):
        raise compiler.error(node, f"there is no interval {unit.this.name} TO {unit.expression.name}")
    units = _SPAN_ORDER[_SPAN_ORDER.index(first) : _SPAN_ORDER.index(last) + 1]
    numbers = re.split(r"[ :]", bare)
    if len(numbers) != len(units) or not all(re.fullmatch(r"\d+(\.\d{1,6})?", number) for number in numbers):
        raise compiler.error(node.this, f"{text!r} does not give {', '.join(units).lower()}")
    micros = 0
    for number, name in zip(numbers, units, strict=True):
        whole, _, fraction = number.partition(".")
        micros += int(whole) * _MICROSECONDS[name] + int(fraction.ljust(6, "0")[:6] or 0 if fraction else 0)
    return duration(compiler, node, sign * micros)


def arithmetic(compiler: Compiler, node: Any, operation: str, left: Typed, right: Typed) -> Typed:
    """Compile + - * / where an operand is a date, a time or an interval."""
    a, b = left.data_type, right.data_type
    if (
        operation == "+"
        and isinstance(b, pl.Date | pl.Datetime | pl.Time)
        and not isinstance(a, pl.Date | pl.Datetime | pl.Time)
    ):
        return arithmetic(compiler, node, "+", right, left)
    if left.is_null or right.is_null:
        kind = b if left.is_null else a
        kind = pl.Duration("us") if isinstance(kind, MonthInterval) else kind
        return Typed(pl.lit(None, dtype=kind), kind, node, None)
    made: Typed | None = None
    if operation in "+-":
        if isinstance(b, MonthInterval):
            made = _add_months(node, left, right, -1 if operation == "-" else 1)
        elif isinstance(b, pl.Duration):
            made = _add_duration(node, left, right, operation)
        elif isinstance(a, pl.Date) and is_integer(b):
            made = _add_days(node, left, right, operation)
        elif operation == "-" and isinstance(a, pl.Date | pl.Datetime) and isinstance(b, pl.Date | pl.Datetime):
            made = _difference(node, left, right)
    elif isinstance(a, pl.Duration) or isinstance(b, pl.Duration):
        made = _scaled(node, operation, left, right)
    if made is None:
        hint = "a time is moved by an interval: ts + INTERVAL '5' MINUTE" if operation in "+-" else None
        raise compiler.error(node, f"there is no {shown(a)} {operation} {shown(b)}", hint=hint)
    return made


def _difference(node: Any, left: Typed, right: Typed) -> Typed:
    zoned = pl.Datetime("us", "UTC")
    return Typed((widen(left, zoned) - widen(right, zoned)).cast(pl.Duration("us")), pl.Duration("us"), node)


def _add_days(node: Any, left: Typed, right: Typed, operation: str) -> Typed:
    return Typed(
        add_days(left.expression, right.expression if operation == "+" else -widen(right, pl.Int64())), pl.Date(), node
    )


def add_days(date: pl.Expr, days: pl.Expr) -> pl.Expr:
    """Return the date so many days later; NULL outside of the range of dates."""
    moved = date.cast(pl.Int32).cast(pl.Int64) + days
    return in_calendar(moved.cast(pl.Int32, strict=False).cast(pl.Date), pl.Date())


def _add_months(node: Any, left: Typed, right: Typed, sign: int) -> Typed | None:
    count = sign * right.constant
    if isinstance(left.data_type, MonthInterval):
        return months(node, left.constant + count)
    if not isinstance(left.data_type, pl.Date | pl.Datetime):
        return None
    moment = in_calendar(left.expression, left.data_type)
    return Typed(add_months_to(moment, pl.lit(count), left.data_type), left.data_type, node)


def add_months_to(moment: pl.Expr, months: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Return the time so many months later, on the month's last day where the day is missing; NULL beyond the calendar.

    The time given must be inside of it. polars' offset_by would need time in proportion to the months.
    """
    return by_series([moment, months], _months_added, kind)


def _months_added(moments: pl.Series, months: pl.Series) -> pl.Series:
    kind = moments.dtype
    zone = kind.time_zone if isinstance(kind, pl.Datetime) else None
    frame = pl.DataFrame({"moment": moments, "months": months})
    if zone not in (None, "UTC"):
        frame = frame.with_columns(pl.col("moment").dt.replace_time_zone(None))
    moment, count = pl.col("moment"), pl.col("count")
    inside = pl.when(pl.col("months").is_between(-_CALENDAR_MONTHS, _CALENDAR_MONTHS)).then(pl.col("months"))
    number = moment.dt.year().cast(pl.Int64) * 12 + moment.dt.month().cast(pl.Int64) - 1 + inside
    frame = frame.with_columns(number.alias("count"))
    year = pl.when(count.is_between(12, _CALENDAR_MONTHS - 1)).then(count // 12)
    frame = frame.with_columns(pl.date(year, count % 12 + 1, 1).alias("first"))
    day = pl.min_horizontal(moment.dt.day(), pl.col("first").dt.month_end().dt.day()).cast(pl.Int32)
    moved = pl.col("first").to_physical() + day - 1
    if not isinstance(kind, pl.Datetime):
        return frame.select(moved.cast(pl.Date)).to_series()
    ticks = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}[kind.time_unit]
    made = (moved.cast(pl.Int64) * ticks + moment.to_physical() % ticks).cast(pl.Datetime(kind.time_unit))
    if zone is not None:
        made = made.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return frame.select(made).to_series()


def _add_duration(node: Any, left: Typed, right: Typed, operation: str) -> Typed | None:
    kind, added = left.data_type, right.expression
    if isinstance(kind, pl.Duration):
        micros = left.expression.cast(pl.Duration("us"))
        return Typed(micros + added if operation == "+" else micros - added, pl.Duration("us"), node)
    if isinstance(kind, pl.Date):
        whole_days = right.is_constant and right.constant % datetime.timedelta(days=1) == datetime.timedelta(0)
        if whole_days:
            days = right.constant // datetime.timedelta(days=1)
            return Typed(add_days(left.expression, pl.lit(days if operation == "+" else -days)), pl.Date(), node)
        kind = pl.Datetime("us", "UTC")
    if isinstance(kind, pl.Datetime):
        kind = pl.Datetime("us", kind.time_zone)
        return Typed(add_duration(widen(left, kind), added, kind, -1 if operation == "-" else 1), kind, node)
    if isinstance(kind, pl.Time):
        # A clock goes round: 23:30 + 1 hour is 00:30.
        nanos = left.expression.cast(pl.Int64)
        step = added.cast(pl.Duration("us")).dt.total_nanoseconds()
        moved = (nanos + step if operation == "+" else nanos - step) % (_DAY_MICROSECONDS * 1000)
        return Typed(moved.cast(pl.Time), pl.Time(), node)
    return None


def add_duration(moment: pl.Expr, added: pl.Expr, kind: pl.DataType, sign: int = 1) -> pl.Expr:
    """Return the time so much later (earlier, for sign -1); NULL outside of the years 1 to 9999."""
    # 64 bits would wrap around into the calendar again for durations of hundreds of thousands of years.
    step = pl.when(added.to_physical().is_between(-_CALENDAR_MICROSECONDS, _CALENDAR_MICROSECONDS)).then(added)
    start = in_calendar(moment, kind)
    return in_calendar(start + step if sign > 0 else start - step, kind)


def _scaled(node: Any, operation: str, left: Typed, right: Typed) -> Typed | None:
    if isinstance(right.data_type, pl.Duration):
        left, right = right, left
        if operation != "*":
            return None
    if operation not in "*/" or not right.data_type.is_numeric():
        return None
    micros = left.expression.cast(pl.Duration("us")).dt.total_microseconds()
    if operation == "*" and is_integer(right.data_type):
        # With uint64 the product has 128 bits: what no duration holds is NULL, as with fractions.
        product = (micros * right.expression).cast(pl.Int64, strict=False)
        return Typed(product.cast(pl.Duration("us")), pl.Duration("us"), node)
    factor = right.expression.cast(pl.Float64)
    exact = micros.cast(pl.Float64)
    scaled = (
        (exact * factor if operation == "*" else float_quotient(exact, factor)).round(0).cast(pl.Int64, strict=False)
    )
    return Typed(scaled.cast(pl.Duration("us")), pl.Duration("us"), node)
