"""Columns of a table in little memory: narrow integers, dictionaries for texts that come again, Arrow buffers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

#: A text column becomes a dictionary when it has at most one distinct value in so many rows.
_ROWS_PER_VALUE_MIN = 4
_INTEGERS = (pl.UInt8, pl.Int8, pl.UInt16, pl.Int16, pl.UInt32, pl.Int32)
_CHUNK_BYTES_MAX = 2**31 - 2**20

Parts = Mapping[str, pa.Array]


class NarrowColumns:
    """Columns held narrow, as Arrow arrays that may lie in a mapped file. ``take`` gives rows with the declared types."""

    def __init__(self, arrays: Parts, types: Mapping[str, pl.DataType]) -> None:
        self._arrays = dict(arrays)
        self._types = dict(types)

    @classmethod
    def of(cls, frame: pl.DataFrame, order: pl.Series | None = None) -> NarrowColumns:
        """Return the columns of a frame, narrowed, with the rows in the order of these places."""
        made: dict[str, pa.Array] = {}
        types = frame.schema
        for name in types:
            # Narrow before it is sorted, and gone before the next: loading takes several times what the table does.
            column = narrow(frame[name])
            frame = frame.drop(name)
            made[name] = compact(column if order is None else column.gather(order))
        return cls(made, types)

    def take(self, rows: pl.Series) -> pl.DataFrame:
        """Return rows by place; a NULL place gives a row of NULLs."""
        places = rows.to_arrow()
        taken = [pl.Series(name, _taken(array, places)) for name, array in self._arrays.items()]
        return pl.DataFrame(taken).cast(self._types)  # type: ignore[arg-type]

    def parts(self) -> Parts:
        """Return the arrays by column name."""
        return self._arrays

    def bytes(self) -> int:
        """Return how much memory the columns take."""
        dictionaries = [array.dictionary for array in self._arrays.values() if isinstance(array, pa.DictionaryArray)]
        indices = [array.indices if isinstance(array, pa.DictionaryArray) else array for array in self._arrays.values()]
        return sum(int(array.nbytes) for array in [*indices, *dictionaries])


def _taken(array: pa.Array, places: pa.Array) -> pa.Array:
    if isinstance(array, pa.DictionaryArray):
        # Taking from the dictionary array itself would copy the dictionary each time.
        return array.dictionary.take(array.indices.take(places))
    return array.take(places)


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


def compact(column: pl.Series) -> pa.Array:
    """Return a column as Arrow, texts in one buffer with 32-bit ends where they fit."""
    array = column.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    if array.nbytes < _CHUNK_BYTES_MAX:
        if pa.types.is_large_string(array.type):
            return array.cast(pa.string())
        if pa.types.is_large_binary(array.type):
            return array.cast(pa.binary())
    return array


def runs(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return starts[0], starts[0] + 1, … for each run of a count, one run after the other."""
    total = int(counts.sum())
    if not total:
        return np.zeros(0, dtype=np.int64)
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)[:-1]])
    result: NDArray[np.int64] = np.arange(total, dtype=np.int64) + np.repeat(starts - before, counts)
    return result
