"""Converts the texts of fields to their types. It is strict: a text that is not a number is a fault of the line, not
NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

_SHOWN_MAX = 60
_ZONES = ("%z", "%:z", "%#z", "%+")


def is_supported(kind: pl.DataType) -> bool:
    """Return whether texts can become values of a type."""
    return kind.is_integer() or kind.is_float() or kind in (pl.String(), pl.Boolean()) or isinstance(kind, pl.Datetime)


def converted(
    texts: pl.Series, kind: pl.DataType, timestamp_format: str | None = None
) -> tuple[pl.Series, NDArray[np.bool_] | None]:
    """Return the values of a field, and which texts do not fit its type (None if all fit)."""
    if kind == pl.String():
        return texts, None
    if texts.null_count() == len(texts):
        return texts.cast(kind), None
    values = _values(texts, kind, timestamp_format).alias(texts.name)
    if values.null_count() == texts.null_count():
        return values, None
    return values, (values.is_null() & texts.is_not_null()).to_numpy()


def _values(texts: pl.Series, kind: pl.DataType, timestamp_format: str | None) -> pl.Series:
    if kind == pl.Boolean():
        lowered = texts.str.to_lowercase()
        truth = pl.when(lowered == "true").then(True).when(lowered == "false").then(False).otherwise(None)
        return pl.select(truth.cast(pl.Boolean)).to_series()
    if isinstance(kind, pl.Datetime):
        assert timestamp_format is not None
        zone = "UTC" if any(sign in timestamp_format for sign in _ZONES) else None
        read = texts.str.to_datetime(timestamp_format, time_unit=kind.time_unit, time_zone=zone, strict=False)
        return read.cast(pl.Int64).cast(kind)
    # A cast accepts only a sign and digits; for floats also a point, an exponent, and the names of infinities and NaN.
    values = texts.cast(kind, strict=False)
    if kind.is_float() and not values.is_finite().all():
        values = pl.select(pl.when(values.is_finite()).then(values)).to_series()
    return values


def type_text(kind: pl.DataType) -> str:
    """Return the name of a type as users write it."""
    return "timestamp" if isinstance(kind, pl.Datetime) else str(kind).lower()


def shown(text: str) -> str:
    """Return a text in double quotes as reasons show it, cut when it is long."""
    return f'"{text}"' if len(text) <= _SHOWN_MAX else f'"{text[:_SHOWN_MAX]}…"'


def typed_columns(
    columns: Sequence[tuple[pl.Series, pl.DataType]], timestamp_format: str | None
) -> tuple[list[pl.Series], dict[int, str]]:
    """Return columns of texts as values of their types, and what is wrong in which row."""
    made: list[pl.Series] = []
    wrong: dict[int, str] = {}
    for texts, kind in columns:
        values, bad = converted(texts, kind, timestamp_format)
        made.append(values)
        for row in [] if bad is None else np.flatnonzero(bad).tolist():
            wrong.setdefault(row, f"field {texts.name!r}: expected {type_text(kind)}, found {shown(texts[row])}")
    return made, wrong
