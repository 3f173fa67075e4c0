"""Where the values of rows lie in a block of bytes, for many rows at once, and the values as columns.

COPY's binary format and the protocol of logical replication write rows in nearly the same way: the number of values, and before
each its length. So one walk goes through the rows of both together, column by column: a few operations of numpy for a column,
instead of some for a value. Values are texts in both, as the server writes them.

Source: https://www.postgresql.org/docs/current/sql-copy.html ("Binary Format") and
https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html ("TupleData").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from headrace.flow.byte_slices import Integers, series_of_slices
from headrace.flow.schema import type_name
from headrace.foundation.errors import DataError
from numpy.typing import NDArray

from headrace_postgres.tables import TableColumn
from headrace_postgres.types import column_type

Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]

_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")
_INFINITE = ("infinity", "-infinity")


@dataclass(frozen=True, slots=True)
class Places:
    """Begin and length of the values of one column, and which of them are missing: one entry for each row."""

    starts: Integers
    lengths: Integers
    missing: Flags
    #: Values that were not sent because the update left them as they were.
    unchanged: Flags


def walk(array: Bytes, begins: Integers, count: int, *, marked: bool) -> tuple[list[Places], Integers]:
    """Return the places of ``count`` columns in rows that begin with their first value, and where the rows end.

    ``marked``: a letter stands before each value, as in logical replication; else NULL has the length -1. The block has
    ``SPARE_BYTES`` after the last row.
    """
    made: list[Places] = []
    at = begins
    nothing = np.zeros(len(begins), dtype=bool)
    for _ in range(count):
        if marked:
            mark = array[at]
            present = mark == _TEXT
            lengths = np.where(present, _length(array, at + 1), 0)
            starts = np.where(present, at + 5, at + 1)
            unchanged = mark == _UNCHANGED
            if not (present | unchanged | (mark == _NULL)).all():
                raise DataError("the server sent a value in a format that was not requested", plugin="postgres_changes")
            missing = ~present
        else:
            lengths = _length(array, at)
            missing, unchanged, starts = lengths < 0, nothing, at + 4
            lengths = np.where(missing, 0, lengths)
        made.append(Places(starts, lengths, missing, unchanged))
        at = starts + lengths
    return made, at


def _length(array: Bytes, at: Integers) -> Integers:
    number = array[at].astype(np.int32) << 24
    for byte in range(1, 4):
        number |= array[at + byte].astype(np.int32) << (24 - 8 * byte)
    return number.astype(np.int64)


def texts_of(raw: bytearray, places: Places, plugin: str) -> pl.Series:
    """Return the values of a column as texts; missing ones are NULL. Raises DataError for a value that is not UTF-8."""
    made = series_of_slices(raw, places.starts, places.lengths, places.missing, text=True, plugin=plugin)
    return _without(made, places.missing) if places.missing.any() else made


def _without(made: pl.Series, missing: Flags) -> pl.Series:
    return pl.select(pl.when(pl.Series(~missing)).then(made)).to_series()


def values_of(column: TableColumn, texts: pl.Series, plugin: str) -> pl.Series:
    """Return a column of the server's texts in its type (see ``column_type``). ``infinity`` is NULL.

    Raises DataError for values that have no place in the type, such as years before Christ.
    """
    kind = column_type(column)
    make = _MAKERS.get(column.kind)
    try:
        made = texts.cast(kind) if make is None else make(texts)
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"column {column.name!r} has values that are not of type {type_name(kind)}: {error}", plugin=plugin
        ) from error
    lost = made.is_null() & texts.is_not_null()
    if lost.any():
        value = next((text for text in texts.filter(lost) if text not in _INFINITE), None)
        if value is not None:
            raise DataError(
                f"column {column.name!r} has the value {value[:100]!r}, which cannot be read as {type_name(kind)} here", plugin=plugin,
                hint="leave the column out with columns=, or read it as text through a view",
            )  # fmt: skip
    return made.alias(column.name)


def _datetimes(texts: pl.Series) -> pl.Series:
    return texts.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="us")


def _instants(texts: pl.Series) -> pl.Series:
    # The session's time zone is UTC.
    return _datetimes(texts.str.strip_suffix("+00")).dt.replace_time_zone("UTC")


_MAKERS: Mapping[str, Callable[[pl.Series], pl.Series]] = {
    "bool": lambda texts: texts == "t",
    "bytea": lambda texts: texts.str.slice(2).str.decode("hex"),
    "date": lambda texts: texts.str.to_date("%Y-%m-%d", strict=False),
    "time": lambda texts: texts.str.to_time("%H:%M:%S%.f", strict=False),
    "timestamp": _datetimes,
    "timestamptz": _instants,
}
