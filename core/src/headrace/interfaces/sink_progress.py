"""Records which rows of a batch a sink has stored, for sinks whose server answers for each row or request.

The writer repeats a call after a retriable error, and halves a batch to find the bad rows in it. A sink with
``SinkProgresses`` sends only the remaining rows then, so that no row is sent twice in one run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.flow.messages import INDEX, OFFSET, Queue
from headrace.foundation.errors import DataError
from headrace.interfaces.sink import SinkBatch

_TO_DO, _STORED, _REFUSED = 0, 1, 2


class SinkProgress:
    """The rows of a batch, each with its outcome: open, stored or refused. Several threads may note the outcomes of
    different rows.
    """

    def __init__(self, batch: SinkBatch) -> None:
        self._offsets = batch.frame[OFFSET].to_numpy()
        self._indexes = batch.frame[INDEX].to_numpy()
        self._states = np.zeros(len(batch), dtype=np.int8)
        self._reasons: dict[int, str] = {}

    def place_of(self, batch: SinkBatch) -> slice | None:
        """Return the places of a batch's rows among these rows; None if the batch is not a part of them."""
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
        found: NDArray[np.int64] = np.flatnonzero(self._states[place] == _TO_DO) + place.start
        return found

    def store(self, rows: NDArray[np.int64]) -> None:
        """Mark these rows as stored."""
        self._states[rows] = _STORED

    def refuse(self, row: int, reason: str) -> None:
        """Mark a row that can never be stored."""
        self._states[row] = _REFUSED
        self._reasons[row] = reason

    def refused(self, place: slice) -> list[str]:
        """Return the reasons of the refused rows of a part, in their order."""
        return [self._reasons[row] for row in (np.flatnonzero(self._states[place] == _REFUSED) + place.start).tolist()]

    @property
    def clean(self) -> bool:
        """Whether every row is stored. Then the writer makes no further call for them."""
        return bool((self._states == _STORED).all())


class SinkProgresses:
    """The progress of each queue's last batch, until all of its rows are stored. A sink has one object and calls it in
    ``batch_insert``.

    Several threads may call it for different queues.
    """

    def __init__(self) -> None:
        self._of_queues: dict[Queue, SinkProgress] = {}

    def begin(self, batch: SinkBatch) -> tuple[SinkProgress, slice]:
        """Return the progress of a batch, and the places of its rows in it.

        It is a new one if the batch is not a part of the queue's last batch.
        """
        progress = self._of_queues.get(batch.queue)
        place = progress.place_of(batch) if progress is not None else None
        if progress is None or place is None:
            progress, place = SinkProgress(batch), slice(0, len(batch))
            self._of_queues[batch.queue] = progress
        return progress, place

    def end(self, batch: SinkBatch, place: slice, plugin: str) -> None:
        """Forget the progress that ``begin`` returned if all is stored. Raises DataError when rows of the batch are
        refused.
        """
        progress = self._of_queues[batch.queue]
        if reasons := progress.refused(place):
            more = f" (and {len(reasons) - 1} more of {len(batch)} rows)" if len(batch) > 1 else ""
            raise DataError(reasons[0] + more, plugin=plugin)
        if progress.clean:
            del self._of_queues[batch.queue]

    def forget(self, queue: Queue) -> None:
        """Drop the progress of a queue that is removed."""
        self._of_queues.pop(queue, None)

    def clear(self) -> None:
        """Drop the progress of all queues. Called when the sink is closed."""
        self._of_queues.clear()


def rows_of(batch: SinkBatch, rows: NDArray[np.int64], place: slice) -> SinkBatch:
    """Return the batch with only these rows of a progress."""
    if len(rows) == len(batch):
        return batch
    taken = batch.frame[(rows - place.start).tolist()] if len(rows) else batch.frame.clear()
    return SinkBatch(batch.queue, taken, batch.after, batch.writer)
