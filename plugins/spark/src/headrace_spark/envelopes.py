"""Envelopes: what crosses from Spark's source stage to its sink stage. Batches cross as Arrow IPC blobs, not as rows.

Of each queue that a micro-batch reads, the sink stage gets, in this order and from one task:

=========  ===========================================================================================
kind       meaning
=========  ===========================================================================================
``begin``  the queue's records from offset ``first`` to before ``last`` follow
``rows``   ``payload`` is a polars frame (Arrow IPC stream) for the sink ``target``, of ``count`` rows
``end``    that was all; ``count`` records were read
``gone``   the queue was removed; nothing of it follows, in this batch or a later one
=========  ===========================================================================================
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import polars as pl
import pyarrow as pa
from headrace.lane import Delivery
from headrace.messages import OFFSET, Batch, Queue

Kind = Literal["begin", "rows", "end", "gone"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
#: The columns as Spark is told.
SPARK_SCHEMA = (
    "kind STRING, target STRING, source STRING, queue STRING, branch STRING, "
    "first BIGINT, last BIGINT, count BIGINT, payload BINARY"
)
_ARROW_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("kind", "target", "source", "queue", "branch")),
        *((name, pa.int64()) for name in ("first", "last", "count")),
        ("payload", pa.binary()),
    ]
)
#: A blob is about this large at most, and an Arrow batch of envelopes holds about this much.
BLOB_BYTES_MAX = 4 * 1024**2
_ENVELOPES_MAX = 64


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message of a queue to the sink stage."""

    kind: Kind
    queue: Queue
    first: int
    last: int
    count: int = 0
    target: str = ""
    payload: bytes = b""

    def delivery(self) -> Delivery:
        """Return what a ``rows`` envelope holds."""
        return Delivery(self.target, Batch(self.queue, pl.read_ipc_stream(self.payload)))


def of_delivery(delivery: Delivery) -> Iterator[Envelope]:
    """Yield envelopes for a delivery: several when it is large."""
    frame = delivery.batch.frame
    parts = max(1, -(-int(frame.estimated_size()) // BLOB_BYTES_MAX))
    rows = max(1, -(-frame.height // parts))
    for begin in range(0, frame.height, rows):
        part = frame.slice(begin, rows)
        buffer = io.BytesIO()
        part.write_ipc_stream(buffer)
        first, last = part.item(0, OFFSET), part.item(-1, OFFSET)
        yield Envelope("rows", delivery.batch.queue, first, last, part.height, delivery.target, buffer.getvalue())


def to_arrow(envelopes: Iterable[Envelope]) -> Iterator[pa.RecordBatch]:
    """Yield the envelopes as Arrow batches: several in one, but never much more than a blob's bytes."""
    waiting: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        waiting.append(envelope)
        size += len(envelope.payload)
        if size >= BLOB_BYTES_MAX or len(waiting) >= _ENVELOPES_MAX:
            yield _record_batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _record_batch(waiting)


def _record_batch(envelopes: list[Envelope]) -> pa.RecordBatch:
    columns = [
        [e.kind for e in envelopes],
        [e.target for e in envelopes],
        [e.queue.source for e in envelopes],
        [e.queue.name for e in envelopes],
        [e.queue.branch for e in envelopes],
        [e.first for e in envelopes],
        [e.last for e in envelopes],
        [e.count for e in envelopes],
        [e.payload for e in envelopes],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _ARROW_SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=_ARROW_SCHEMA)


def from_arrow(batches: Iterable[pa.RecordBatch]) -> Iterator[Envelope]:
    """Yield the envelopes of Arrow batches, in order."""
    for batch in batches:
        rows = zip(*(batch.column(name).to_pylist() for name in _ARROW_SCHEMA.names), strict=True)
        for kind, target, source, name, branch, first, last, count, payload in rows:
            if kind not in _KINDS:
                raise ValueError(f"envelope of unknown kind {kind!r}")
            yield Envelope(kind, Queue(name, source, branch), first, last, count, target, payload)
