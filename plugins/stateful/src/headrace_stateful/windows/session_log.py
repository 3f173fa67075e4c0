"""State of session windows: rows with a key and a stretch of time, taken out by key.

Frames lie in the order in which their rows came, and are merged as in ``partial_log``. Rows are found by a small hash of their key: a
table of marked hashes, one look-up per row. What is found is taken out with all other rows of its key; what stays open is put in
again. So a log never needs to be sorted, and only what may be due is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from headrace.interfaces.mapped_memory import MappedMemory
from numpy.typing import NDArray

from headrace_stateful.keys.columns import mapped_array, mapped_frame
from headrace_stateful.windows.partial_log import END, Merge
from headrace_stateful.windows.window_shape import FOREVER, START, Times

_BUCKET_BITS = 20
#: Frames of fewer rows are not worth merging: their rows are merged when they are taken out.
_MERGED_FROM = 1 << 18
Buckets = NDArray[np.int64]
Flags = NDArray[np.bool_]


class _Part:
    """A frame, its ends and key hashes, and which of its rows are still there."""

    __slots__ = ("_memory", "alive", "buckets", "count", "ends", "frame", "least")

    def __init__(
        self, frame: pl.DataFrame, buckets: Buckets, memory: MappedMemory | None, *, mapped: bool = False
    ) -> None:
        """``mapped``: the frame is in ``memory`` already."""
        self._memory = memory
        self.frame = frame if mapped else mapped_frame(frame, memory)
        self.buckets = mapped_array(buckets, memory)
        self.ends: Times = self.frame[END].to_numpy()
        self.alive: Flags | None = None
        self.count = frame.height
        #: No row ends before this time. Computed again after rows were removed.
        self.least: int = int(self.ends.min())

    def due(self, time_us: int) -> Buckets:
        """Return the key hashes of the rows that end at a time or before; repeated."""
        mask = self.ends <= time_us
        if self.alive is not None:
            mask &= self.alive
        return self.buckets[mask]

    def take(self, table: Flags) -> pl.DataFrame | None:
        """Take out the rows whose key hash is marked."""
        mask = table[self.buckets]
        if self.alive is not None:
            mask &= self.alive
        places = np.flatnonzero(mask)
        if not len(places):
            return None
        taken = self.frame[places]
        if self.alive is None:
            self.alive = mapped_array(np.ones(self.frame.height, dtype=bool), self._memory)
        self.alive[places] = False
        self.count -= len(places)
        self.least = int(self.ends[self.alive].min()) if self.count else FOREVER
        return taken

    def compact(self) -> _Part:
        """Return a part with only the rows that are still there."""
        if self.alive is None:
            return self
        places = np.flatnonzero(self.alive)
        return _Part(self.frame[places], self.buckets[places], self._memory)


class SessionLog:
    """A log of partial sessions; ``merge`` makes one frame of several, whose rows lie behind each other."""

    def __init__(self, schema: Mapping[str, pl.DataType], keys: Sequence[str], merge: Merge) -> None:
        self._empty = pl.DataFrame(schema=dict(schema))
        self._keys = list(keys)
        self._merge = merge
        self._stored: list[_Part] = []
        self._fresh: list[_Part] = []
        #: Keys whose stored rows were removed since the last delta.
        self._taken: list[pl.DataFrame] = []
        self._memory: MappedMemory | None = None

    def use_mapped(self, memory: MappedMemory) -> None:
        """Keep frames in mapped files from now on."""
        self._memory = memory

    def _part(self, frame: pl.DataFrame, *, mapped: bool = False) -> _Part:
        return _Part(frame, key_buckets(frame, self._keys), self._memory, mapped=mapped)

    def append(self, frame: pl.DataFrame, *, stored: bool = False, mapped: bool = False) -> None:
        """Append rows that came after all others. ``mapped``: the frame is in mapped files already, if frames are kept there."""
        if frame.height == 0:
            return
        parts = self._stored if stored else self._fresh
        frame = frame.select(self._empty.columns)
        part = self._part(frame, mapped=mapped)
        while parts and parts[-1].count < 2 * part.count:
            last = parts.pop()
            if last.count:
                part = self._two(last.compact(), part)
        parts.append(part)

    def _two(self, left: _Part, right: _Part) -> _Part:
        """Return two parts as one: few rows just behind each other."""
        both = pl.concat([left.frame, right.frame])
        if both.height < _MERGED_FROM:
            return _Part(both, np.concatenate([left.buckets, right.buckets]), self._memory)
        return self._part(self._merge(both).select(self._empty.columns))

    def closing(self, frame: pl.DataFrame, time_us: int) -> Flags:
        """Return for each row of a frame whether a session of its key may have ended at a time or before: here, or in the frame."""
        buckets = key_buckets(frame, self._keys)
        table = np.zeros(1 << _BUCKET_BITS, dtype=bool)
        table[buckets[frame[END].to_numpy() <= time_us]] = True
        for part in (*self._stored, *self._fresh):
            if part.least <= time_us:
                table[part.due(time_us)] = True
        found: Flags = table[buckets]
        return found

    def take_due(self, time_us: int) -> pl.DataFrame:
        """Take out all rows of the keys of which one ends at a time or before, in the order in which they came."""
        parts = [*self._stored, *self._fresh]
        due = [part.due(time_us) for part in parts if part.least <= time_us]
        return self._take(np.concatenate(due)) if due else self._empty

    def take_keys(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Take out all rows of some keys, and perhaps of others, in the order in which they came."""
        return self._take(key_buckets(keys, self._keys))

    def _take(self, buckets: Buckets) -> pl.DataFrame:
        table = np.zeros(1 << _BUCKET_BITS, dtype=bool)
        table[buckets] = True
        stored = [taken for part in self._stored if (taken := part.take(table)) is not None]
        self._taken += [taken.select(self._keys) for taken in stored]
        fresh = [taken for part in self._fresh if (taken := part.take(table)) is not None]
        for parts in (self._stored, self._fresh):
            parts[:] = [part if 2 * part.count > part.frame.height else part.compact() for part in parts if part.count]
        found = [*stored, *fresh]
        return pl.concat(found) if found else self._empty

    def delta(self) -> dict[str, pl.DataFrame]:
        """Return the changes since the last call: ``taken``, keys, and ``rows``; they count as stored from now on."""
        taken = pl.concat(self._taken) if self._taken else self._empty.select(self._keys)
        if self._keys:
            taken = taken.unique(maintain_order=True)
        elif self._taken:
            # Without keys there is one group, and all of it was taken: any row says so.
            taken = pl.DataFrame({START: [0]})
        # Until a checkpoint has stored them, the rows wait in mapped files, too.
        rows = mapped_frame(self._joined(self._fresh), self._memory)
        self._fresh, self._taken = [], []
        self.append(rows, stored=True, mapped=True)
        return {"taken": taken, "rows": rows}

    def whole(self) -> pl.DataFrame:
        """Return all rows, merged; they count as stored from now on."""
        rows = mapped_frame(self._joined([*self._stored, *self._fresh]), self._memory)
        self._stored, self._fresh, self._taken = [], [], []
        self.append(rows, stored=True, mapped=True)
        return rows

    def apply(self, taken: pl.DataFrame | None, rows: pl.DataFrame | None) -> None:
        """Take a delta: let go of keys, then append rows."""
        if taken is not None and taken.height:
            if not self._keys:
                self._stored = []
            else:
                kept = [
                    part.compact().frame.join(taken, on=self._keys, how="anti", nulls_equal=True, maintain_order="left")
                    for part in self._stored
                ]
                self._stored = [self._part(frame) for frame in kept if frame.height]
        if rows is not None:
            self.append(rows, stored=True)

    def clear(self) -> None:
        """Forget everything."""
        self._stored, self._fresh, self._taken = [], [], []

    def _joined(self, parts: Sequence[_Part]) -> pl.DataFrame:
        frames = [part.compact().frame for part in parts if part.count]
        if not frames:
            return self._empty
        return frames[0] if len(frames) == 1 else self._merge(pl.concat(frames)).select(self._empty.columns)

    @property
    def least_end(self) -> int:
        """Nothing ends before."""
        return min((part.least for part in (*self._stored, *self._fresh)), default=FOREVER)

    @property
    def greatest_end(self) -> int | None:
        """The last end."""
        ends = [int(part.compact().ends.max()) for part in (*self._stored, *self._fresh) if part.count]
        return max(ends, default=None)

    def __len__(self) -> int:
        return sum(part.count for part in (*self._stored, *self._fresh))


def key_buckets(frame: pl.DataFrame, keys: Sequence[str]) -> Buckets:
    """Return a small hash of each row's key: equal for equal keys, in this process. It must not be stored."""
    if not keys:
        return np.zeros(frame.height, dtype=np.int64)
    # -0.0 is 0.0, as in grouping.
    plain = [pl.col(name) + 0.0 if frame.schema[name].is_float() else pl.col(name) for name in keys]
    hashes = frame.select((pl.struct(plain) if len(plain) > 1 else plain[0]).hash()).to_series().to_numpy()
    return (hashes >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)


def key_numbers(frame: pl.DataFrame, keys: Sequence[str]) -> Times:
    """Return a number per row that is equal where the keys are: 0, 1, … in the order of their first rows."""
    if not keys:
        return np.zeros(frame.height, dtype=np.int64)
    groups = frame.select(keys).with_row_index("__hr_row").group_by(list(keys), maintain_order=True).agg("__hr_row")
    rows = groups["__hr_row"]
    counts = rows.list.len().to_numpy()
    numbers: Times = np.empty(frame.height, dtype=np.int64)
    numbers[rows.explode().to_numpy()] = np.repeat(np.arange(len(counts)), counts)
    return numbers


def sessions(numbers: Times, starts: Times, ends: Times) -> tuple[Times, Times, Times, Times]:
    """Join stretches of time of the same key that overlap or touch: a session each.

    Returns the session of each row, and per session one of its rows, its start and its end.
    """
    order = _by_key(numbers, starts)
    of_key, begin = numbers[order], starts[order]
    reach = _greatest_so_far(of_key, ends[order])
    first = np.ones(len(order), dtype=bool)
    first[1:] = (of_key[1:] != of_key[:-1]) | (begin[1:] > reach[:-1])
    at = np.flatnonzero(first)
    members: Times = np.empty(len(order), dtype=np.int64)
    members[order] = np.cumsum(first) - 1
    last = np.append(at[1:], len(order)) - 1
    return members, order[at], begin[at], reach[last]


def _by_key(numbers: Times, starts: Times) -> Times:
    """Return the order of rows by key, then by start."""
    least = int(starts.min())
    span = int(starts.max()) - least + 1
    if span * (int(numbers.max()) + 1) < FOREVER:
        return np.argsort(starts - least + numbers * span, kind="stable")
    return np.lexsort((starts, numbers))


def _greatest_so_far(of_key: Times, ends: Times) -> Times:
    """Return the greatest end so far within each key; rows lie by key."""
    least = int(ends.min())
    span = int(ends.max()) - least + 1
    if span * (int(of_key[-1]) + 1) < FOREVER:
        shifted = ends - least + of_key * span
        found: Times = np.maximum.accumulate(shifted) - of_key * span + least
        return found
    rows = pl.DataFrame({"key": of_key, "end": ends})
    return rows.select(pl.col("end").cum_max().over("key")).to_series().to_numpy()
