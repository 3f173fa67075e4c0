"""Envelopes: what crosses between the steps of a micro-batch, in one process or between Spark's stages.

Between processes batches cross as Arrow IPC blobs, not as rows, on one machine in files (see ``blobs``); within a process as they
are. A job without keyed stages has one step in Spark's eyes, the last one, and it gets from the planner:

===========  ===========================================================================================
``ranges``   ``payload`` holds the ranges that the task reads
===========  ===========================================================================================

Of each queue that a micro-batch reads, the sinks get, in this order and from one task:

===========  ===========================================================================================
kind         meaning
===========  ===========================================================================================
``begin``    the queue's records from offset ``first`` to before ``last`` follow
``rows``     a polars frame for the sink ``target``, of ``count`` rows
``end``      that was all; ``count`` records were read
``gone``     the queue was removed; nothing of it follows, in this batch or a later one
``shard``    ends what came of a shard; ``payload`` holds its figures
``stored``   ends the rows of one part of a DataFrame's micro-batch
===========  ===========================================================================================

The shards of a keyed stage get, for the shuffle ``target`` and the shard ``shard``:

===========  ===========================================================================================
``ship``     a frame of the queue's rows that came to side ``side`` (``count`` 0: there are none),
             and ``mark`` the queue's watermark behind them, if it is known
``control``  ``payload`` says what a micro-batch is: see ``marks.Control``. One per shard and micro-batch
===========  ===========================================================================================

``partition`` tells Spark where an envelope goes next, ``place`` its order among those of one task.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
from headrace.flow.messages import OFFSET, Batch, Queue
from headrace.runtime.lane import Delivery

from headrace_spark.transit.blobs import Blobs, frame_at, is_place

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["begin", "rows", "end", "gone", "shard", "stored", "ship", "control", "ranges"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
#: The columns as a schema of Spark.
SPARK_SCHEMA = (
    "kind STRING, target STRING, source STRING, queue STRING, branch STRING, "
    "first BIGINT, last BIGINT, count BIGINT, payload BINARY, "
    "shard BIGINT, side BIGINT, mark BIGINT, partition INT, place BIGINT"
)
_ARROW_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("kind", "target", "source", "queue", "branch")),
        *((name, pa.int64()) for name in ("first", "last", "count")),
        ("payload", pa.binary()),
        *((name, pa.int64()) for name in ("shard", "side", "mark")),
        ("partition", pa.int32()),
        ("place", pa.int64()),
    ]
)
COLUMNS: Sequence[str] = tuple(_ARROW_SCHEMA.names)
_PAYLOAD = COLUMNS.index("payload")
#: A blob is about this large at most, and an Arrow batch of envelopes holds about this much.
BLOB_BYTES_MAX = 4 * 1024**2
_ENVELOPES_MAX = 64


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message of a queue to a later stage."""

    kind: Kind
    queue: Queue
    first: int
    last: int
    count: int = 0
    target: str = ""
    payload: bytes = b""
    shard: int = 0
    side: int = 0
    mark: int | None = None
    partition: int = 0
    place: int = 0
    #: The frame of a ``rows`` or ``ship`` envelope until it leaves the process that made it; ``payload`` is it afterwards.
    rows: pl.DataFrame | None = None

    def frame(self) -> pl.DataFrame:
        """Return the rows of a ``rows`` or ``ship`` envelope."""
        import polars as pl  # not at the top: some processes pass envelopes on and need not have it in memory

        if self.rows is not None:
            return self.rows
        if is_place(self.payload):
            return frame_at(self.payload, self.count)
        return pl.read_ipc_stream(self.payload)

    def content(self, blobs: Blobs | None = None) -> bytes:
        """What is sent of the envelope: its payload, or its frame as an Arrow IPC stream, or with ``blobs`` the place of that."""
        if self.rows is None:
            return self.payload
        if blobs is not None and (place := blobs.put(self.rows)) is not None:
            return place
        buffer = io.BytesIO()
        self.rows.write_ipc_stream(buffer, compression="lz4")
        return buffer.getvalue()

    def row(self, blobs: Blobs | None = None) -> tuple[Any, ...]:
        """Return the values of ``COLUMNS``; ``from_row`` reads them."""
        queue = self.queue
        return (
            self.kind, self.target, queue.source, queue.name, queue.branch, self.first, self.last, self.count,
            self.content(blobs), self.shard, self.side, self.mark, self.partition, self.place,
        )  # fmt: skip

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Envelope:
        kind, target, source, name, branch, first, last, count, payload, shard, side, mark, partition, place = row
        if kind not in _KINDS:
            raise ValueError(f"envelope of unknown kind {kind!r}")
        queue = Queue(name, source, branch)
        return cls(kind, queue, first, last, count, target, payload, shard, side, mark, partition, place)

    def delivery(self) -> Delivery:
        """Return the rows in a ``rows`` envelope."""
        return Delivery(self.target, Batch(self.queue, self.frame()))


def of_delivery(delivery: Delivery) -> Iterator[Envelope]:
    """Yield envelopes for a delivery: several when it is large."""
    for part in parts_of(delivery.batch.frame):
        first, last = part.item(0, OFFSET), part.item(-1, OFFSET)
        yield Envelope("rows", delivery.batch.queue, first, last, part.height, delivery.target, rows=part)


def parts_of(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the parts of a frame, none much larger than ``BLOB_BYTES_MAX``."""
    parts = max(1, -(-int(frame.estimated_size()) // BLOB_BYTES_MAX))
    rows = max(1, -(-frame.height // parts))
    for begin in range(0, frame.height, rows):
        yield frame.slice(begin, rows)


def to_arrow(envelopes: Iterable[Envelope], blobs: Blobs | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the envelopes as Arrow batches: several in one, but never much more than a blob's bytes.

    With ``blobs`` large frames are written there, and only their places are in the batches.
    """
    waiting: list[tuple[Any, ...]] = []
    size = 0
    for envelope in envelopes:
        waiting.append(row := envelope.row(blobs))
        size += len(row[_PAYLOAD])
        if size >= BLOB_BYTES_MAX or len(waiting) >= _ENVELOPES_MAX:
            yield _record_batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _record_batch(waiting)


def _record_batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _ARROW_SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=_ARROW_SCHEMA)


def from_arrow(batches: Iterable[pa.RecordBatch]) -> Iterator[Envelope]:
    """Yield the envelopes of Arrow batches, in order."""
    for batch in batches:
        for row in zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True):
            yield Envelope.from_row(row)
