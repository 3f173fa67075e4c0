"""Which rows of a batch are done, so that the next call for it sends only the others.

The writer repeats a call after a retriable error, and halves a batch to find the bad rows in it. The server's answer has a
result for each row, so no row needs to be sent twice.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from headrace.flow.messages import INDEX, OFFSET
from headrace.interfaces.sink import SinkBatch
from numpy.typing import NDArray

TO_DO, STORED, REFUSED = 0, 1, 2


class Progress:
    """The rows of a batch, each to do, stored or refused. Used by one thread at a time."""

    def __init__(self, batch: SinkBatch) -> None:
        self._offsets = batch.frame[OFFSET].to_numpy()
        self._indexes = batch.frame[INDEX].to_numpy()
        self._states = np.zeros(len(batch), dtype=np.int8)
        self._reasons: dict[int, str] = {}

    def place_of(self, batch: SinkBatch) -> slice | None:
        """Return where the rows of a batch are among these; None when it is not a part of them."""
        first = batch.first
        begin = int(np.searchsorted(self._offsets, first.offset))
        while (
            begin < len(self._offsets) and self._offsets[begin] == first.offset and self._indexes[begin] < first.index
        ):
            begin += 1
        place = slice(begin, begin + len(batch))
        same = np.array_equal(self._offsets[place], batch.frame[OFFSET].to_numpy()) and np.array_equal(
            self._indexes[place], batch.frame[INDEX].to_numpy()
        )
        return place if same else None

    def to_do(self, place: slice) -> NDArray[np.int64]:
        """Return the rows of a part that are neither stored nor refused."""
        found: NDArray[np.int64] = np.flatnonzero(self._states[place] == TO_DO) + place.start
        return found

    def store(self, rows: NDArray[np.int64]) -> None:
        """Mark these rows as stored."""
        self._states[rows] = STORED

    def refuse(self, row: int, reason: str) -> None:
        """Mark a row that can never be stored."""
        self._states[row] = REFUSED
        self._reasons[row] = reason

    def refused(self, place: slice) -> list[str]:
        """Return why rows of a part are refused, in their order."""
        return [self._reasons[row] for row in (np.flatnonzero(self._states[place] == REFUSED) + place.start).tolist()]

    @property
    def clean(self) -> bool:
        """Whether every row is stored: then no further call comes."""
        return bool((self._states == STORED).all())


def rows_of(batch: SinkBatch, rows: NDArray[np.int64], place: slice) -> SinkBatch:
    """Return the batch with only these rows of a progress."""
    if len(rows) == len(batch):
        return batch
    taken = batch.frame[(rows - place.start).tolist()] if len(rows) else batch.frame.clear()
    return SinkBatch(batch.queue, taken, batch.after, batch.writer)


def chosen(identities: pl.Series | None, count: int, *, first: bool) -> NDArray[np.bool_]:
    """Return which rows to send: of those that concern the same document only the first, or the last."""
    if identities is None:
        return np.ones(count, dtype=np.bool_)
    mask = identities.is_first_distinct() if first else identities.is_last_distinct()
    return mask.to_numpy()
