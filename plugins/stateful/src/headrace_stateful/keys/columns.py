"""Columns of state: addressed by slot (``SlotColumns``) or appended in chunks (``ChunkedFrame``).

Values of fixed width lie in numpy arrays that are written in place. Texts, bytes, decimals and nested values are immutable in
polars: a new value is appended to a log and the slot points at it; when more of the log is dead than alive it is rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import polars as pl
from headrace.interfaces.mapped_memory import MappedMemory
from numpy.typing import NDArray

Places = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Logs are not rewritten for fewer dead rows than this.
_LEAST_DEAD = 1024
#: Chunks in files are not merged if they are that large, and not made larger: a merge needs them in memory.
_MAPPED_CHUNK_BYTES = 1 << 25
#: Arrays with so many values are made longer where they are.
_IN_PLACE_MIN = 1 << 20


class ChunkedFrame:
    """A frame that grows at its end. Chunks are merged so that each is at least twice the next: few chunks, few copies."""

    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        self.schema = dict(schema)
        self._chunks: list[pl.DataFrame] = []
        self._whole: pl.DataFrame = pl.DataFrame(schema=self.schema)
        self._memory: MappedMemory | None = None
        self.height = 0

    def use_mapped(self, memory: MappedMemory) -> None:
        """Keep chunks in mapped files from now on."""
        self._memory = memory

    def append(self, frame: pl.DataFrame) -> None:
        """Append rows; the columns are picked by name."""
        if frame.height == 0:
            return
        chunk = self.rows_of(frame)
        merged = False
        while self._chunks and self._chunks[-1].height < 2 * chunk.height and self._is_small(self._chunks[-1]):
            chunk = pl.concat([self._chunks.pop(), chunk], rechunk=True)
            merged = True
        chunk = chunk if merged else chunk.rechunk()
        self._chunks.append(mapped_frame(chunk, self._memory))
        self.height += frame.height
        self._whole = self._chunks[0] if len(self._chunks) == 1 else pl.concat(self._chunks, rechunk=False)

    def rows_of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the columns that are held."""
        columns = list(self.schema)
        return frame if frame.columns == columns else frame.select(columns)

    def take(self, rows: Places, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the rows at these places, in that order; of ``columns`` only, when they are given."""
        if columns is not None and not columns:
            return pl.DataFrame(height=rows.size)
        whole = self._whole if columns is None else self._whole.select(columns)
        return whole[rows] if rows.size else whole.clear()

    def look(self, rows: Places) -> pl.DataFrame:
        """Return the rows at these places, in that order, to be read at once: they may be part of the chunks, which it keeps alive."""
        if rows.size and rows[-1] - rows[0] == rows.size - 1 and (np.diff(rows) == 1).all():
            return self._whole[int(rows[0]) : int(rows[-1]) + 1]
        return self.take(rows)

    @property
    def whole(self) -> pl.DataFrame:
        """All rows, in their order. The frame stays as it is when rows are appended."""
        return self._whole

    def size_bytes(self) -> int:
        """Return how many bytes the rows take."""
        return int(self._whole.estimated_size())

    def keep(self, rows: Places) -> None:
        """Hold only the rows at these places, in that order."""
        if self._memory is None or not rows.size:
            self.replace(self.take(rows).rechunk())
            return
        step = max(1, _MAPPED_CHUNK_BYTES * self.height // max(1, self.size_bytes()))
        pieces = [rows[begin : begin + step] for begin in range(0, rows.size, step)]
        self._chunks = [self._memory.frame(self.take(piece).rechunk()) for piece in pieces]
        self._whole = self._chunks[0] if len(self._chunks) == 1 else pl.concat(self._chunks, rechunk=False)
        self.height = rows.size

    def _is_small(self, chunk: pl.DataFrame) -> bool:
        return self._memory is None or chunk.estimated_size() < _MAPPED_CHUNK_BYTES

    def replace(self, frame: pl.DataFrame) -> None:
        """Hold these rows instead."""
        self._chunks = [frame] if frame.height else []
        self._whole = frame
        self.height = frame.height


def mapped_frame(frame: pl.DataFrame, memory: MappedMemory | None) -> pl.DataFrame:
    """Return a frame with the same rows in mapped files, or the frame itself without a limit for memory."""
    return frame if memory is None else memory.frame(frame)


def mapped_array(values: NDArray[Any], memory: MappedMemory | None) -> NDArray[Any]:
    """Return the same values in mapped files, or the array itself without a limit for memory."""
    return values if memory is None else memory.array(values)


def grown(values: NDArray[Any], size: int, fill: Any = 0, memory: MappedMemory | None = None) -> NDArray[Any]:
    """Return an array with room for ``size`` values: itself, or a copy at least half as big again, in ``memory`` if there is one."""
    if size <= len(values):
        return values
    count = max(size, len(values) * 3 // 2, 16)
    if memory is not None:
        return memory.grown(values, count, fill)
    # Zeros need no memory until they are written.
    larger = np.full(count, fill, dtype=values.dtype) if fill else np.zeros(count, dtype=values.dtype)
    larger[: len(values)] = values
    return larger


def grown_in_place(values: NDArray[Any], size: int, fill: Any = 0, memory: MappedMemory | None = None) -> NDArray[Any]:
    """Do what ``grown`` does, except that a large array is made longer where it is. Nobody else may have it, or a part of it.

    What is there is not copied, so it grows in small steps: to give a process memory takes most of the time, and all columns of a table
    grow at once.
    """
    if size <= len(values) or memory is not None or len(values) < _IN_PLACE_MIN:
        return grown(values, size, fill, memory)
    before = len(values)
    values.resize(max(size, before + before // 16), refcheck=False)
    if fill:
        values[before:] = fill
    return values


@cache
def _physical(data_type: pl.DataType) -> tuple[pl.DataType, np.dtype[Any]]:
    """Return as what values of a type lie in memory, for polars and for numpy."""
    empty = pl.Series([], dtype=data_type).to_physical()
    return empty.dtype, empty.to_numpy().dtype


class _FixedColumn:
    """Values of fixed width, with a flag for NULL where there ever was one."""

    def __init__(self, data_type: pl.DataType) -> None:
        self._type = data_type
        self._physical, kind = _physical(data_type)
        self._values: NDArray[Any] = np.zeros(0, dtype=kind)
        self._null: Flags | None = None
        self.memory: MappedMemory | None = None

    @property
    def values(self) -> NDArray[Any]:
        return self._values

    def reserve(self, size: int) -> None:
        self._values = grown_in_place(self._values, size, memory=self.memory)
        if self._null is not None:
            self._null = grown_in_place(self._null, len(self._values), False, self.memory)

    def put(self, slots: Places, column: pl.Series) -> None:
        nulls = column.is_null().to_numpy() if column.null_count() else None
        self._values[slots] = self._numpy(column)
        if nulls is not None and self._null is None:
            self._null = np.zeros(len(self._values), dtype=bool)
        if self._null is not None:
            self._null[slots] = False if nulls is None else nulls

    def take(self, slots: Places, name: str) -> pl.Series:
        column = pl.Series(name, self._values[slots], dtype=self._physical)
        if self._null is not None:
            nulls = self._null[slots]
            if nulls.any():
                column = column.set(pl.Series(nulls), None)
        return column.cast(self._type) if self._physical != self._type else column

    def equal(self, slots: Places, column: pl.Series) -> Flags:
        mine, others = self._values[slots], self._numpy(column)
        same: Flags = mine == others
        if mine.dtype.kind == "f":
            same |= np.isnan(mine) & np.isnan(others)
        null = column.is_null().to_numpy() if column.null_count() else None
        if self._null is None:
            return same if null is None else same & ~null
        own = self._null[slots]
        return same & ~own if null is None else np.where(own | null, own & null, same)

    def _numpy(self, column: pl.Series) -> NDArray[Any]:
        physical = column.to_physical()
        if physical.null_count():
            physical = physical.fill_null(False if physical.dtype == pl.Boolean else 0)
        return physical.to_numpy()


class SlotColumns:
    """Named columns with a value per slot. Slots that were never put hold anything."""

    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        self.schema = dict(schema)
        self._fixed = {name: _FixedColumn(kind) for name, kind in self.schema.items() if _is_fixed(kind)}
        long = {name: kind for name, kind in self.schema.items() if name not in self._fixed}
        self._log = ChunkedFrame(long) if long else None
        # A list may be long: few dead ones may be much.
        self._least_dead = 16 if any(kind.is_nested() for kind in long.values()) else _LEAST_DEAD
        self._row: Places = np.zeros(0, dtype=np.int64)
        self._capacity = 0
        self._dead = 0
        self._memory: MappedMemory | None = None

    def use_mapped(self, memory: MappedMemory) -> None:
        """Keep values in mapped files from now on; called before there are any."""
        self._memory = memory
        for column in self._fixed.values():
            column.memory = memory
        if self._log is not None:
            self._log.use_mapped(memory)

    def reserve(self, size: int) -> None:
        """Make room for slots 0 to ``size`` - 1."""
        if size <= self._capacity:
            return
        in_place = self._memory is None and self._capacity >= _IN_PLACE_MIN
        self._capacity = max(size, self._capacity * 17 // 16 if in_place else self._capacity * 3 // 2, 16)
        for column in self._fixed.values():
            column.reserve(self._capacity)
        if self._log is not None:
            self._row = grown_in_place(self._row, self._capacity, -1, self._memory)

    def put(self, slots: Places, frame: pl.DataFrame) -> None:
        """Set the values of slots, each given at most once; row i of the frame is for ``slots[i]``."""
        if slots.size == 0:
            return
        for name, column in self._fixed.items():
            column.put(slots, frame[name])
        if self._log is not None:
            replaced = int(np.count_nonzero(self._row[slots] >= 0))
            if replaced and replaced == self._log.height - self._dead:  # none of the previous rows is left
                self._log.replace(self._log.rows_of(frame).rechunk())
                self._row[slots] = np.arange(slots.size)
                self._dead = 0
                return
            self._dead += replaced
            begin = self._log.height
            self._log.append(frame)
            self._row[slots] = np.arange(begin, begin + slots.size)
            self._tidy()

    def take(self, slots: Places) -> pl.DataFrame:
        """Return the values of slots, in that order."""
        long = None if self._log is None else self._log.look(self._row[slots])
        columns = [
            self._fixed[name].take(slots, name) if name in self._fixed else long[name]  # type: ignore[index]
            for name in self.schema
        ]
        return pl.DataFrame(columns) if columns else pl.DataFrame(height=slots.size)

    def numbers(self, name: str) -> NDArray[Any]:
        """Return the values of a column of fixed width, by slot. They are the column's own: not to be changed."""
        return self._fixed[name].values

    def equal(self, slots: Places, frame: pl.DataFrame) -> Flags:
        """Return for each row of the frame whether it equals the row in its slot: NULL equals NULL, NaN equals NaN."""
        same: Flags = np.ones(slots.size, dtype=bool)
        for name, column in self._fixed.items():
            same &= column.equal(slots, frame[name])
        if self._log is not None and slots.size:
            long = self._log.take(self._row[slots])
            for name in long.columns:
                same &= equal_series(long[name], frame[name])
        return same

    def long_bytes(self) -> int:
        """Return how many bytes the values without a fixed width take, dead values included."""
        return 0 if self._log is None else self._log.size_bytes()

    def drop(self, slots: Places) -> None:
        """Give back what these slots hold."""
        if self._log is not None and slots.size:
            self._dead += int(np.count_nonzero(self._row[slots] >= 0))
            self._row[slots] = -1
            self._tidy()

    def _tidy(self) -> None:
        assert self._log is not None
        if self._dead < self._least_dead or self._dead * 2 < self._log.height:
            return
        slots = np.flatnonzero(self._row >= 0)
        self._log.keep(self._row[slots])
        self._row[slots] = np.arange(slots.size)
        self._dead = 0


def equal_series(left: pl.Series, right: pl.Series) -> Flags:
    """Return row by row whether two columns of one type are equal: NULL equals NULL, NaN NaN."""
    return left.eq_missing(right).to_numpy()


def equal_rows(left: pl.DataFrame, right: pl.DataFrame, columns: Sequence[str]) -> Flags:
    """Return row by row whether two frames are equal in these columns: NULL equals NULL, NaN NaN, 0.0 -0.0."""
    same: Flags = np.ones(left.height, dtype=bool)
    for name in columns:
        same &= equal_series(left[name], right[name])
    return same


def _is_fixed(kind: pl.DataType) -> bool:
    if kind in (pl.Int128, pl.Categorical, pl.Enum):
        return False
    return kind.is_integer() or kind.is_float() or kind.is_temporal() or kind == pl.Boolean
