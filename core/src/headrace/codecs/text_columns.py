"""Converts columns of texts to columns of a schema's types, strictly. Formats without types (csv, raw) share it.

Each text is judged alone. What is accepted is tabled in docs/formats.md.
"""

from __future__ import annotations

import datetime as dt
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

from headrace.codecs.timestamps import (
    DATE,
    SECONDS_MAX,
    SECONDS_MIN,
    TIME,
    TIMESTAMP,
    TIMESTAMP_WITHOUT_ZONE,
    Moments,
    parse_moment,
    parse_moments,
)
from headrace.flow.schema import type_name
from headrace.foundation.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.flow.schema import Schema

#: How many of each unit make a second.
UNITS_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
#: Never seen (the fuzz tests look for it), but a wrong word about a bad body is better than a job that ends.
UNEXPLAINED = "the body cannot be decoded"
_SHOWN_LENGTH_MAX = 60
_EPOCH_TEXT = re.compile(r"[+-]?\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TimestampOptions:
    """How a format reads timestamps beside ISO 8601: the unit of whole numbers, and a layout in place of ISO 8601."""

    unit: str = "ms"
    format: str | None = None


def check_timestamp_format(layout: str, plugin: str) -> None:
    """Raise OptionError for a layout that cannot read what it writes. Called when a job is built."""
    example = pl.Series([dt.datetime(2001, 2, 3, 4, 5, 6, tzinfo=dt.UTC)])
    try:
        found = read_formatted(example.dt.strftime(layout), layout, pl.Datetime("us", "UTC"))[0]
        fault = None if found and found.date() == example[0].date() else "it does not give year, month and day"
    except pl.exceptions.PolarsError as error:
        fault = str(error).partition("\n")[0]
    if fault is not None:
        raise OptionError(
            f"unusable time layout {layout!r}: {fault}",
            plugin=plugin,
            option="timestamp_format",
            hint="write it with strftime's signs, for example '%d/%b/%Y:%H:%M:%S %z'",
        )


def check_columns(schema: Schema, columns: Sequence[str] | None, plugin: str) -> list[str]:
    """Return the columns that a decoder is asked for. Raises OptionError for one that the schema has not."""
    for column in columns or ():
        if column not in schema:
            hint = did_you_mean(column, schema, known="columns")
            raise OptionError(f"column {column!r} is not in the schema", plugin=plugin, hint=hint)
    return list(schema if columns is None else columns)


class TextColumn(ABC):
    """Converts the texts of one column. A text that means nothing in the column's type is bad, never NULL."""

    def __init__(self, data_type: pl.DataType) -> None:
        self.data_type = data_type

    @abstractmethod
    def convert(self, texts: pl.Series) -> tuple[pl.Series, NDArray[np.bool_] | None]:
        """Return the values, and which rows are bad (None: not one). NULL stays NULL; values of bad rows mean nothing."""

    def advice(self, text: str) -> str:
        """Return the advice at the end of a reason for a bad text: how to declare the column so that it fits; may be empty."""
        return ""


def text_column(data_type: pl.DataType, timestamps: TimestampOptions) -> TextColumn | None:
    """Return what converts texts to a type, or None when no text form is defined for it."""
    if data_type == pl.String:
        return _StringColumn(data_type)
    if data_type.is_integer() or data_type.is_float():
        return _NumberColumn(data_type)
    if data_type == pl.Boolean:
        return _BooleanColumn(data_type)
    if isinstance(data_type, pl.Decimal):
        return _DecimalColumn(data_type)
    if isinstance(data_type, pl.Datetime):
        return TimestampColumn(data_type, timestamps)
    if isinstance(data_type, pl.Date | pl.Time):
        return DateOrTimeColumn(data_type)
    if isinstance(data_type, pl.Binary | pl.Duration):
        return _ConvertedColumn(data_type)
    return None


class _StringColumn(TextColumn):
    def convert(self, texts: pl.Series) -> tuple[pl.Series, NDArray[np.bool_] | None]:
        return texts, None


class _NumberColumn(TextColumn):
    def convert(self, texts: pl.Series) -> tuple[pl.Series, NDArray[np.bool_] | None]:
        if self.data_type.is_integer():
            values = texts.cast(self.data_type, strict=False)
            return values, newly_null(texts, values)
        values, bad = finite(texts.cast(pl.Float64, strict=False), self.data_type)
        return values, either(bad, newly_null(texts, values))


class _BooleanColumn(TextColumn):
    def convert(self, texts: pl.Series) -> tuple[pl.Series, NDArray[np.bool_] | None]:
        lower = texts.str.to_lowercase()
        values = lower == "true"
        bad = ~values & (lower != "false")
        return values, bad.fill_null(False).to_numpy() if bad.any() else None


class _DecimalColumn(TextColumn):
    def convert(self, texts: pl.Series) -> tuple[pl.Series, NDArray[np.bool_] | None]:
        assert isinstance(self.data_type, pl.Decimal)
        return decimals(texts, self.data_type)


class TimestampColumn(TextColumn):
    """ISO 8601 texts (or texts of the layout that was given), and whole numbers as texts since the Unix epoch."""

    def __init__(self, data_type: pl.Datetime, options: TimestampOptions) -> None:
        super().__init__(data_type)
        self._options = options
        self._pattern = timestamp_pattern(data_type)
        if options.format is not None and _has_zone(options.format) and not data_type.time_zone:
            raise OptionError(
                f"the layout {options.format!r} has a time zone, but type {type_name(data_type)} has none",
                option="timestamp_format",
                hint="declare the column as timestamp",
            )

    def convert(self, texts: pl.Series) -> tuple[pl.Series, NDArray[np.bool_] | None]:
        assert isinstance(self.data_type, pl.Datetime)
        if self._options.format is not None:
            values = read_formatted(texts, self._options.format, self.data_type)
            return values, newly_null(texts, values)
        present, rows = without_nulls(texts)
        values, bad = self._read(present)
        return spread(values, rows, len(texts)), spread_mask(bad, rows, len(texts))

    def advice(self, text: str) -> str:
        assert isinstance(self.data_type, pl.Datetime)
        return timestamp_advice(text, self.data_type, self._options)

    def _read(self, texts: Sequence[str]) -> tuple[pl.Series, NDArray[np.bool_] | None]:
        assert isinstance(self.data_type, pl.Datetime)
        moments = parse_moments(texts, self._pattern)
        rows = [row for row in np.flatnonzero(moments.bad).tolist() if _EPOCH_TEXT.fullmatch(texts[row])]
        if rows:
            numbers = np.array([int(texts[row]) for row in rows], dtype=np.int64)
            for target, values in zip(moments, epoch_moments(numbers, self._options.unit), strict=True):
                target[rows] = values
        return moments_to_series(moments, self.data_type)


class DateOrTimeColumn(TextColumn):
    """ISO 8601 dates, or times of day."""

    def convert(self, texts: pl.Series) -> tuple[pl.Series, NDArray[np.bool_] | None]:
        present, rows = without_nulls(texts)
        moments = parse_moments(present, DATE if self.data_type == pl.Date else TIME)
        values, bad = moments_to_series(moments, self.data_type)
        return spread(values, rows, len(texts)), spread_mask(bad, rows, len(texts))


class _ConvertedColumn(TextColumn):
    """Base64 and ISO 8601 durations, by msgspec, one by one."""

    def convert(self, texts: pl.Series) -> tuple[pl.Series, NDArray[np.bool_] | None]:
        target: Any = bytes if self.data_type == pl.Binary else dt.timedelta
        values: list[Any] = []
        refused = np.zeros(len(texts), dtype=np.bool_)
        for row, text in enumerate(texts):
            value = None
            if text is not None:
                try:
                    value = msgspec.convert(text, target)
                except (msgspec.ValidationError, OverflowError):
                    refused[row] = True
            values.append(value)
        bad = refused if refused.any() else None
        if isinstance(self.data_type, pl.Duration):
            column, beyond = durations(values, self.data_type)
            return column, either(bad, beyond)
        return pl.Series(values, dtype=self.data_type), bad


def timestamp_pattern(data_type: pl.Datetime) -> re.Pattern[str]:
    """Return the texts that a timestamp column takes: a zone is no part of a column without one."""
    return TIMESTAMP if data_type.time_zone else TIMESTAMP_WITHOUT_ZONE


def timestamp_advice(text: str, data_type: pl.Datetime, options: TimestampOptions) -> str:
    """Return what to do about a text that is not a timestamp of this type: the end of a reason, or nothing."""
    if options.format is not None:
        return f"; timestamp_format is {options.format!r}"
    if not data_type.time_zone and parse_moment(text, TIMESTAMP) is not None:
        return "; it has a time zone: declare the column as timestamp (in SQL as TIMESTAMP_LTZ)"
    return ""


def read_formatted(texts: pl.Series, layout: str, data_type: pl.Datetime) -> pl.Series:
    """Read timestamps by a strftime layout, in UTC when it has no zone; NULL where a text does not fit."""
    zone = "UTC" if _has_zone(layout) else None
    values = texts.str.to_datetime(layout, time_unit=data_type.time_unit, time_zone=zone, strict=False)
    return values.cast(pl.Int64).cast(data_type)


def _has_zone(layout: str) -> bool:
    return any(sign in layout for sign in ("%z", "%:z", "%#z", "%+"))


def epoch_moments(numbers: NDArray[np.int64], unit: str) -> Moments:
    """Return the moments of numbers of ``unit`` since the Unix epoch; bad beyond the years 1 to 9999."""
    per_second = UNITS_PER_SECOND[unit]
    seconds, rest = np.divmod(numbers, per_second)
    bad = (seconds < SECONDS_MIN) | (seconds > SECONDS_MAX)
    seconds[bad] = 0
    return Moments(seconds, rest * (1_000_000_000 // per_second), bad)


def durations(values: list[Any], data_type: pl.Duration) -> tuple[pl.Series, NDArray[np.bool_] | None]:
    """Make a column of timedeltas; one that 64 bits of the column's unit cannot count is bad."""
    # polars counts microseconds on the way to milliseconds as well.
    limit = dt.timedelta(microseconds=(2**63 - 1) // (1000 if data_type.time_unit == "ns" else 1))
    beyond = np.fromiter((value is not None and abs(value) > limit for value in values), np.bool_, len(values))
    if not beyond.any():
        return pl.Series(values, dtype=data_type), None
    kept = [None if bad else value for value, bad in zip(values, beyond.tolist(), strict=True)]
    return pl.Series(kept, dtype=data_type), beyond


def moments_to_series(moments: Moments, data_type: pl.DataType) -> tuple[pl.Series, NDArray[np.bool_] | None]:
    """Return times as a column. Digits below the column's unit are cut off; times outside of its range are bad."""
    seconds, nanoseconds, bad = moments
    if isinstance(data_type, pl.Date):
        values = pl.Series(seconds // 86_400).cast(pl.Int32).cast(pl.Date)
    elif isinstance(data_type, pl.Datetime):
        per_second = UNITS_PER_SECOND[data_type.time_unit]
        if data_type.time_unit == "ns":
            # Nanoseconds in 64 bits reach from 1677 to 2262 only.
            limit = np.iinfo(np.int64).max // per_second - 1
            beyond = (seconds > limit) | (seconds < -limit)
            bad, seconds = bad | beyond, np.where(beyond, 0, seconds)
        values = pl.Series(seconds * per_second + nanoseconds // (1_000_000_000 // per_second)).cast(data_type)
    else:
        # Times of day are in microseconds whatever polars could hold.
        values = pl.Series(seconds * 1_000_000_000 + nanoseconds // 1000 * 1000).cast(pl.Time)
    return values, bad if bad.any() else None


def decimals(texts: pl.Series, data_type: pl.Decimal) -> tuple[pl.Series, NDArray[np.bool_] | None]:
    """Read decimal numbers exactly: one that the type cannot hold without rounding is bad."""
    assert data_type.scale is not None
    plain = texts.str.contains(rf"^[+-]?[0-9]+(\.[0-9]{{0,{data_type.scale}}}0*)?$")
    if not plain.all():
        # Exponents, or no decimals at all: rewritten one by one to the plain form, which is NULL for the latter.
        rewritten = [
            text if fine or text is None else _plain_decimal(text, data_type.scale)
            for text, fine in zip(texts, plain, strict=True)
        ]
        return _cast_decimals(texts, pl.Series(rewritten, dtype=pl.String), data_type)
    return _cast_decimals(texts, texts, data_type)


def _cast_decimals(
    texts: pl.Series, plain: pl.Series, data_type: pl.Decimal
) -> tuple[pl.Series, NDArray[np.bool_] | None]:
    values = plain.cast(data_type, strict=False)
    return values, newly_null(texts, values)


def _plain_decimal(text: str, scale: int) -> str | None:
    if not re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", text, re.ASCII):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    # Beyond these no value of 38 digits fits; not written out, because the text could be thousands of characters.
    if number and not -40 <= number.adjusted() <= 40:
        return None
    written = format(number, "f") if number else "0"
    fraction = written.partition(".")[2].rstrip("0")
    return written if len(fraction) <= scale else None


def finite(values: pl.Series, data_type: pl.DataType) -> tuple[pl.Series, NDArray[np.bool_] | None]:
    """Cast to a float type; bad where the value is not finite in it."""
    values = values.cast(data_type)
    bad = ~values.is_finite()
    return values, bad.fill_null(False).to_numpy() if bad.any() else None


def newly_null(before: pl.Series, after: pl.Series) -> NDArray[np.bool_] | None:
    """Say which entries became NULL, or None when not one."""
    if before.null_count() == after.null_count():
        return None
    return (after.is_null() & before.is_not_null()).to_numpy()


def either(left: NDArray[np.bool_] | None, right: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Join two masks, None meaning all false."""
    if left is None or right is None:
        return right if left is None else left
    joined: NDArray[np.bool_] = left | right
    return joined


def shown(text: str) -> str:
    """Return a text in double quotes as reasons show it, cut when it is long."""
    return f'"{text}"' if len(text) <= _SHOWN_LENGTH_MAX else f'"{text[:_SHOWN_LENGTH_MAX]}…"'


def without_nulls(texts: pl.Series) -> tuple[list[str], NDArray[np.int64] | None]:
    """Return the texts that are not NULL, and their rows (None: all)."""
    if not texts.null_count():
        return texts.to_list(), None
    present = texts.is_not_null()
    return texts.filter(present).to_list(), np.flatnonzero(present.to_numpy())


def spread(values: pl.Series, rows: NDArray[np.int64] | None, count: int) -> pl.Series:
    """Put values at ``rows`` of a column of ``count``, NULL elsewhere."""
    if rows is None:
        return values
    places = np.full(count, len(rows), dtype=np.int64)
    places[rows] = np.arange(len(rows))
    return values.extend_constant(None, 1).gather(places)


def spread_mask(mask: NDArray[np.bool_] | None, rows: NDArray[np.int64] | None, count: int) -> NDArray[np.bool_] | None:
    """Put a mask at ``rows`` of one of ``count``, false elsewhere."""
    if mask is None or rows is None:
        return mask
    whole = np.zeros(count, dtype=np.bool_)
    whole[rows] = mask
    return whole
