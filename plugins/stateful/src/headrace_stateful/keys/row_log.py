"""Rows kept for later, found by key: what joins and Top-N remember.

Rows are appended with growing numbers and lie in chunks. They are found through sorted runs of key hashes, which are merged as they
come so that each is at least twice the next (O'Neil et al., "The log-structured merge-tree", 1996): looking up is a binary
search per run for all keys of a batch at once. Removed rows are flagged; when most are, everything is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from headrace.interfaces.key_hashing import key_hashes
from headrace.interfaces.mapped_memory import MappedMemory
from numpy.typing import NDArray

from headrace_stateful.keys.columns import ChunkedFrame, Flags, Places, equal_rows, equal_series, grown, mapped_array

_LEAST_DEAD = 1024


def spread(starts: Places, counts: Places) -> tuple[Places, Places]:
    """Return, for ranges of numbers, which range each comes from and the number: ``starts[i]``, ``starts[i] + 1``, …"""
    owners = np.repeat(np.arange(len(counts)), counts)
    begins = np.cumsum(counts) - counts
    return owners, np.arange(len(owners)) - begins[owners] + starts[owners]


class _Run:
    """Hashes in order, each once, and for each where the rows with it are: in the order of their numbers."""

    __slots__ = ("rows", "starts", "unique")

    def __init__(self, hashes: NDArray[np.uint64], rows: Places, memory: MappedMemory | None) -> None:
        self.rows = rows
        begins = np.ones(len(hashes), dtype=bool)
        np.not_equal(hashes[1:], hashes[:-1], out=begins[1:])
        at = np.flatnonzero(begins)
        #: None: each hash is there once.
        self.starts: Places | None = None
        self.unique = hashes
        if len(at) < len(hashes):
            self.unique = hashes[at]
            self.starts = np.append(at, len(hashes))
        if memory is not None:
            self.rows, self.unique = memory.array(self.rows), memory.array(self.unique)
            self.starts = None if self.starts is None else memory.array(self.starts)

    @classmethod
    def of(cls, hashes: NDArray[np.uint64], rows: Places, memory: MappedMemory | None = None) -> _Run:
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], rows[order], memory)

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The hash of each row, in order."""
        return self.unique if self.starts is None else np.repeat(self.unique, np.diff(self.starts))

    def find(self, hashes: NDArray[np.uint64]) -> tuple[Places, Places]:
        """Return (place in ``hashes``, row) of all rows with these hashes."""
        at = np.minimum(np.searchsorted(self.unique, hashes), len(self.unique) - 1)
        hits = np.flatnonzero(self.unique[at] == hashes)
        at = at[hits]
        if self.starts is None:
            return hits, self.rows[at]
        owners, places = spread(self.starts[at], self.starts[at + 1] - self.starts[at])
        return hits[owners], self.rows[places]


class RowLog:
    """Rows with a key, in the order in which they came, and whole numbers beside each row that can be changed.

    *Places* are where rows lie now: they hold until ``tidy``. *Numbers* name rows for ever.
    """

    NUMBER = "__hr_number"

    def __init__(self, schema: Mapping[str, pl.DataType], keys: Sequence[str], marks: Sequence[str] = ()) -> None:
        self.schema = dict(schema)
        self.keys = tuple(keys)
        self._frame = ChunkedFrame(schema)
        self._numbers: Places = np.zeros(0, dtype=np.int64)
        self._hashes: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self._live: Flags = np.zeros(0, dtype=bool)
        self._marks: dict[str, Places] = {name: np.zeros(0, dtype=np.int64) for name in marks}
        self._runs: list[_Run] = []
        self._next = 0
        self._dead = 0
        #: Rows from this number on are not written down yet.
        self._written = 0
        self._removed: list[Places] = []
        self._changed: list[Places] = []
        self._memory: MappedMemory | None = None

    def use_mapped(self, memory: MappedMemory) -> None:
        """Keep rows, numbers and runs in mapped files from now on; called before there is a row."""
        self._memory = memory
        self._frame.use_mapped(memory)

    def __len__(self) -> int:
        return self._frame.height - self._dead

    # -------------------------------------------------------------------------------------------------- reading

    def find(self, keys: pl.DataFrame, names: Sequence[str]) -> tuple[Places, Places]:
        """Return (row of ``keys``, place) of all rows with these keys, ordered by both.

        ``names`` are the columns of ``keys`` that hold the key. NULL equals NULL here.
        """
        if not self._runs or keys.height == 0:
            nothing = np.zeros(0, dtype=np.int64)
            return nothing, nothing
        hashes = key_hashes(keys, names)
        found = [run.find(hashes) for run in self._runs]
        rows = np.concatenate([pair[0] for pair in found])
        places = np.concatenate([pair[1] for pair in found])
        live = self._live[places]
        if not live.all():
            rows, places = rows[live], places[live]
        if len(self._runs) > 1 and rows.size:
            # Runs are in the order of their rows, so that a stable sort leaves the places ascending.
            order = np.argsort(rows, kind="stable")
            rows, places = rows[order], places[order]
        if rows.size and self.keys:
            same = self._same_keys(places, keys.select(names)[rows])
            if not same.all():
                rows, places = rows[same], places[same]
        return rows, places

    def find_equal(self, rows: pl.DataFrame) -> Places:
        """Return for each row the place of a row that is equal in all columns, the oldest first; -1: there is none (left).

        Equal rows get different places.
        """
        owners, places = self.find(rows, self.keys)
        same = equal_rows(rows[owners] if owners.size else rows.clear(), self.take(places), list(self.schema))
        owners, places = owners[same], places[same]
        wanted = np.arange(rows.height)
        starts = np.searchsorted(owners, wanted)
        counts = np.searchsorted(owners, wanted, side="right") - starts
        turn = rows.select(pl.int_range(pl.len(), dtype=pl.Int64).over(list(self.schema)).alias("turn"))[
            "turn"
        ].to_numpy()
        result = np.full(rows.height, -1, dtype=np.int64)
        found = turn < counts
        result[found] = places[(starts + turn)[found]]
        return result

    def take(self, places: Places, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the rows at places, in that order; of ``columns`` only, when they are given."""
        return self._frame.take(places, columns)

    def is_live(self, places: Places) -> Flags:
        """Return which of these rows have not been removed."""
        return self._live[places]

    def mark(self, name: str, places: Places) -> Places:
        """Return the numbers kept beside rows."""
        return self._marks[name][places]

    def numbers(self, places: Places) -> Places:
        """Return the rows' own numbers: they grow in the order of arrival."""
        return self._numbers[places]

    def places(self) -> Places:
        """Return the places of all rows, in the order of arrival."""
        return np.flatnonzero(self._live[: self._frame.height])

    def places_where_below(self, mark: str, bound: int) -> Places:
        """Return the places of the rows whose mark is less than ``bound``."""
        count = self._frame.height
        return np.flatnonzero(self._live[:count] & (self._marks[mark][:count] < bound))

    # ------------------------------------------------------------------------------------------------- changing

    def append(self, frame: pl.DataFrame, **marks: Places) -> Places:
        """Append rows; return their places. ``marks`` gives for each mark a value per row."""
        return self._append(frame, np.arange(self._next, self._next + frame.height), marks)

    def remove(self, places: Places) -> None:
        """Forget rows, each given once."""
        if places.size:
            self._live[places] = False
            self._dead += places.size
            numbers = self._numbers[places]
            self._removed.append(numbers[numbers < self._written])

    def set_mark(self, name: str, places: Places, values: Places) -> None:
        """Change the numbers kept beside rows, each given once."""
        if places.size:
            self._marks[name][places] = values
            numbers = self._numbers[places]
            self._changed.append(numbers[numbers < self._written])

    def tidy(self) -> None:
        """Give back the room of removed rows once they are the most. Places that were got before are void after."""
        if self._dead < _LEAST_DEAD or self._dead < len(self):
            return
        places = self.places()
        count = places.size
        moved = np.full(self._frame.height, -1, dtype=np.int64)
        moved[places] = np.arange(count)
        hashes = np.concatenate([run.hashes for run in self._runs])
        rows = moved[np.concatenate([run.rows for run in self._runs])]
        kept = rows >= 0
        self._runs = [_Run.of(hashes[kept], rows[kept], self._memory)] if count else []
        self._frame.keep(places)
        memory = self._memory
        self._numbers = mapped_array(self._numbers[places], memory)
        self._hashes = mapped_array(self._hashes[places], memory)
        self._marks = {name: mapped_array(values[places], memory) for name, values in self._marks.items()}
        self._live = mapped_array(np.ones(count, dtype=bool), memory)
        self._dead = 0

    def _same_keys(self, places: Places, others: pl.DataFrame) -> Flags:
        mine = self._frame.take(places, self.keys)
        same: Flags = np.ones(places.size, dtype=bool)
        for one, other in zip(mine.get_columns(), others.get_columns(), strict=True):
            same &= equal_series(one, other)
        return same

    def _append(self, frame: pl.DataFrame, numbers: Places, marks: Mapping[str, Any]) -> Places:
        count, begin = frame.height, self._frame.height
        places = np.arange(begin, begin + count)
        if count == 0:
            return places
        end = begin + count
        hashes = key_hashes(frame, self.keys)
        self._frame.append(frame)
        memory = self._memory
        self._numbers, self._hashes = grown(self._numbers, end, 0, memory), grown(self._hashes, end, 0, memory)
        self._live = grown(self._live, end, False, memory)
        self._numbers[begin:end], self._hashes[begin:end], self._live[begin:end] = numbers, hashes, True
        for name in self._marks:
            self._marks[name] = grown(self._marks[name], end, 0, memory)
            self._marks[name][begin:end] = marks.get(name, 0)
        rows = places
        while self._runs and len(self._runs[-1].rows) < 2 * len(rows):
            before = self._runs.pop()
            hashes, rows = np.concatenate([before.hashes, hashes]), np.concatenate([before.rows, rows])
        self._runs.append(_Run.of(hashes, rows, memory))
        self._next = int(numbers[-1]) + 1
        return places

    # ---------------------------------------------------------------------------------------------------- state

    def delta(self) -> dict[str, pl.DataFrame]:
        """Return the rows that were added, removed, and whose marks changed since the last ``delta`` or ``snapshot``."""
        return self._frozen_changes()[0]()

    def _removed_and_changed(self) -> dict[str, pl.DataFrame]:
        made = {}
        if self._removed:
            made["removed"] = pl.DataFrame({self.NUMBER: np.concatenate(self._removed)})
        if self._changed:
            changed = self._places_now(np.unique(np.concatenate(self._changed)))
            made["changed"] = self._rows(changed).select(self.NUMBER, *map(_column, self._marks))
        return {name: frame for name, frame in made.items() if frame.height}

    def snapshot(self) -> dict[str, pl.DataFrame]:
        """Return all rows, as a delta to an empty log."""
        self._mark_written()
        return {"added": self._rows(self.places())}

    def frozen(self, *, whole: bool) -> tuple[Callable[[], dict[str, pl.DataFrame]], int]:
        """Return what makes the frames of ``snapshot`` or ``delta`` of now, perhaps in another thread, and their number of rows.

        The rows themselves are not copied now: their frames do not change.
        """
        if not whole:
            return self._frozen_changes()
        self._mark_written()
        places = self.places()
        count = self._frame.height
        numbers, rows = self._numbers[:count].copy(), self._frame.whole
        marks = {_column(name): values[:count].copy() for name, values in self._marks.items()}

        def make() -> dict[str, pl.DataFrame]:
            beside = pl.DataFrame(
                {self.NUMBER: numbers[places], **{name: each[places] for name, each in marks.items()}}
            )
            return {"added": pl.concat([beside, rows[places] if places.size else rows.clear()], how="horizontal")}

        return make, places.size

    def _frozen_changes(self) -> tuple[Callable[[], dict[str, pl.DataFrame]], int]:
        count = self._frame.height
        begin = int(np.searchsorted(self._numbers[:count], self._written))
        # Numbers of rows that are there stay as they are, in this array; flags and marks change in place.
        numbers, rows = self._numbers[begin:count], self._frame.whole[begin:count]
        live = self._live[begin:count].copy()
        marks = {_column(name): values[begin:count].copy() for name, values in self._marks.items()}
        others = self._removed_and_changed()
        self._mark_written()

        def make() -> dict[str, pl.DataFrame]:
            if not live.any():
                return others
            added = pl.concat([pl.DataFrame({self.NUMBER: numbers, **marks}), rows], how="horizontal")
            return {"added": added if live.all() else added.filter(pl.Series(live)), **others}

        return make, int(np.count_nonzero(live)) + sum(each.height for each in others.values())

    def apply(self, frames: Mapping[str, pl.DataFrame]) -> None:
        """Take what ``delta`` or ``snapshot`` gave."""
        if "removed" in frames:
            places = self._places_of(frames["removed"][self.NUMBER].to_numpy())
            self._live[places] = False
            self._dead += places.size
        if "changed" in frames:
            changed = frames["changed"]
            places = self._places_of(changed[self.NUMBER].to_numpy())
            for name, values in self._marks.items():
                values[places] = changed[_column(name)].to_numpy()
        if "added" in frames and frames["added"].height:
            added = frames["added"]
            self._renumber(int(added[self.NUMBER][0]))
            marks = {name: added[_column(name)].to_numpy() for name in self._marks}
            self._append(added, added[self.NUMBER].to_numpy(), marks)
        self._mark_written()
        self.tidy()

    @staticmethod
    def mark_column(mark: str) -> str:
        """Return how the column of a mark is called in what ``delta`` and ``snapshot`` give."""
        return _column(mark)

    def _rows(self, places: Places) -> pl.DataFrame:
        marks = {_column(name): values[places] for name, values in self._marks.items()}
        return pl.concat(
            [pl.DataFrame({self.NUMBER: self._numbers[places], **marks}), self._frame.take(places)], how="horizontal"
        )

    def _renumber(self, first: int) -> None:
        """Make way for rows with numbers from ``first`` on that another process has appended.

        This one may have given some of them to rows that came and went between two deltas: nobody else has ever known those.
        """
        begin = int(np.searchsorted(self._numbers[: self._frame.height], first))
        if begin < self._frame.height:
            assert not self._live[begin : self._frame.height].any(), "all rows that are left are known to the others"
            self._numbers[begin : self._frame.height] = first

    def _places_of(self, numbers: Places) -> Places:
        """Return the last place with each number: rows that were renumbered are before the one that has it now."""
        return np.searchsorted(self._numbers[: self._frame.height], numbers, side="right") - 1

    def _places_now(self, numbers: Places) -> Places:
        """Return the places of those of the rows, named by their numbers, that have not been removed."""
        places = self._places_of(numbers)
        # The place of a row whose room was given back is that of the row before it, or none.
        inside = places >= 0
        places, numbers = places[inside], numbers[inside]
        same: Flags = self._live[places] & (self._numbers[places] == numbers)
        found: Places = places[same]
        return found

    def _mark_written(self) -> None:
        self._written = self._next
        self._removed.clear()
        self._changed.clear()


def _column(mark: str) -> str:
    return f"__hr_mark_{mark}"
