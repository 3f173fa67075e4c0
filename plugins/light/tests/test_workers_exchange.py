"""What crosses between the engine and its worker processes: bytes in slots, batches, frames, errors, and the job."""

from __future__ import annotations

import os
import threading

import headrace as hr
import msgspec
import numpy as np
import polars as pl
import pytest
from headrace.flow.messages import Batch, Bodies, Queue, RawBatch, ReadPosition, Watermark
from headrace.foundation.errors import JobFailedError, PlanError, RetriableError
from headrace.runtime.lane import Delivery, Lane, Shipment
from headrace.testing import MemorySink, MemorySource
from headrace_light.workers.exchange import (
    Answer,
    Request,
    buffers_of,
    outcome_of,
    packed_error,
    raw_batch_of,
    told,
)
from headrace_light.workers.slots import Slot
from headrace_light.workers.travelling_plan import packed, unpacked
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples


@settings(max_examples=examples(100), deadline=None)
@given(parts=st.lists(st.lists(st.binary(max_size=200), max_size=4), min_size=1, max_size=6), grown=st.booleans())
def test_a_slot_gives_the_other_side_what_was_written(parts: list[list[bytes]], grown: bool) -> None:
    writer = Slot()
    reader = Slot(os.dup(writer.descriptor))
    try:
        for number, each in enumerate(parts):
            written = [*each, bytes([number]) * (3 << 20)] if grown and number % 2 else each
            capacity, sizes = writer.write(written)
            found = reader.read(capacity, sizes)
            assert [bytes(part) for part in found] == written
            del found
    finally:
        writer.close()
        reader.close()


def test_a_slot_that_has_grown_is_read_while_parts_of_before_are_held() -> None:
    writer = Slot()
    reader = Slot(os.dup(writer.descriptor))
    [held] = reader.read(*writer.write([b"small"]))
    [large] = reader.read(*writer.write([b"x" * (3 << 20)]))
    assert len(held) == 5
    assert bytes(large) == b"x" * (3 << 20)
    writer.close()
    reader.close()


def test_a_slot_does_not_keep_the_memory_of_one_large_batch() -> None:
    slot = Slot()
    large, _ = slot.write([bytes(80 << 20)])
    small, sizes = slot.write([b"x"])
    assert (large, small) == (128 << 20, 1 << 20)
    assert bytes(slot.read(small, sizes)[0]) == b"x"
    assert os.fstat(slot.descriptor).st_size == small
    slot.close()


@settings(max_examples=examples(200), deadline=None)
@given(
    bodies=st.lists(st.binary(max_size=20), max_size=20),
    has_times=st.booleans(),
    has_keys=st.booleans(),
    has_headers=st.booleans(),
    fields=st.none() | st.lists(st.text(max_size=3), max_size=3).map(tuple),
    taken=st.booleans(),
)
def test_a_raw_batch_crosses_as_it_is(
    bodies: list[bytes],
    has_times: bool,
    has_keys: bool,
    has_headers: bool,
    fields: tuple[str, ...] | None,
    taken: bool,
) -> None:
    count = len(bodies)
    held = Bodies.of(bodies)
    if taken:  # bodies that a filter has left, in another order of the buffer
        order = np.arange(count, dtype=np.int64)[::-1]
        held, bodies = held.take(order), bodies[::-1]
    raw = RawBatch(
        np.arange(count, dtype=np.int64) * 3,
        ReadPosition(3 * count),
        bodies=held,
        times=np.arange(count, dtype=np.int64) if has_times else None,
        keys=[None if n % 2 else b"k%d" % n for n in range(count)] if has_keys else None,
        headers=[{"h": b"%d" % n} for n in range(count)] if has_headers else None,
        fields=fields,
    )
    request = Request(
        queue=("q", "s", ""), has_times=has_times, newline_separated=held.newline_separated,
        keys=None if raw.keys is None else list(raw.keys),
        headers=None if raw.headers is None else [dict(each) for each in raw.headers], fields=raw.fields,
    )  # fmt: skip
    request = Request.read(msgspec.msgpack.encode(request))
    found = raw_batch_of(request, [memoryview(bytes(part)) for part in buffers_of(raw)])
    assert found.offsets.tolist() == raw.offsets.tolist()
    assert found.bodies is not None
    assert list(found.bodies) == bodies
    assert found.bodies.newline_separated is held.newline_separated
    assert (found.times is None) == (raw.times is None)
    assert (found.keys, found.headers, found.fields) == (raw.keys, raw.headers, raw.fields)


def test_frames_and_what_lanes_give_cross_as_they_are() -> None:
    frame = pl.DataFrame({
        "__hr_offset": [1, 2], "__hr_index": pl.Series([0, 0], dtype=pl.Int32), "t": ["ä", None], "l": [[1], None],
        "s": [{"a": 1.5}, None], "d": pl.Series([None, None], dtype=pl.Datetime("us", "UTC")), "b": [b"\0", b""],
    })  # fmt: skip
    raw = RawBatch(np.array([1, 2]), ReadPosition(3), frame=frame)
    request = Request(queue=("q", "s", ""), has_times=False)
    found = raw_batch_of(request, [memoryview(bytes(part)) for part in buffers_of(raw)]).frame
    assert found is not None
    assert found.equals(frame)
    assert found.schema == frame.schema

    queue = Queue("q", "s")
    deliveries = [Delivery("sink", Batch(queue.branched("dead"), frame, "other"))]
    shipments = [Shipment("by", 1, queue, Batch(queue, frame)), Shipment("by", 0, queue, Watermark(queue, -5))]
    for_sinks, for_shuffles, parts = told(deliveries, shipments)
    answer = Answer(deliveries=for_sinks, shipments=for_shuffles)
    made = outcome_of(Answer.read(_encoded(answer)), [memoryview(bytes(part)) for part in parts], queue)
    [delivery], [rows, mark] = made.deliveries, made.shipments
    assert (delivery.target, delivery.batch.queue, delivery.batch.output) == ("sink", queue.branched("dead"), "other")
    assert delivery.batch.frame.equals(frame)
    assert isinstance(rows.content, Batch)
    assert (rows.shuffle, rows.side, rows.queue) == ("by", 1, queue)
    assert rows.content.frame.equals(frame)
    assert mark == shipments[1]


def _encoded(answer: Answer) -> bytes:
    import msgspec

    return msgspec.msgpack.encode(answer)


class Stubborn(Exception):
    """An exception that cannot be copied, as users write them."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def test_errors_cross_with_what_they_know(caplog: pytest.LogCaptureFixture) -> None:
    error = RetriableError("away", plugin="p", queue="s/q", offset=7)
    found = outcome_of(Answer(error=packed_error(error)), (), Queue("q")).error
    assert isinstance(found, RetriableError)
    assert (str(found), found.offset) == (str(error), 7)
    found = outcome_of(Answer(error=packed_error(Stubborn("a", "b"))), (), Queue("q")).error
    assert isinstance(found, JobFailedError)
    assert "Stubborn: ab" in str(found)
    assert "Stubborn" in caplog.text


def test_a_plan_travels_without_its_sources_and_sinks() -> None:
    class Locked(MemorySink):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()  # cannot be pickled

    source = MemorySource({"q": [b'{"k": "secret of the source", "n": 1}']})
    stream = hr.stream("test", "travels").from_(source, format="json", schema={"k": "string", "n": "int64"}, name="in")
    plan = stream.where("n > 0").to(Locked()).plan()
    content = packed(plan)
    assert b"secret of the source" not in content
    found = unpacked(content)
    assert found.sources["in"].source is None
    lane = Lane(found, found.sources["in"], Queue("q", "in"))
    [made] = lane.process(RawBatch(np.array([0]), ReadPosition(1), bodies=Bodies.of([b'{"k": "x", "n": 3}'])))
    assert made.batch.frame["n"].to_list() == [3]


def test_the_source_of_a_dimension_table_travels_with_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker loads the table itself: at its first batch, and again at each refresh."""
    monkeypatch.setattr("headrace_dimension.lookup_join.sharing_for", lambda *_: None)  # no files stay open
    table = hr.stream("test", "travels").from_(
        MemorySource({"q": [b'{"k": "x", "name": "X"}']}), format="json", schema={"k": "string", "name": "string"}
    )
    source = MemorySource({"q": [b'{"k": "secret of the source"}']})
    stream = hr.stream("test", "travels").from_(source, format="json", schema={"k": "string"}, name="in")
    content = packed(stream.lookup_join(table, on="k").to(MemorySink()).plan())
    assert b"secret of the source" not in content
    found = unpacked(content)
    lane = Lane(found, found.sources["in"], Queue("q", "in"))
    [made] = lane.process(RawBatch(np.array([0]), ReadPosition(1), bodies=Bodies.of([b'{"k": "x"}'])))
    lane.close()
    assert made.batch.frame["name"].to_list() == ["X"]


def test_a_job_that_cannot_be_copied_is_refused_before_anything_starts() -> None:
    lock = threading.Lock()

    def locked(n: int) -> int:
        with lock:
            return n

    stream = hr.stream("test", "refused").from_(MemorySource({"q": []}), format="json", schema={"n": "int64"})
    job = stream.map(lambda row: {"n": locked(row["n"])}, schema={"n": "int64"}).to(MemorySink())
    with pytest.raises(PlanError, match="cannot be copied to worker processes") as caught:
        job.run("light", workers=2)
    assert caught.value.option == "workers"
