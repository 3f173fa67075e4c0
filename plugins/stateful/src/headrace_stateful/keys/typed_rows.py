"""Rows that users' functions return, as columns of declared types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from headrace.foundation.errors import DataError

#: Python types that are kept as they are. All others go through polars, which says whether and how they fit.
_PLAIN: Mapping[type[pl.DataType], type] = {
    pl.String: str, pl.Boolean: bool, pl.Float64: float, pl.Int64: int, pl.Binary: bytes,
}  # fmt: skip


def frame_of(rows: Sequence[Mapping[str, Any]], types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return rows as a frame; a column that a row does not name is NULL. Raises DataError for a value of another type."""
    try:
        return pl.DataFrame(
            [pl.Series(name, [row.get(name) for row in rows], dtype=kind, strict=True) for name, kind in types.items()]
        )
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise DataError(f"the function returned a value of another type than its schema: {error}") from error


class RowTypes:
    """The columns of rows that a function returns."""

    def __init__(self, types: Mapping[str, pl.DataType]) -> None:
        self.types = dict(types)
        self._plain = {name: _PLAIN.get(type(kind)) for name, kind in self.types.items()}

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
            kind = self._plain[name]
            if value is None or (type(value) is kind and not (type(value) is int and not -(2**63) <= value < 2**63)):
                continue
            made[name] = frame_of([made], {name: self.types[name]})[name].to_list()[0]
        return made

    def frame(self, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
        """Return checked rows as a frame."""
        return frame_of(rows, self.types)
