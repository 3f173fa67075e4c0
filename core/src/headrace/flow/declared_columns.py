"""Columns of a table in the types that a SQL text or a job declares for them."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import DataError, OptionError, did_you_mean

_DAY_US = 86_400_000_000


class DeclaredColumns:
    """Casts frames of a table to declared types. Made when the job is built, and passed to where it runs."""

    def __init__(
        self, native: Mapping[str, pl.DataType], declared: Mapping[str, pl.DataType], plugin: str | None = None
    ) -> None:
        self._plugin = plugin
        self._different = {name: kind for name, kind in declared.items() if native[name] != kind}
        self.types = dict(declared)

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the columns in their declared types. Raises DataError for a value that has no place in its type."""
        if not self._different:
            return frame
        made = []
        for name, kind in self._different.items():
            if name not in frame.columns:
                continue
            try:
                made.append(_cast(frame[name], kind))
            except pl.exceptions.PolarsError as error:
                raise DataError(
                    f"column {name!r} has values that are no {type_name(kind)}: {error}",
                    plugin=self._plugin,
                    hint="declare the column with a wider type",
                ) from error
        return frame.with_columns(made)


def declared_columns(
    native: Mapping[str, pl.DataType], columns: list[str] | Mapping[str, str] | None, table: str, plugin: str
) -> DeclaredColumns:
    """Return the columns that are read. Raises OptionError for names that the table does not have, and types that do not fit."""
    chosen = list(columns if columns is not None else native)
    for name in chosen:
        if name not in native:
            raise OptionError(
                f"table {table} has no column {name!r}",
                plugin=plugin,
                option="columns",
                hint=did_you_mean(name, native, known="columns of the table"),
            )
    if not isinstance(columns, Mapping):
        return DeclaredColumns(native, {name: native[name] for name in chosen}, plugin)
    declared = dict(Schema.of(columns))
    for name, kind in declared.items():
        if not _fits(native[name], kind):
            raise OptionError(
                f"column {name!r} of table {table} is {type_name(native[name])}, which cannot be read as {type_name(kind)}",
                plugin=plugin,
                option="columns",
                hint=f"declare it as {type_name(native[name])} and CAST it in the query",
            )
    return DeclaredColumns(native, declared, plugin)


def _fits(native: pl.DataType, kind: pl.DataType) -> bool:
    """Return whether all values of a type have one in another, or an error where they have none."""
    if native == kind:
        return True
    whole = native.is_integer() or isinstance(native, pl.Boolean)
    if kind.is_integer():
        return whole or (isinstance(native, pl.Decimal) and native.scale == 0)
    if isinstance(kind, pl.Decimal):
        return native.is_integer() or (isinstance(native, pl.Decimal) and kind.scale >= native.scale)
    if isinstance(kind, pl.Float64):
        return isinstance(native, pl.Float32 | pl.Int32)
    if isinstance(kind, pl.String):
        return (whole and not isinstance(native, pl.Boolean)) or isinstance(native, pl.Decimal | pl.Date)
    if isinstance(kind, pl.Datetime):
        return isinstance(native, pl.Datetime | pl.Date)
    if isinstance(kind, pl.Time):
        return isinstance(native, pl.Duration)
    return False


def _cast(column: pl.Series, kind: pl.DataType) -> pl.Series:
    if isinstance(kind, pl.Time):
        micros = column.dt.total_microseconds()
        outside = (micros < 0) | (micros >= _DAY_US)
        if outside.any():
            raise pl.exceptions.InvalidOperationError(f"{column.filter(outside)[0]} is not a time of a day")
        return (micros * 1000).cast(pl.Time)
    if (
        isinstance(kind, pl.Datetime)
        and isinstance(column.dtype, pl.Datetime)
        and column.dtype.time_zone != kind.time_zone
    ):
        # An instant is shown in UTC, and a time without a zone is in UTC.
        return column.dt.replace_time_zone(kind.time_zone).cast(kind)
    return column.cast(kind)
