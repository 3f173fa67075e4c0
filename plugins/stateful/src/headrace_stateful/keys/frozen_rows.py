"""Rows of a slot table as they were at one moment, while the table continues to change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl

from headrace_stateful.keys.columns import Flags, Places

#: Slots that are looked at under the lock at a time: the table waits for it.
_STEP = 1 << 16


class FrozenRows:
    """Copy on write by rows: a writer copies a row out before it changes it; another thread copies all others.

    ``wanted``: the slots whose rows are frozen; it is changed. ``take`` returns the rows in slots as they are now.
    """

    def __init__(self, wanted: Flags, take: Callable[[Places], pl.DataFrame]) -> None:
        self._wanted = wanted
        self._take = take
        self._kept: list[pl.DataFrame] = []
        #: Held by a thread that changes the table, from ``keep`` on, and while rows are copied out.
        self.lock = threading.Lock()
        self.ended = False

    def keep(self, slots: Places) -> None:
        """Copy out the frozen rows of these slots, each given once, because they will change. The lock must be held."""
        if self.ended:
            return
        slots = slots[slots < self._wanted.size]
        slots = slots[self._wanted[slots]]
        if slots.size:
            self._wanted[slots] = False
            self._kept.append(self._take(slots))

    def drop(self) -> None:
        """Nobody requests the frames any more."""
        with self.lock:
            self._wanted[:] = False
            self._kept.clear()
            self.ended = True

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield each frozen row once, in no order; at least one frame. Called once, by any thread."""
        yield self._take(np.zeros(0, dtype=np.int64))
        for begin in range(0, self._wanted.size, _STEP):
            with self.lock:
                flags = self._wanted[begin : begin + _STEP]
                slots = np.flatnonzero(flags) + begin
                flags[:] = False
                made = self._take(slots)
            if made.height:
                yield made
        with self.lock:
            self.ended = True
            kept, self._kept = self._kept, []
        yield from kept
