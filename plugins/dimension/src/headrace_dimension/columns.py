"""Columns of a table in little memory: small integer types, dictionaries for repeated texts, Arrow buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

#: A text column becomes a dictionary when it has at least so many rows per distinct value.
_ROWS_PER_VALUE_MIN = 4
_INTEGERS = (pl.UInt8, pl.Int8, pl.UInt16, pl.Int16, pl.UInt32, pl.Int32)
_CHUNK_BYTES_MAX = 2**31 - 2**20

Parts = Mapping[str, pa.Array]


class NarrowColumns:
    """Columns in small types, as Arrow arrays that may be in a mapped file. ``take`` returns rows with the declared types."""

    def __init__(self, arrays: Parts, types: Mapping[str, pl.DataType]) -> None:
        self._arrays = dict(arrays)
        self._types = dict(types)

    @classmethod
    def of(cls, frame: pl.DataFrame, order: pl.Series | None = None) -> NarrowColumns:
        """Return the columns of a frame in small types; ``order`` has the row numbers in the order to store."""
        made: dict[str, pa.Array] = {}
        types = frame.schema
        for name in types:
            # A column is narrowed before it is sorted, and freed before the next one: loading needs several times the table's memory.
            column = narrow(frame[name])
            frame = frame.drop(name)
            made[name] = compact(column if order is None else column.gather(order))
        return cls(made, types)

    def take(self, rows: pl.Series) -> pl.DataFrame:
        """Return rows by number; NULL gives a row of NULLs."""
        places = rows.to_arrow()
        taken = [pl.Series(name, _taken(array, places)) for name, array in self._arrays.items()]
        return pl.DataFrame(taken).cast(self._types)  # type: ignore[arg-type]

    def parts(self) -> Parts:
        """Return the arrays by column name."""
        return self._arrays

    def bytes(self) -> int:
        """Return the bytes of memory of the columns."""
        dictionaries = [array.dictionary for array in self._arrays.values() if isinstance(array, pa.DictionaryArray)]
        indices = [array.indices if isinstance(array, pa.DictionaryArray) else array for array in self._arrays.values()]
        return sum(int(array.nbytes) for array in [*indices, *dictionaries])


def _taken(array: pa.Array, places: pa.Array) -> pa.Array:
    if isinstance(array, pa.DictionaryArray):
        # Taking from the dictionary array itself would copy the dictionary each time.
        return array.dictionary.take(array.indices.take(places))
    return array.take(places)


def narrow(column: pl.Series) -> pl.Series:
    """Return the column in a type that takes less memory and keeps all values; the column itself if there is none."""
    kind = column.dtype
    if kind.is_integer() and column.len():
        smaller = narrow_integer(column.min(), column.max())
        return column if smaller is None else column.cast(smaller)
    if kind == pl.String and column.len() and dictionary_pays(column.n_unique(), column.len()):
        return column.cast(pl.Enum(column.drop_nulls().unique(maintain_order=True)))
    return column


def narrow_integer(low: Any, high: Any) -> type[pl.DataType] | None:
    """Return the smallest integer type that has all values from ``low`` to ``high`` (None: there is no value); None if there is none."""
    if low is None or high is None:
        return pl.UInt8
    for smaller in _INTEGERS:
        least, most = pl.select(smaller.min().alias("a"), smaller.max().alias("b")).row(0)
        if least <= low and high <= most:
            return smaller
    return None


def dictionary_pays(different: int, rows: int) -> bool:
    """Return whether a text column with so many different values is stored as a dictionary."""
    return different * _ROWS_PER_VALUE_MIN <= rows


def compact(column: pl.Series) -> pa.Array:
    """Return a column as one Arrow array; texts have 32-bit ends (Arrow's offsets) if the column has less than 2 GB."""
    array = column.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    if array.nbytes < _CHUNK_BYTES_MAX:
        if pa.types.is_large_string(array.type):
            return array.cast(pa.string())
        if pa.types.is_large_binary(array.type):
            return array.cast(pa.binary())
    return array


def runs(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return start, start + 1, …, as many numbers as the count says, for each pair of start and count, one after the other."""
    total = int(counts.sum())
    if not total:
        return np.zeros(0, dtype=np.int64)
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)[:-1]])
    result: NDArray[np.int64] = np.arange(total, dtype=np.int64) + np.repeat(starts - before, counts)
    return result
