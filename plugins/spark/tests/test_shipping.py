"""What leaves a lane for the shards of windows: rows that were combined, where that is allowed, and how far time has come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import COMBINED, INDEX, OFFSET, WATERMARK, Batch, Queue
from headrace.foundation.errors import RetriableError
from headrace.runtime.lane import Delivery, Shipment
from headrace.testing import MemorySink, MemorySource
from headrace_spark.shards.topology import Topology
from headrace_spark.transit.blobs import Blobs
from headrace_spark.transit.envelopes import Envelope
from headrace_spark.workers.shipping import Gathered, Outbox, with_frames_ahead

QUEUE = Queue("q", "source")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("combines", "rows"), [(True, 2), (False, 20)])
def test_rows_for_windows(combines: bool, rows: int) -> None:
    stream = hr.stream("test", "sent").from_(
        MemorySource({"q": []}), format="json", schema={"k": "string", "ts": "timestamp"}
    )
    counted = stream.key_by("k").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)")
    plan = counted.to(MemorySink()).plan()
    (shuffle,) = plan.shuffles
    times = [BEGIN + timedelta(seconds=at) for at in range(20)]
    columns: dict[str, Any] = {
        OFFSET: pl.Series(range(20), dtype=pl.Int64), INDEX: pl.Series([0] * 20, dtype=pl.Int32),
        WATERMARK: pl.Series([0] * 19 + [7], dtype=pl.Int64), "k": ["one"] * 20, "ts": times,
    }  # fmt: skip
    outbox = Outbox(plan, Topology(plan, 1), QUEUE, combines=combines)
    batch = Batch(QUEUE, pl.DataFrame(columns).with_columns(pl.col("ts").cast(pl.Datetime("us", "UTC"))))
    assert list(outbox.take([Shipment(shuffle, 0, QUEUE, batch)])) == []
    (sent,) = outbox.rest()
    assert sent.frame().height == sent.count == rows
    assert (COMBINED in sent.frame().columns) == combines
    # The row that had brought time on may stand in one that came before it.
    assert sent.mark == (7 if combines else None)


def _delivery(target: str, first: int, queue: Queue = QUEUE, **columns: list[Any]) -> Delivery:
    count = len(next(iter(columns.values())))
    header = {
        OFFSET: pl.Series(range(first, first + count), dtype=pl.Int64),
        INDEX: pl.Series([0] * count, dtype=pl.Int32),
    }
    return Delivery(target, Batch(queue, pl.DataFrame({**header, **columns})))


def test_rows_for_a_sink_travel_together_in_their_order() -> None:
    gathered, letters = Gathered(), QUEUE.branched("dead-letters-source")
    given = [
        _delivery("a", 0, n=[0, 1]), _delivery("b", 0, n=[0]), _delivery("a", 2, n=[2]), _delivery("letters", 1, letters, n=[1]),
        _delivery("a", 3, n=["3"]), _delivery("a", 4, n=["4"]),
    ]  # fmt: skip
    sent = [*gathered.take(given), *gathered.rest()]
    assert [(each.target, each.queue, each.first, each.last, each.count) for each in sent] == [
        ("a", QUEUE, 0, 2, 3), ("b", QUEUE, 0, 0, 1), ("letters", letters, 1, 1, 1), ("a", QUEUE, 3, 4, 2),
    ]  # fmt: skip
    assert [each.frame()["n"].to_list() for each in sent] == [[0, 1, 2], [0], [1], ["3", "4"]]
    assert list(gathered.rest()) == []


def test_rows_for_a_sink_do_not_wait_when_they_are_large() -> None:
    gathered = Gathered()
    large = [_delivery("a", first, text=["x" * 1_000] * 1_000) for first in range(0, 10_000, 1_000)]
    at_once = list(gathered.take(large[:4]))
    assert at_once == []
    sent = [*gathered.take(large[4:]), *gathered.rest()]
    assert len(sent) < len(large)
    assert pl.concat([each.frame() for each in sent])[OFFSET].to_list() == list(range(10_000))


def test_frames_that_are_read_ahead_come_in_order(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path), 0)
    frames = [pl.DataFrame({"n": range(number, number + 20_000)}) for number in range(20)]
    sent = [Envelope("rows", QUEUE, 0, 0, 20_000, payload=blobs.put(frame) or b"") for frame in frames]
    found = list(with_frames_ahead([Envelope("begin", QUEUE, 0, 0), *sent, Envelope("end", QUEUE, 0, 0)]))
    assert [each.kind for each in found] == ["begin", *["rows"] * 20, "end"]
    assert all(each.frame().equals(frame) for each, frame in zip(found[1:-1], frames, strict=True))


def test_a_frame_that_cannot_be_read_fails_behind_those_before_it(tmp_path: Path) -> None:
    place = Blobs(str(tmp_path), 0).put(pl.DataFrame({"n": range(20_000)}))
    assert place is not None
    whole = [Envelope("rows", QUEUE, 0, 0, 20_000, payload=place)] * 3
    found = with_frames_ahead([*whole, Envelope("rows", QUEUE, 0, 0, 20_000, payload=place + b"-gone"), *whole])
    for _ in whole:
        assert next(found).frame().height == 20_000
    with pytest.raises(RetriableError, match="cannot be read"):
        next(found)
