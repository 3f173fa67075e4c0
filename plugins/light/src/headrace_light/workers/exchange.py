"""Messages between the engine and its workers: raw batches in one direction, outputs of lanes in the other.

A message says only where in shared memory (``Slot``) something is. So it fits into the system's buffer of the connection, and no side
waits until the other one reads. There the first part is a header (MessagePack), the others are its buffers. Frames are Arrow IPC
streams. Errors are pickled: both processes run the same code of the same user, and nothing from outside of them is unpickled.
"""

from __future__ import annotations

import io
import logging
import pickle
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from headrace.flow.messages import Batch, Bodies, Queue, RawBatch, ReadPosition, Watermark
from headrace.foundation.errors import JobFailedError
from headrace.runtime.lane import Delivery, Shipment

from headrace_light.workers.slots import Buffer, Slot

if TYPE_CHECKING:
    import polars as pl

logger = logging.getLogger(__name__)
_Place = tuple[str, str, str]
_Position = tuple[int, dict[str, Any]]


class Message(msgspec.Struct, frozen=True):
    """Where a header and its buffers are. ``number``: of the request, or that an answer is for; -1: of the worker itself."""

    number: int
    slot: int
    capacity: int
    sizes: list[int]

    @classmethod
    def put(
        cls, number: int, place: int, slots: Sequence[Slot], header: msgspec.Struct, buffers: Sequence[Buffer] = ()
    ) -> bytes:
        """Write a header and its buffers into a slot, and return the message that says so."""
        capacity, sizes = slots[place].write([msgspec.msgpack.encode(header), *buffers])
        return msgspec.msgpack.encode(cls(number, place, capacity, sizes))

    @classmethod
    def read(cls, message: bytes) -> Message:
        return msgspec.msgpack.decode(message, type=cls)

    def parts(self, slots: Sequence[Slot]) -> list[memoryview]:
        """Return the header and the buffers, without a copy."""
        return slots[self.slot].read(self.capacity, self.sizes)


class Beginning(msgspec.Struct, frozen=True):
    """The first request: the modules that are needed to unpickle the plan, and the plan."""

    import_paths: list[str]
    plan: bytes
    #: Freed memory that the process keeps for its next batches.
    kept_bytes_max: int
    #: Whether the run ends with the input (``Source.use_run``).
    until: Literal["end"] | None

    @classmethod
    def read(cls, header: Buffer) -> Beginning:
        return msgspec.msgpack.decode(header, type=cls)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A raw batch for a lane, or the range of one that the worker reads.

    Buffers of a batch: offsets, times if there are any, then a frame, or the begins and the ends of bodies and their bytes.
    """

    queue: _Place
    has_times: bool = False
    #: Where the range begins and ends, instead of buffers.
    reads: tuple[_Position, _Position] | None = None
    newline_separated: bool | None = None
    keys: list[bytes | None] | None = None
    headers: list[dict[str, bytes]] | None = None
    #: Names of the fields of bodies (``RawBatch.fields``).
    fields: tuple[str, ...] | None = None

    @classmethod
    def read(cls, header: Buffer) -> Request:
        return msgspec.msgpack.decode(header, type=cls)


class Told(msgspec.Struct, frozen=True):
    """One output of a lane: rows for a sink (``target``) or for a side of a shuffle, or a watermark for a side. Rows
    are the next buffer.
    """

    target: str
    queue: _Place
    side: int | None = None
    output: str = ""
    time_us: int | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request, or a message about the worker itself: it is ready, or it cannot begin."""

    deliveries: list[Told] = []
    shipments: list[Told] = []
    #: What the lane has counted (``Meter.take``).
    counted: dict[str, Any] = {}
    #: How many records the batch had.
    records: int = 0
    #: The error that it raised instead, pickled.
    error: bytes | None = None
    #: Why a range could not be read.
    unread: str = ""

    @classmethod
    def read(cls, header: Buffer) -> Answer:
        return msgspec.msgpack.decode(header, type=cls)


@dataclass(slots=True)
class Outcome:
    """What a lane made of a raw batch, or the error that it raised. ``unread``: why a worker could not read its range."""

    deliveries: Sequence[Delivery] = ()
    shipments: Sequence[Shipment] = ()
    counted: Mapping[str, Any] = field(default_factory=dict)
    records: int = 0
    error: BaseException | None = None
    unread: str = ""


def place_of(queue: Queue) -> _Place:
    return queue.name, queue.source, queue.branch


def position_of(position: ReadPosition) -> _Position:
    return position.offset, dict(position.hint)


def buffers_of(raw: RawBatch) -> list[Buffer]:
    """Return the buffers of a raw batch, in the order that ``Request`` names."""
    parts: list[Buffer] = [_view(raw.offsets)]
    if raw.times is not None:
        parts.append(_view(raw.times))
    if raw.frame is not None:
        return [*parts, _written(raw.frame)]
    assert raw.bodies is not None
    bodies = raw.bodies
    first = int(bodies.starts.min()) if len(bodies) else 0
    last = int(bodies.ends.max()) if len(bodies) else 0
    return [*parts, _view(bodies.starts - first), _view(bodies.ends - first), memoryview(bodies.buffer)[first:last]]


def raw_batch_of(request: Request, parts: Sequence[memoryview]) -> RawBatch:
    """Return the raw batch of a request: a copy, since the slot is written again. Its next position is the reader's business."""
    import numpy as np

    arrays = iter(parts)

    def numbers() -> Any:
        return np.frombuffer(next(arrays), dtype=np.int64).copy()

    offsets = numbers()
    times = numbers() if request.has_times else None
    nowhere = ReadPosition(-1)
    if request.newline_separated is None:
        import polars as pl

        frame = pl.read_ipc_stream(io.BytesIO(next(arrays)))
        return RawBatch(offsets, nowhere, frame=frame, times=times, keys=request.keys, headers=request.headers)
    starts, ends = numbers(), numbers()
    bodies = Bodies(bytes(next(arrays)), starts, ends, newline_separated=request.newline_separated)
    return RawBatch(
        offsets,
        nowhere,
        bodies=bodies,
        times=times,
        keys=request.keys,
        headers=request.headers,
        fields=request.fields,
    )


def told(deliveries: Sequence[Delivery], shipments: Sequence[Shipment]) -> tuple[list[Told], list[Told], list[Buffer]]:
    """Return the descriptions of deliveries and shipments, and the buffers with their rows."""
    parts: list[Buffer] = []
    for_sinks, for_shuffles = [], []
    for each in deliveries:
        for_sinks.append(Told(each.target, place_of(each.batch.queue), output=each.batch.output))
        parts.append(_written(each.batch.frame))
    for shipment in shipments:
        content = shipment.content
        if isinstance(content, Batch):
            for_shuffles.append(Told(shipment.shuffle, place_of(content.queue), shipment.side, content.output))
            parts.append(_written(content.frame))
        else:
            assert isinstance(content, Watermark), (
                "records make rows and watermarks; that queues come and go is the engine's"
            )
            for_shuffles.append(Told(shipment.shuffle, place_of(content.queue), shipment.side, time_us=content.time_us))
    return for_sinks, for_shuffles, parts


def outcome_of(answer: Answer, parts: Sequence[memoryview], queue: Queue) -> Outcome:
    """Return what an answer says, as the engine's own lane would have given it."""
    if answer.error is not None:
        return Outcome(counted=answer.counted, error=pickle.loads(answer.error))  # noqa: S301  # of our own worker
    if answer.unread:
        return Outcome(unread=answer.unread)
    import polars as pl

    frames = iter(parts)

    def batch(each: Told) -> Batch:
        return Batch(Queue(*each.queue), pl.read_ipc_stream(io.BytesIO(next(frames))), each.output)

    deliveries = [Delivery(each.target, batch(each)) for each in answer.deliveries]
    shipments = []
    for each in answer.shipments:
        assert each.side is not None
        content = batch(each) if each.time_us is None else Watermark(Queue(*each.queue), each.time_us)
        shipments.append(Shipment(each.target, each.side, queue, content))
    return Outcome(deliveries, shipments, answer.counted, answer.records)


def packed_error(error: BaseException) -> bytes:
    """Return an error as bytes. One that cannot travel becomes JobFailedError with its text, and is logged where it was raised."""
    try:
        content = pickle.dumps(error)
        pickle.loads(content)  # noqa: S301  # made in the line before
    except Exception:  # copying an exception of the user may raise anything
        logger.warning("an error of a worker process: %s", "".join(traceback.format_exception(error)))
        return pickle.dumps(JobFailedError(f"{type(error).__name__}: {error}"))
    return content


def _view(numbers: Any) -> memoryview:
    import numpy as np

    return np.ascontiguousarray(numbers, dtype=np.int64).data.cast("B")


def _written(frame: pl.DataFrame) -> memoryview:
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="uncompressed")
    return buffer.getbuffer()
