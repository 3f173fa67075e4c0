"""Timers of keys: when they are due, in order, and what of them has changed."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

import polars as pl

EVENT = 0
PROCESSING = 1

_Timer = tuple[int, int, int]  # kind, time, slot
_PART_ROWS = 8192
_TYPES = {"kind": pl.Int64(), "time": pl.Int64(), "slot": pl.Int64(), "number": pl.Int64()}


class TimerQueue:
    """Each (kind, time, slot) at most once. Due in the order of time, then of setting."""

    def __init__(self) -> None:
        self._numbers: dict[_Timer, int] = {}
        #: Per kind (time, number, slot); timers that were cancelled since are still in it.
        self._heaps: tuple[list[tuple[int, int, int]], ...] = ([], [])
        self._per_slot: Counter[int] = Counter()
        self._next = 0
        #: Changed since it was last written: whether it was known then.
        self._changed: dict[_Timer, bool] = {}

    def change(self, slot: int, kind: int, time_us: int, *, is_set: bool) -> None:
        """Set a timer, or take it back."""
        timer = (kind, time_us, slot)
        if is_set and timer not in self._numbers:
            self._changed.setdefault(timer, False)
            self._add(timer, self._next)
        elif not is_set and timer in self._numbers:
            self._changed.setdefault(timer, True)
            self._remove(timer)

    def due(self, kind: int, until_us: int) -> Iterator[tuple[int, int]]:
        """Remove and yield (slot, time) of all timers up to a time, also of those that are set during the iteration."""
        heap = self._heaps[kind]
        while heap and heap[0][0] <= until_us:
            time_us, number, slot = heapq.heappop(heap)
            timer = (kind, time_us, slot)
            if self._numbers.get(timer) == number:
                self._changed.setdefault(timer, True)
                self._remove(timer)
                yield slot, time_us

    def last(self, kind: int) -> int | None:
        """Return the time of the last timer of a kind."""
        return max((time_us for each, time_us, _ in self._numbers if each == kind), default=None)

    def has(self, slot: int) -> bool:
        """Return whether a slot has timers."""
        return self._per_slot[slot] > 0

    def delta(self) -> dict[str, pl.DataFrame]:
        """Return the timers that were set and taken out since the last ``delta`` or ``snapshot``."""
        return self.frozen(whole=False)[0]()

    def snapshot(self) -> dict[str, pl.DataFrame]:
        """Return all timers, as a delta to an empty queue."""
        return self.frozen(whole=True)[0]()

    def frozen(self, *, whole: bool) -> tuple[Callable[[], dict[str, pl.DataFrame]], int]:
        """Return what makes the frames of ``snapshot`` or ``delta`` of now, perhaps in another thread, and their number of rows."""
        changed, self._changed = self._changed, {}
        if whole:
            numbers = self._numbers.copy()
            return lambda: {"added": _frame(numbers.items())}, len(numbers)
        now = list(map(self._numbers.get, changed))  # the number of each that is there

        def make() -> dict[str, pl.DataFrame]:
            removed = _frame((timer, 0) for timer, was_known in changed.items() if was_known)
            added = _frame((timer, number) for timer, number in zip(changed, now, strict=True) if number is not None)
            return {name: frame for name, frame in (("removed", removed), ("added", added)) if frame.height}

        return make, len(changed)

    def apply(self, frames: Mapping[str, pl.DataFrame]) -> None:
        """Take what ``delta`` or ``snapshot`` gave."""
        for kind, time_us, slot, _ in frames["removed"].rows() if "removed" in frames else ():
            self._remove((kind, time_us, slot))
        for kind, time_us, slot, number in frames["added"].rows() if "added" in frames else ():
            self._add((kind, time_us, slot), number)
        self._changed.clear()

    def _add(self, timer: _Timer, number: int) -> None:
        kind, time_us, slot = timer
        self._numbers[timer] = number
        self._per_slot[slot] += 1
        self._next = max(self._next, number + 1)
        heapq.heappush(self._heaps[kind], (time_us, number, slot))

    def _remove(self, timer: _Timer) -> None:
        del self._numbers[timer]
        self._per_slot[timer[2]] -= 1
        if not self._per_slot[timer[2]]:
            del self._per_slot[timer[2]]


def _frame(timers: Iterable[tuple[_Timer, int]]) -> pl.DataFrame:
    """Return timers with their numbers. They are put together in parts, between which other threads can run."""
    rows = iter(timers)
    parts = [pl.DataFrame(schema=_TYPES)]
    while some := [(*timer, number) for timer, number in islice(rows, _PART_ROWS)]:
        parts.append(pl.DataFrame(some, schema=_TYPES, orient="row"))
    return pl.concat(parts)
