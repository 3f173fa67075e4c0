"""The rows of a DataFrame in a worker process: through the lane of their source, to the shards of keyed stages, and out again.

A DataFrame is one queue: its rows have no offsets that headrace could know. A micro-batch is what comes together, so

- rows are late by the watermark after the micro-batches before, whatever the order of rows inside one;
- the watermark rises when all rows of the micro-batch have been processed, and windows close then;
- in the shard, rows are in the order of event time and of a hash of their values: the same whenever a micro-batch is run
  again, though Spark may bring its rows in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from headrace.flow.messages import (
    HEADER_COLUMNS,
    WATERMARK,
    Batch,
    Bodies,
    Checkpoint,
    Queue,
    QueueAdded,
    RawBatch,
    ReadPosition,
)
from headrace.interfaces.key_hashing import key_hashes
from headrace.runtime import shuffle
from headrace.runtime.lane import DEAD_LETTERS, Delivery, Lane, Shipment
from headrace.runtime.shard import numbered

from headrace_spark.dataframes.frame_source import DataFrameSource
from headrace_spark.shards.topology import Address, Topology
from headrace_spark.transit.envelopes import Envelope, of_delivery
from headrace_spark.transit.payload import FrameInput, JobPayload
from headrace_spark.workers.lanes import begin_counting, counted, processed
from headrace_spark.workers.shipping import (
    PLACES_PER_RANGE,
    Outbox,
    ShardControl,
    addressed,
    concatenated,
    in_order,
)
from headrace_spark.workers.tasks import Task

#: The one queue of a DataFrame, as shards know it.
ROWS = "rows"
#: A row's offset is the number of its micro-batch times this, and its place in its task.
ROWS_PER_TASK = 2**32
_lanes: dict[tuple[str, str], Lane] = {}
#: Lanes kept per process: of as many sources.
_LANES_MAX = 16


def rows_through_lane(
    payload: JobPayload, source_id: str, batches: Iterable[pa.RecordBatch], task: Task
) -> Iterator[Envelope]:
    """Yield the output of a source's lane for a DataFrame's rows: rows for sinks, and envelopes for shards."""
    made = _through_lane(payload, source_id, batches, task)
    return addressed(made, payload.topology(), 0, first=task.partition * PLACES_PER_RANGE)


def _through_lane(
    payload: JobPayload, source_id: str, batches: Iterable[pa.RecordBatch], task: Task
) -> Iterator[Envelope]:
    begin_counting(payload, task.batch_id)
    plan, queue = payload.plan(), Queue(str(task.partition), source_id)
    node = plan.sources[source_id]
    source = node.source
    assert isinstance(source, DataFrameSource)
    lane = _lanes.pop((payload.token, source_id), None)
    if lane is None:
        lane = Lane(plan, node, queue, decode_columns=plan.decode_columns()[source_id])
        lane.on_system(QueueAdded(queue))
    lane.queue = queue
    # Rows without an order are put in that of their values, which combined rows do not have.
    combines = source.keep_order
    outbox = None
    if payload.keyed is not None:
        outbox = Outbox(plan, payload.topology(), Queue(ROWS, source_id), combines=combines)
    first = place = task.batch_id * ROWS_PER_TASK
    try:
        for batch in _of_size(batches, payload.batch_records):
            raw = _raw_batch(source, node.body_schema or {}, batch, place)
            place += batch.num_rows
            for delivery in processed(payload, lane, raw):
                yield from _sent(payload, source, delivery)
            if outbox is not None:
                yield from outbox.take(map(_without_watermark, lane.take_shipments()))
        for delivery in lane.on_system(Checkpoint(task.batch_id)):
            yield from _sent(payload, source, delivery)
        if outbox is not None:
            yield from outbox.take(map(_without_watermark, lane.take_shipments()))
            yield from outbox.rest()
    except BaseException:
        lane.close()
        raise
    if not payload.in_user_query:
        yield Envelope(
            "end", Queue(ROWS, source_id), task.batch_id, task.batch_id + 1, place - first, payload=counted(payload)
        )
    _lanes[payload.token, source_id] = lane
    while len(_lanes) > _LANES_MAX:
        _lanes.pop(next(iter(_lanes))).close()


def _sent(payload: JobPayload, source: DataFrameSource, delivery: Delivery) -> Iterator[Envelope]:
    """Yield rows for sinks. Those for sinks of headrace go to the task that their values say, so that it is always the same."""
    if payload.in_user_query or source.keep_order:
        yield from of_delivery(delivery)
        return
    frame = delivery.batch.frame
    parts = (_hashes(frame, delivery.target) % np.uint64(payload.partitions)).astype(np.int64)
    for number in np.unique(parts).tolist():
        queue = replace(delivery.batch.queue, name=str(number))
        yield from of_delivery(replace(delivery, batch=Batch(queue, frame.filter(pl.Series(parts == number)))))


def _hashes(frame: pl.DataFrame, target: str) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return a hash of each row's values. What a dead letter says of its place may be another when it is made again."""
    without = (*HEADER_COLUMNS, *(("queue", "offset", "index") if target == DEAD_LETTERS else ()))
    return key_hashes(frame, [name for name in frame.columns if name not in without])


def _of_size(batches: Iterable[pa.RecordBatch], rows_max: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for begin in range(0, batch.num_rows, rows_max):
            yield batch.slice(begin, rows_max)


def _raw_batch(
    source: DataFrameSource, types: Mapping[str, pl.DataType], batch: pa.RecordBatch, first: int
) -> RawBatch:
    offsets = np.arange(first, first + batch.num_rows, dtype=np.int64)
    end = ReadPosition(first + batch.num_rows)
    if source.has_bodies:
        return RawBatch(offsets, end, bodies=_bodies(batch.column(0)))
    frame = pl.DataFrame(pl.from_arrow(batch))
    # Instants come in the time zone of the session: only the type tells.
    casts = [
        pl.col(name).cast(types[name]) for name, kind in frame.schema.items() if name in types and kind != types[name]
    ]
    return RawBatch(offsets, end, frame=frame.with_columns(casts) if casts else frame)


def _bodies(column: pa.Array) -> Bodies:
    """Return the values of a column as bodies, over its own buffer. NULL is an empty body."""
    column = column.cast(pa.large_binary())
    _, ends, data = column.buffers()
    places = np.frombuffer(ends, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    return Bodies(b"" if data is None else data.to_pybytes(), places[:-1], places[1:])


def _without_watermark(shipment: Shipment) -> Shipment:
    """Take from rows the watermark of the rows before them in their task: by it they would be late as Spark has cut the tasks."""
    content = shipment.content
    if isinstance(content, Batch) and WATERMARK in content.frame.columns:
        content = content.with_frame(content.frame.drop(WATERMARK), content.output)
        return Shipment(shipment.shuffle, shipment.side, shipment.queue, content)
    return shipment


# ------------------------------------------------------------------------------------------------------ in shards


def control_of_frames(
    frames: FrameInput, batch_id: int, time_us: int, told: ShardControl | None = None, *, ends: bool
) -> ShardControl:
    """Return the notes about a micro-batch that a shard gets when Spark plans it.

    ``told``: what the planner of sources of headrace says, if the job reads such ones too and they have moved. Number and time
    are Spark's even then: there are micro-batches of which the planner knows nothing.
    """
    if told is None:
        return ShardControl(frames.base + batch_id, time_us, ends, [], [], [], [])
    return msgspec.structs.replace(told, sequence=frames.base + batch_id, time_us=time_us, end_of_input=ends)


def frame_queues(topology: Topology, shuffle_id: str, frames: FrameInput) -> list[tuple[Queue, int]]:
    """Return the queues of DataFrames that send to a shuffle, each with its side."""
    return [
        (Queue(ROWS, source_id), side)
        for source_id in sorted(frames.time_columns)
        for side in topology.sides_of(shuffle_id, source_id)
    ]


def rows_of_frames(
    topology: Topology,
    address: Address,
    frames: FrameInput,
    own: Sequence[Envelope],
    control: ShardControl,
    *,
    first: bool,
) -> Iterator[shuffle.ShardMessage]:
    """Yield the part of a shard's entry that DataFrames give; their watermarks come behind the rows of all others."""
    queues = frame_queues(topology, address.shuffle, frames)
    if first:
        for queue, side in queues:
            yield shuffle.ShardMessage("added", queue, side)
    for queue, side in queues:
        frame = _rows_of(_of_queue(own, queue, side))
        if frame is not None:
            if queue.source not in frames.in_order:
                frame = in_order_of_values(frame, frames.time_columns[queue.source])
            yield shuffle.ShardMessage("rows", queue, side, numbered(frame, control.sequence))


def marks_of_frames(
    topology: Topology, address: Address, frames: FrameInput, own: Sequence[Envelope]
) -> Iterator[shuffle.ShardMessage]:
    """Yield the watermarks of DataFrames, which rise at the end of a micro-batch."""
    for queue, side in frame_queues(topology, address.shuffle, frames):
        mark = max((each.mark for each in _of_queue(own, queue, side) if each.mark is not None), default=None)
        if mark is not None:
            yield shuffle.ShardMessage("watermark", queue, side, time_us=mark)


def is_of_frame(envelope: Envelope, frames: FrameInput) -> bool:
    """Return whether an envelope was shipped by the lane of a DataFrame."""
    return envelope.kind == "ship" and envelope.queue.source in frames.time_columns


def _of_queue(own: Sequence[Envelope], queue: Queue, side: int) -> list[Envelope]:
    found = (each for each in own if each.kind == "ship" and each.queue == queue and each.side == side)
    return sorted(found, key=lambda each: each.place)


def _rows_of(ships: Iterable[Envelope]) -> pl.DataFrame | None:
    frames = [each.frame() for each in ships if each.count]
    return concatenated(frames) if frames else None


def in_order_of_values(frame: pl.DataFrame, time_column: str | None) -> pl.DataFrame:
    """Return rows in an order that depends on nothing but their values: by event time, if it is there, and by a hash."""
    columns = [name for name in frame.columns if name not in HEADER_COLUMNS]
    hashes = key_hashes(frame, columns)
    if time_column is None or time_column not in frame.columns:
        return frame[np.argsort(hashes, kind="stable")]
    times = frame[time_column].cast(pl.Int64).fill_null(-(2**63)).to_numpy()
    return frame[np.lexsort((hashes, times))]


# ------------------------------------------------------------------------------------------------------- before sinks


def for_sinks(payload: JobPayload, envelopes: Iterable[Envelope], task: Task) -> Iterator[Envelope]:
    """Yield the rows that a task of the sink stage writes; rows of DataFrames have the same positions when a task is repeated.

    A position is the micro-batch and the row's place in its part of it. Without ``keep_order`` a row's part and its place
    depend on the values of the micro-batch's rows only, so a micro-batch that was written in part is completed exactly.
    """
    frames = payload.frames
    assert frames is not None
    sequence = frames.base + task.batch_id
    parts: dict[Queue, dict[tuple[Queue, str], list[Envelope]]] = {}
    ends: list[Envelope] = []

    def others() -> Iterator[Envelope]:
        for each in envelopes:
            if each.queue.source not in frames.time_columns:
                yield each
            elif each.kind == "rows":
                part = parts.setdefault(each.queue.branched(""), {})
                part.setdefault((each.queue, each.target), []).append(each)
            else:
                ends.append(each)

    # Behind keyed stages the rows of queues are in order already.
    yield from others() if payload.keyed is not None else in_order(others())
    yield from ends
    for main in sorted(parts):
        yield Envelope("begin", main, sequence, sequence + 1)
        for (queue, target), found in sorted(parts[main].items()):
            frame = concatenated([each.frame() for each in sorted(found, key=lambda each: each.place)])
            if main.source not in frames.in_order:
                frame = frame[np.argsort(_hashes(frame, target), kind="stable")]
            yield from of_delivery(Delivery(target, Batch(queue, numbered(frame, sequence))))
        yield Envelope("stored", main, sequence, sequence + 1)


def by_frame(frames: FrameInput, counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts by queue, those of the parts of a DataFrame as counts of the DataFrame."""
    made: dict[str, int] = {}
    for queue_id, count in counts.items():
        source = queue_id.partition("/")[0]
        name = Queue(ROWS, source).id if source in frames.time_columns else queue_id
        made[name] = made.get(name, 0) + count
    return made
