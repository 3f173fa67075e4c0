"""Rows of a large table while it is loaded: in a file, by parts of the hash of their keys, so that few of them are in memory.

``add`` writes rows to a file without a name. ``table`` sorts one part after the other, as the index wants it, and writes keys and narrow
columns to their places in another such file, which is mapped. So a refresh needs memory for a few batches and one part,
besides the table that is in use. The pages of both tables belong to files, so the kernel can drop them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from headrace_dimension.columns import NarrowColumns, compact, dictionary_pays, narrow_integer
from headrace_dimension.exact_index import SPARE_RESTS, ExactIndex, any_null, bucket_bits, buckets_of, hashes_of
from headrace_dimension.mapped_arrays import MappedArrays

#: Rows are divided into so many parts by the upper bits of the hashes of their keys.
_PART_BITS = 6
_PARTS = 1 << _PART_BITS
#: A text column with more different values than this is stored as texts: all of them are in memory until the end.
_VALUES_MAX = 1 << 17
_PLAIN = (pl.Boolean, pl.String, pl.Binary, pl.Date, pl.Datetime, pl.Time, pl.Duration, pl.Decimal)


def can_part(columns: Mapping[str, pl.DataType]) -> bool:
    """Return whether rows of these columns can be loaded in parts: lists, structs and others cannot."""
    return all(kind.is_integer() or kind.is_float() or kind.base_type() in _PLAIN for kind in columns.values())


@dataclass
class _Facts:
    """What is known of a column, over all rows that are stored."""

    low: int | None = None
    high: int | None = None
    #: Different texts so far; None: too many of them.
    values: pl.Series | None = field(default_factory=lambda: pl.Series(dtype=pl.String))

    def add(self, column: pl.Series) -> None:
        if column.dtype.is_integer():
            low, high = column.min(), column.max()
            if isinstance(low, int) and isinstance(high, int):
                self.low = low if self.low is None else min(self.low, low)
                self.high = high if self.high is None else max(self.high, high)
        elif column.dtype == pl.String and self.values is not None:
            new = column.drop_nulls().unique()
            new = new.filter(~new.is_in(self.values.implode()))
            self.values = pl.concat([self.values, new.rename("")])
            if len(self.values) > _VALUES_MAX:
                self.values = None


class PartedRows:
    """Takes the rows of a table queue by queue and makes the table. ``add`` may be called by several threads, for a queue by one.

    ``make_file`` gives a file without a name. Raises OSError when it cannot be written.
    """

    def __init__(
        self, columns: Mapping[str, pl.DataType], keys: tuple[str, ...], make_file: Callable[[], IO[bytes]]
    ) -> None:
        self._types = dict(columns)
        self._keys = keys
        self._make_file = make_file
        self._file = make_file()
        self._end = 0
        self._lock = threading.Lock()
        #: By queue, for each batch of it the place of each part: begin and size.
        self._places: dict[int, list[list[tuple[int, int]]]] = defaultdict(list)
        self._schema: pa.Schema | None = None
        self._facts = {name: _Facts() for name in columns if name not in keys}
        self._height = 0
        self._count = 0

    def add(self, queue: int, frame: pl.DataFrame) -> None:
        """Store the next rows of a queue; those with a NULL in a key are only counted."""
        height = frame.height
        keys = frame.select(self._keys)
        missing = any_null(keys)
        if missing is not None:
            frame = frame.filter(pl.Series(~missing))
            keys = frame.select(self._keys)
        parts = _parts_of(hashes_of(keys))
        order = np.argsort(parts, kind="stable")
        ends = np.cumsum(np.bincount(parts, minlength=_PARTS)).tolist()
        table = frame[order].rechunk().to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
        batches = table.to_batches()
        pieces: list[Any] = [None] * _PARTS
        if batches:
            for part, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                pieces[part] = batches[0].slice(begin, end - begin).serialize() if end > begin else None
        with self._lock:
            self._schema = table.schema
            self._height += height
            self._count += frame.height
            self._places[queue].append([self._written(piece) for piece in pieces])
            for name, facts in self._facts.items():
                facts.add(frame[name])

    def table_parts(self) -> tuple[int, ExactIndex, NarrowColumns]:
        """Return the height of the table, its index and its columns."""
        if not self._count:
            return self._height, *_empty(self._types, self._keys)
        out = MappedArrays(self._make_file)
        try:
            return self._height, *self._made(out)
        finally:
            out.close()

    def _made(self, out: MappedArrays) -> tuple[ExactIndex, NarrowColumns]:
        bits = bucket_bits(self._count)
        counts = np.zeros(1 << bits, dtype=np.int64)
        kept = {name: self._narrowed(name) for name in self._facts}
        done = 0
        for part in range(_PARTS):
            rows = self._read(part)
            if rows is None:
                continue
            hashes = hashes_of(rows.select(self._keys))
            order = np.argsort(hashes, kind="stable")
            hashes, places = hashes[order], pl.Series(order)
            buckets = buckets_of(hashes, bits)
            first = int(buckets[0])
            counted = np.bincount(buckets - first)
            counts[first : first + len(counted)] += counted
            out.append("rests", pa.array(hashes.astype(np.uint16)))
            for number, name in enumerate(self._keys):
                out.append(f"key {number}", compact(rows[name].gather(places)))
            for name, narrowed in kept.items():
                out.append(f"column {name}", compact(narrowed(rows[name]).gather(places)))
            done += rows.height
            del rows
        assert done == self._count
        self.close()
        out.append("rests", pa.array(np.zeros(self._count + -self._count % 4 + SPARE_RESTS - done, dtype=np.uint16)))
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        out.append("starts", pa.array(starts.astype(np.uint32 if self._count < 2**32 else np.int64)))
        arrays = out.mapped()
        types = {name: self._types[name] for name in self._keys}
        keys = [arrays[f"key {number}"] for number in range(len(self._keys))]
        index = ExactIndex(types, keys, arrays["rests"].to_numpy(), arrays["starts"].to_numpy(), bits)
        columns = {name: arrays[f"column {name}"] for name in kept}
        return index, NarrowColumns(columns, {name: self._types[name] for name in kept})

    def close(self) -> None:
        """Give the file back. May be called twice."""
        with contextlib.suppress(OSError):  # what its buffer has does not matter
            self._file.close()

    def _written(self, piece: Any) -> tuple[int, int]:
        if piece is None:
            return 0, 0
        begin = self._end
        self._file.write(piece)
        self._end += len(piece)
        return begin, len(piece)

    def _read(self, part: int) -> pl.DataFrame | None:
        """Return the rows of a part, those of the first queue first."""
        self._file.flush()
        batches = []
        for queue in sorted(self._places):
            for places in self._places[queue]:
                begin, size = places[part]
                if size:
                    content = pa.py_buffer(_read_at(self._file.fileno(), begin, size))
                    batches.append(pa.ipc.read_record_batch(content, self._schema))
        if not batches:
            return None
        frame = pl.from_arrow(pa.Table.from_batches(batches))
        assert isinstance(frame, pl.DataFrame)
        return frame.cast(self._types)  # type: ignore[arg-type]

    def _narrowed(self, name: str) -> Callable[[pl.Series], pl.Series]:
        """Return what makes a column narrow; the same type for each part."""
        kind, facts = self._types[name], self._facts[name]
        if kind.is_integer():
            smaller = narrow_integer(facts.low, facts.high)
            return lambda column: column if smaller is None else column.cast(smaller)
        if kind == pl.String and facts.values is not None and dictionary_pays(len(facts.values), self._count):
            dictionary = pl.Enum(facts.values)
            return lambda column: column.cast(dictionary)
        return lambda column: column


def _empty(types: Mapping[str, pl.DataType], keys: tuple[str, ...]) -> tuple[ExactIndex, NarrowColumns]:
    frame = pl.DataFrame(schema=dict(types))
    return ExactIndex.of(frame.select(keys))[0], NarrowColumns.of(frame.drop(keys))


def _parts_of(hashes: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return (hashes >> np.uint64(64 - _PART_BITS)).astype(np.uint8)


def _read_at(descriptor: int, begin: int, size: int) -> bytes:
    found = os.pread(descriptor, size, begin)
    while len(found) < size:  # a read gives 2 GB at most
        more = os.pread(descriptor, size - len(found), begin + len(found))
        if not more:
            raise OSError("the file of a table's rows ends too early")
        found += more
    return found
