"""Columns of a table in little memory: narrow integers, dictionaries for texts that come again, one buffer for keys."""

from __future__ import annotations

import polars as pl

#: A text column becomes a dictionary when it has at most one distinct value in so many rows.
_ROWS_PER_VALUE_MIN = 4
_INTEGERS = (pl.UInt8, pl.Int8, pl.UInt16, pl.Int16, pl.UInt32, pl.Int32)


class NarrowColumns:
    """Columns held narrow. ``take`` gives rows with the types that were declared."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._types = dict(frame.schema)
        self._frame = pl.DataFrame([narrow(column) for column in frame.iter_columns()]).rechunk()
        self.height = frame.height

    def take(self, rows: pl.Series) -> pl.DataFrame:
        """Return rows by place; a NULL place gives a row of NULLs."""
        taken = self._frame.select(pl.all().gather(rows)) if self._types else pl.DataFrame()
        return taken.cast(self._types)  # type: ignore[arg-type]

    def bytes(self) -> int:
        """Return how much memory the columns take."""
        return int(self._frame.estimated_size())


def narrow(column: pl.Series) -> pl.Series:
    """Return the column in a type that takes less memory and loses nothing."""
    kind = column.dtype
    if kind.is_integer() and column.len():
        low, high = column.min(), column.max()
        if low is None or high is None:
            return column.cast(pl.UInt8)
        for smaller in _INTEGERS:
            least, most = pl.select(smaller.min().alias("a"), smaller.max().alias("b")).row(0)
            if least <= low and high <= most:
                return column.cast(smaller)
    if kind == pl.String and column.len() and column.n_unique() * _ROWS_PER_VALUE_MIN <= column.len():
        return column.cast(pl.Enum(column.drop_nulls().unique(maintain_order=True)))
    return column
