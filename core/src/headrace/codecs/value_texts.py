"""The texts in which values are written: column-wise for frames, one by one for dynamic rows, the same either way.

The forms are tabled in docs/formats.md. Formats that are texts (json, csv) share them.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import polars as pl

from headrace.flow.schema import type_name
from headrace.foundation.errors import DataError

_MICROSECOND = dt.timedelta(microseconds=1)


def text_form(column: pl.Expr, data_type: pl.DataType, name: str) -> pl.Expr | None:
    """Return an expression that writes a column's values as texts, or None when they are written as they are.

    Within lists and structs as well. Raises DataError, naming the column, for a type that has no form as text.
    """
    if isinstance(data_type, pl.Datetime):
        places = 9 if data_type.time_unit == "ns" else 6
        if data_type.time_zone:
            return column.dt.convert_time_zone("UTC").dt.strftime(f"%Y-%m-%dT%H:%M:%S%.{places}fZ")
        return column.dt.strftime(f"%Y-%m-%dT%H:%M:%S%.{places}f")
    if isinstance(data_type, pl.Time):
        return column.dt.strftime("%H:%M:%S%.6f")
    if isinstance(data_type, pl.Duration):
        return column.dt.to_string("iso")
    if isinstance(data_type, pl.Binary):
        return column.bin.encode("base64")
    if isinstance(data_type, pl.Array):
        assert isinstance(data_type.inner, pl.DataType)
        column = column.arr.to_list()
        lists = text_form(column, pl.List(data_type.inner), name)
        return column if lists is None else lists
    if isinstance(data_type, pl.List):
        assert isinstance(data_type.inner, pl.DataType)
        inner = text_form(pl.element(), data_type.inner, name)
        return None if inner is None else column.list.eval(inner)
    if isinstance(data_type, pl.Struct):
        changed = {}
        for field in data_type.fields:
            assert isinstance(field.dtype, pl.DataType)
            changed[field.name] = text_form(column.struct.field(field.name), field.dtype, f"{name}.{field.name}")
        if all(form is None for form in changed.values()):
            return None
        fields = [
            (column.struct.field(field) if form is None else form).alias(field) for field, form in changed.items()
        ]
        return pl.when(column.is_not_null()).then(pl.struct(fields))
    if data_type in (pl.Object, pl.Unknown):
        raise DataError(f"column {name!r}: values of type {type_name(data_type)} cannot be written as text")
    return None


def text_forms(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with every column that is written as text turned into its texts."""
    changed = []
    for name, data_type in frame.schema.items():
        form = text_form(pl.col(name), data_type, name)
        if form is not None:
            changed.append(form.alias(name))
    return frame.with_columns(changed) if changed else frame


def value_text(value: Any) -> Any:
    """Write one value of a dynamic row as ``text_form`` writes columns; what JSON has itself stays as it is.

    Decimals become texts as well, and floating point numbers that are no numbers None.
    """
    if isinstance(value, str | int | bytes | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dt.time):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, dt.timedelta):
        return duration_text(value)
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else None
    return value


def duration_text(value: dt.timedelta) -> str:
    """Write a duration in ISO 8601: ``P1DT2H3M4.5S``; the sign comes first."""
    microseconds = value // _MICROSECOND
    sign = "-" if microseconds < 0 else ""
    seconds, fraction = divmod(abs(microseconds), 1_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    date = f"{day}D" if day else ""
    second_text = f"{second}.{fraction:06d}".rstrip("0") if fraction else str(second)
    time = (
        (f"{hour}H" if hour else "")
        + (f"{minute}M" if minute else "")
        + (f"{second_text}S" if second or fraction else "")
    )
    if not date and not time:
        return "PT0S"
    return f"{sign}P{date}" + (f"T{time}" if time else "")
