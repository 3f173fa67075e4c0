"""The rows of a batch that are stored, over repeated and halved calls."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Queue
from headrace.foundation.errors import DataError
from headrace.interfaces.sink import SinkBatch
from headrace.interfaces.sink_progress import SinkProgresses

_QUEUE = Queue("source", "0")


def batch_of(*offsets: int) -> SinkBatch:
    frame = pl.DataFrame({OFFSET: offsets, INDEX: [0] * len(offsets)}, schema={OFFSET: pl.Int64, INDEX: pl.Int32})
    return SinkBatch(_QUEUE, frame, None, "writer")


def test_a_part_of_a_batch_goes_on_where_the_batch_was_left() -> None:
    progresses, whole = SinkProgresses(), batch_of(5, 6, 7, 8)
    progress, place = progresses.begin(whole)
    assert place == slice(0, 4)
    progress.store(np.array([0, 2]))
    again, half = progresses.begin(batch_of(7, 8))
    assert again is progress
    assert half == slice(2, 4)
    assert again.to_do(half).tolist() == [3]


def test_refused_rows_are_told_and_a_batch_that_is_stored_is_forgotten() -> None:
    progresses, whole = SinkProgresses(), batch_of(1, 2, 3)
    progress, place = progresses.begin(whole)
    progress.refuse(0, "no number")
    progress.refuse(2, "no text")
    with pytest.raises(DataError, match=r"no number \(and 1 more of 3 rows\)") as told:
        progresses.end(whole, place, "mine")
    assert told.value.plugin == "mine"
    assert progresses.begin(whole)[0] is progress
    other = batch_of(9)
    stored, place = progresses.begin(other)
    stored.store(np.array([0]))
    progresses.end(other, place, "mine")
    assert progresses.begin(other)[0] is not stored


def test_a_queue_that_is_removed_is_forgotten() -> None:
    progresses, whole = SinkProgresses(), batch_of(1)
    progress, _ = progresses.begin(whole)
    progresses.forget(_QUEUE)
    assert progresses.begin(whole)[0] is not progress
