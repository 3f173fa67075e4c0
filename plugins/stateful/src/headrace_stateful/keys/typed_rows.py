"""Rows that users' functions return, as columns of declared types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
from headrace.foundation.errors import DataError

#: A value of this Python type is kept as it is, if the test says so. All others go through polars, which says whether and how they fit.
_Kept = tuple[type, Callable[[Any], bool] | None]
_DURATION_MAX = timedelta(microseconds=2**63 - 1)
_INTEGER_BITS: Mapping[type[pl.DataType], int] = {pl.Int8: 8, pl.Int16: 16, pl.Int32: 32, pl.Int64: 64}
_KEPT: Mapping[type[pl.DataType], _Kept] = {
    pl.String: (str, None), pl.Boolean: (bool, None), pl.Float64: (float, None), pl.Binary: (bytes, None), pl.Date: (date, None),
    **{kind: (int, range(-(2 ** (bits - 1)), 2 ** (bits - 1)).__contains__) for kind, bits in _INTEGER_BITS.items()},
}  # fmt: skip


@cache
def _zone() -> ZoneInfo:
    return ZoneInfo("UTC")  # here: polars, too, reads the system's zones only if a column has one


def _kept(kind: pl.DataType) -> _Kept | None:
    if kind == pl.Datetime("us", "UTC"):
        return (
            datetime,
            lambda value: isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key == "UTC" and not value.fold,
        )
    if kind == pl.Datetime("us"):
        return datetime, lambda value: value.tzinfo is None and not value.fold
    if kind == pl.Duration("us"):
        return timedelta, lambda value: -_DURATION_MAX <= value <= _DURATION_MAX
    return _KEPT.get(type(kind))


def frame_of(rows: Sequence[Mapping[str, Any]], types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return rows as a frame; a column that a row does not name is NULL. Raises DataError for a value of another type."""
    try:
        return pl.DataFrame(
            [pl.Series(name, [row.get(name) for row in rows], dtype=kind, strict=True) for name, kind in types.items()]
        )
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise _other_type(error) from error


def _from_column(name: str, row: Mapping[str, Any], kind: pl.DataType) -> Any:
    """Return a value of a row as it comes back out of a column. Raises DataError."""
    column = frame_of([row], {name: kind})[name]
    try:
        return column.to_list()[0]
    except (OverflowError, pl.exceptions.PanicException) as error:  # a number that is no time of Python
        raise _other_type(error) from error


def _other_type(error: BaseException) -> DataError:
    return DataError(f"the function returned a value of another type than its schema: {error}")


class RowTypes:
    """The columns of rows that a function returns."""

    def __init__(self, types: Mapping[str, pl.DataType]) -> None:
        self.types = dict(types)
        self._kept = {name: _kept(kind) for name, kind in self.types.items()}

    def checked(self, row: Any) -> dict[str, Any]:
        """Return a row that a function returned with all columns, its values as they come back out of the columns.

        Whether and how it fits does not depend on other rows. Raises DataError.
        """
        if not isinstance(row, Mapping):
            raise DataError(f"the function returned {type(row).__name__}, not a row (a dict)")
        made = {name: row.get(name) for name in self.types}
        if not row.keys() <= made.keys():
            extra = sorted(str(name) for name in row.keys() - made.keys())
            raise DataError(f"the function returned the column {extra[0]!r}, which its schema does not have")
        for name, value in made.items():
            if value is None:
                continue
            kept = self._kept[name]
            if type(value) is datetime and value.tzinfo is UTC:
                # Most functions make such times. Columns give them back with the zone "UTC".
                value = value.replace(tzinfo=_zone())
            if kept is not None and type(value) is kept[0] and (kept[1] is None or kept[1](value)):
                made[name] = value
                continue
            made[name] = _from_column(name, made, self.types[name])
        return made

    def frame(self, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
        """Return checked rows as a frame."""
        return frame_of(rows, self.types)
