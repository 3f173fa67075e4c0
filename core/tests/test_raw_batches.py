"""Raw batches: cut at an end, and joined again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from headrace.flow.messages import Bodies, RawBatch, ReadPosition

RECORDS = [b"one", b"", b"three\nlines", b"four", b"five"]


def raw(first: int, end: int) -> RawBatch:
    rows = range(first, end)
    return RawBatch(
        offsets=np.array([10 + row for row in rows], dtype=np.int64),
        next_position=ReadPosition(10 + end),
        bodies=Bodies.of([RECORDS[row] for row in rows]),
        times=np.array([1000 + row for row in rows], dtype=np.int64),
        keys=[b"k" if row % 2 else None for row in rows],
        headers=[{"h": bytes([row])} for row in rows],
    )


def parts(batch: RawBatch) -> tuple[object, ...]:
    assert batch.bodies is not None
    assert batch.times is not None
    assert batch.keys is not None
    assert batch.headers is not None
    return (
        batch.offsets.tolist(), batch.next_position, list(batch.bodies), batch.times.tolist(), list(batch.keys),
        list(batch.headers),
    )  # fmt: skip


def test_pieces_joined_are_the_whole() -> None:
    assert parts(RawBatch.joined([raw(0, 2), raw(2, 3), raw(3, 5)])) == parts(raw(0, 5))
    assert parts(RawBatch.joined([raw(0, 2), raw(2, 5).until(ReadPosition(14))])) == parts(raw(0, 4))


def test_frames_are_joined_too() -> None:
    pieces = [
        RawBatch(np.array([at], dtype=np.int64), ReadPosition(at + 1), frame=pl.DataFrame({"a": [at]}))
        for at in range(3)
    ]
    whole = RawBatch.joined(pieces)
    assert whole.frame is not None
    assert whole.frame["a"].to_list() == whole.offsets.tolist() == [0, 1, 2]
    assert whole.next_position == ReadPosition(3)
    assert whole.times is None


def test_batches_of_other_fields_are_not_joined() -> None:
    first, second = (replace(raw(0, 2), fields=fields) for fields in (("a", "b"), ("b", "a")))
    assert RawBatch.joined([first, first]).fields == ("a", "b")
    assert first.until(ReadPosition(1)).fields == ("a", "b")
    with pytest.raises(ValueError, match="different fields"):
        RawBatch.joined([first, second])
