"""CAST and TRY_CAST: texts, numbers and times into one another. No cast raises for any value of a row."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from headrace_columnar import decimals
from headrace_columnar.rowwise import by_series, float_quotient
from headrace_columnar.sql_types import Typed, in_calendar, inner_type, is_decimal, is_number, is_text, shown, widen

if TYPE_CHECKING:
    from headrace_columnar.compiler import Compiler

_DAY_FORMAT = "%Y-%m-%d"
_TRUE_WORDS = ("true", "t", "yes", "y", "1")
_FALSE_WORDS = ("false", "f", "no", "n", "0")
_MICROSECONDS = 1_000_000
#: Floats at and beyond these are no int64; the upper one is the least float that is too great.
_INT64_BEYOND = 9223372036854775808.0


def parse_date(text: pl.Expr) -> pl.Expr:
    """Return the day in texts such as ``2024-05-06`` or ``2024-05-06 07:08:09``; NULL for other texts."""
    trimmed = text.str.strip_chars()
    day = trimmed.str.extract(r"^(\d{4}-\d{1,2}-\d{1,2})(?:[ T].*)?$", 1)
    return day.str.to_date(_DAY_FORMAT, strict=False)


def parse_time(text: pl.Expr) -> pl.Expr:
    """Return the time of day in texts such as ``07:08``, ``07:08:09`` or ``07:08:09.123``; NULL for other texts."""
    trimmed = text.str.strip_chars()
    with_seconds = trimmed.str.replace(r"^(\d{1,2}:\d{1,2})$", "${1}:00")
    return with_seconds.str.to_time("%H:%M:%S%.f", strict=False)


def parse_timestamp(text: pl.Expr, target: pl.DataType) -> pl.Expr:
    """Return the instant in ISO 8601 texts (``T`` or a space, seconds, fraction and zone may be left out) or NULL.

    Text without a zone is read as UTC. For a target without zone, an instant with one is shown in UTC.
    """
    return by_series([text], functools.partial(_parse_timestamps, target), target)


_ISO = r"^(\d{4}-\d{1,2}-\d{1,2})(?:[ T](\d{1,2}:\d{1,2})(:\d{1,2}(?:\.\d+)?)?)?\s*(Z|z|UTC|[+-]\d{2}(?::?\d{2})?)?$"


def _parse_timestamps(target: pl.DataType, texts: pl.Series) -> pl.Series:
    parts = texts.str.strip_chars().str.extract_groups(_ISO).struct.unnest()
    day, zone = pl.col("1"), pl.col("4").fill_null("Z")
    offset = (
        pl.when(zone.is_in(["Z", "z", "UTC"])).then(pl.lit("+0000"))
        .when(zone.str.len_bytes() == 3).then(zone + "00")
        .otherwise(zone)
    )  # fmt: skip
    whole = day + " " + pl.col("2").fill_null("00:00") + pl.col("3").fill_null(":00") + offset
    instant = whole.str.to_datetime("%Y-%m-%d %H:%M:%S%.f%#z", strict=False, time_unit="us", time_zone="UTC")
    zone_name = target.time_zone if isinstance(target, pl.Datetime) else None
    if zone_name is None:
        instant = instant.dt.replace_time_zone(None)
    elif zone_name != "UTC":
        instant = instant.dt.convert_time_zone(zone_name)
    return parts.select(instant).to_series()


def to_text(typed: Typed) -> pl.Expr:
    """Return the text of a simple value: ``true``, ``12``, ``1.50``, ``2024-05-06 07:08:09`` (in the value's zone)."""
    source, expression = typed.data_type, typed.expression
    if isinstance(source, pl.String):
        return expression
    if isinstance(source, pl.Datetime):
        return in_calendar(expression, source).dt.strftime("%Y-%m-%d %H:%M:%S%.f")
    if isinstance(source, pl.Date):
        return in_calendar(expression, source).cast(pl.String)
    if isinstance(source, pl.Time):
        return expression.dt.strftime("%H:%M:%S%.f")
    if isinstance(source, pl.Binary):
        return expression.map_batches(_decode, return_dtype=pl.String, is_elementwise=True)
    if isinstance(source, pl.Duration):
        return expression.dt.to_string("iso")
    if isinstance(source, pl.Null):
        return pl.lit(None, dtype=pl.String)
    if isinstance(source, pl.Float32 | pl.Float64):
        return expression.map_batches(_float_texts, return_dtype=pl.String, is_elementwise=True)
    return expression.cast(pl.String)


def _float_texts(values: pl.Series) -> pl.Series:
    """Return floats as Flink writes them, which is as Java does: ``16.5``, ``1.6777216E7``, ``1.0E-5``, ``Infinity``, ``NaN``.

    Digits are the fewest that give the number back (Java before 19 writes more of some). The exponent is written below 0.001 and
    from ten million on.
    """
    size = values.abs()
    scientific = values.is_finite() & (values != 0.0) & ((size < 1e-3) | (size >= 1e7))
    texts = pl.select(
        pl.when(values.is_infinite()).then(pl.when(values > 0.0).then(pl.lit("Infinity")).otherwise(pl.lit("-Infinity")))
        .otherwise(values.cast(pl.String))
    ).to_series()  # fmt: skip
    if not scientific.any():
        return texts
    places = scientific.fill_null(value=False).arg_true()
    odd = values.gather(places).to_numpy()
    return texts.scatter(places, [_in_scientific_notation(value) for value in odd])


def _in_scientific_notation(value: np.floating) -> str:
    text = np.format_float_scientific(value, unique=True, trim="0", exp_digits=1)
    return text.replace("e+", "E").replace("e-", "E-")


def _decode(series: pl.Series) -> pl.Series:
    decoded: list[str | None] = []
    for value in series.to_list():
        try:
            decoded.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            decoded.append(None)
    return pl.Series(decoded, dtype=pl.String)


def _text_to_boolean(text: pl.Expr) -> pl.Expr:
    word = text.str.strip_chars().str.to_lowercase()
    return pl.when(word.is_in(_TRUE_WORDS)).then(True).when(word.is_in(_FALSE_WORDS)).then(False).otherwise(None)


def _text_to_number(text: pl.Expr, target: pl.DataType) -> pl.Expr:
    trimmed = text.str.strip_chars()
    if isinstance(target, pl.Decimal):
        return decimals.from_text(trimmed, target)
    if target.is_integer():
        # Digits after a point are cut off, as in Flink and Spark.
        trimmed = trimmed.str.replace(r"^([+-]?)\.(\d+)$", "${1}0").str.replace(r"^([+-]?\d+)\.\d*$", "${1}")
    return trimmed.cast(target, strict=False)


def _number_to_number(typed: Typed, target: pl.DataType) -> pl.Expr:
    source, expression = typed.data_type, typed.expression
    if isinstance(target, pl.Decimal):
        if isinstance(source, pl.Decimal):
            narrower = source.scale > target.scale
            return decimals.rounded(expression, target) if narrower else expression.cast(target, strict=False)
        if source.is_float():
            return _float_to_decimal(expression, target)
        return expression.cast(target, strict=False)
    if source.is_float() and target.is_integer():
        # Toward zero, as in Java. Beyond int64 the cast of polars gives NULL, and so for NaN.
        return expression.cast(target, strict=False)
    return expression.cast(target, strict=False)


def _float_to_decimal(expression: pl.Expr, target: pl.Decimal) -> pl.Expr:
    finite = pl.when(expression.is_finite()).then(expression)
    return _text_to_number(finite.cast(pl.String), target)


def _time_casts(typed: Typed, target: pl.DataType) -> pl.Expr | None:
    source, expression = typed.data_type, in_calendar(typed.expression, typed.data_type)
    if isinstance(target, pl.Datetime):
        if isinstance(source, pl.Datetime) and source.time_zone and not target.time_zone:
            return expression.dt.convert_time_zone("UTC").dt.replace_time_zone(None).cast(target)
        if isinstance(source, pl.Date | pl.Datetime):
            return widen(typed, target)
        if source.is_integer() or source.is_float() or is_decimal(source):
            return _from_seconds(expression, source, target)
    if isinstance(target, pl.Date) and isinstance(source, pl.Datetime):
        return expression.dt.date()
    if isinstance(target, pl.Time) and isinstance(source, pl.Datetime):
        return expression.dt.time()
    if isinstance(source, pl.Datetime) and is_number(target):
        micros = expression.dt.epoch("us")
        if target.is_integer():
            # Floor, so that half a second before 1970 is second -1.
            return (micros // _MICROSECONDS).cast(target, strict=False)
        if isinstance(target, pl.Decimal):
            return decimals.computed("/", micros, pl.lit(_MICROSECONDS), (0, 0), target)
        return float_quotient(micros.cast(pl.Float64), pl.lit(float(_MICROSECONDS))).cast(target)
    if isinstance(source, pl.Duration) and isinstance(target, pl.Duration):
        return expression.cast(target, strict=False)
    return None


def _from_seconds(expression: pl.Expr, source: pl.DataType, target: pl.Datetime) -> pl.Expr:
    """Seconds since 1970 to an instant. What does not fit becomes NULL."""
    seconds = expression.cast(pl.Int64, strict=False) if source.is_integer() else expression.cast(pl.Float64)
    limit = 253402300800  # the year 10000
    fitting = pl.when(seconds.is_between(-62135596800, limit - 1)).then(seconds)
    micros = (fitting * _MICROSECONDS).round(0).cast(pl.Int64, strict=False)
    instant = micros.cast(pl.Datetime("us", "UTC"))
    if target.time_zone is None:
        return instant.dt.replace_time_zone(None)
    return instant.dt.convert_time_zone(target.time_zone)


def convert(typed: Typed, target: pl.DataType) -> pl.Expr | None:
    """Return the expression cast to the type, NULL where a value has no counterpart; None for types with no cast."""
    source, expression = typed.data_type, typed.expression
    if source == target:
        return expression
    if isinstance(source, pl.Null):
        return pl.lit(None, dtype=target)
    if is_text(source) and not isinstance(source, pl.String):
        expression, source = expression.cast(pl.String), pl.String()
        typed = Typed(expression, source, typed.node)
    if isinstance(target, pl.String):
        return to_text(typed) if not source.is_nested() else _nested_to_text(typed)
    if isinstance(source, pl.String):
        return _from_text(expression, target)
    if is_number(source) and is_number(target):
        return _number_to_number(typed, target)
    if isinstance(source, pl.Boolean) and is_number(target):
        return expression.cast(pl.Int64).cast(target)
    if is_number(source) and isinstance(target, pl.Boolean):
        return expression != pl.lit(0)
    if isinstance(source, pl.List) and isinstance(target, pl.List):
        return _elements(typed, target)
    if isinstance(source, pl.Struct) and isinstance(target, pl.Struct):
        return _fields(typed, source, target)
    return _time_casts(typed, target)


def _from_text(text: pl.Expr, target: pl.DataType) -> pl.Expr | None:
    if is_number(target):
        return _text_to_number(text, target)
    makers: dict[type[pl.DataType], Callable[[pl.Expr], pl.Expr]] = {
        pl.Boolean: _text_to_boolean,
        pl.Date: parse_date,
        pl.Time: parse_time,
        pl.Binary: lambda value: value.cast(pl.Binary),
        pl.Datetime: lambda value: parse_timestamp(value, target),
    }
    maker = makers.get(type(target))
    return maker(text) if maker is not None else None


def _elements(typed: Typed, target: pl.List) -> pl.Expr | None:
    element = Typed(pl.element(), inner_type(typed.data_type))
    inner = convert(element, inner_type(target))
    return typed.expression.list.eval(inner) if inner is not None else None


def _fields(typed: Typed, source: pl.Struct, target: pl.Struct) -> pl.Expr | None:
    """Fields go by position, as in SQL; the target gives the names."""
    if len(source.fields) != len(target.fields):
        return None
    made = []
    for mine, other in zip(source.fields, target.fields, strict=True):
        field_type = mine.dtype if isinstance(mine.dtype, pl.DataType) else mine.dtype()
        wanted = other.dtype if isinstance(other.dtype, pl.DataType) else other.dtype()
        value = convert(Typed(typed.expression.struct.field(mine.name), field_type), wanted)
        if value is None:
            return None
        made.append(value.alias(other.name))
    return pl.when(typed.expression.is_not_null()).then(pl.struct(made))


def _nested_to_text(typed: Typed) -> pl.Expr:
    from headrace_columnar.functions.json import json_text

    return json_text(typed.expression)


def cast(compiler: Compiler, node: object, typed: Typed, target: pl.DataType, *, strict: bool) -> Typed:
    """Compile CAST (``strict``) or TRY_CAST.

    A value with no counterpart in the target type makes TRY_CAST NULL; for CAST the row fails, so that operators send
    it to the dead letters (Flink and Spark stop the job there).
    """
    converted = convert(typed, target)
    if converted is None:
        raise compiler.error(
            node, f"cannot cast {shown(typed.data_type)} to {shown(target)}", hint="headrace has no such conversion"
        )
    if strict and not _always_fits(typed.data_type, target):
        condition = typed.expression.is_not_null() & converted.is_null()
        compiler.fail_when(
            condition,
            f"CAST({{value}} AS {shown(target)}) is impossible",
            in_calendar(typed.expression, typed.data_type),
        )
    return Typed(converted, target, node)


def _always_fits(source: pl.DataType, target: pl.DataType) -> bool:
    """Say whether the cast cannot fail, so that no check is needed."""
    if source == target or isinstance(source, pl.Null):
        return True
    if isinstance(target, pl.String):
        return not isinstance(source, pl.Binary | pl.Date | pl.Datetime)
    if isinstance(source, pl.Boolean) or (isinstance(target, pl.Boolean) and is_number(source)):
        return True
    if is_number(source) and isinstance(target, pl.Float32 | pl.Float64):
        return True
    if source.is_integer() and isinstance(target, pl.Int64):
        return not isinstance(source, pl.UInt64 | pl.Int128 | pl.UInt128)
    return False
