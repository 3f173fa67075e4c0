"""Sources and sinks in memory, for tests of jobs and plug-ins without any server.

    source = MemorySource({"q0": [b'{"a": 1}', b'{"a": 2}']})
    sink = MemorySink()
    hr.stream("test", "job").from_(source, format="json", schema={"a": "int64"}).where("a > 1").to(sink).run("light")
    assert sink.rows == [{"a": 2}]

They live in one process: use files for jobs on Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from headrace.flow.messages import CHANGE, Bodies, ChangeKind, Position, Queue, RawBatch, ReadPosition
from headrace.foundation.errors import DataError
from headrace.interfaces.readers import OffsetReader
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings, StaleWriterError, TransactionalSink
from headrace.interfaces.source import EARLIEST, LATEST, Reader, Source, StartPosition


class MemorySource(Source):
    """Queues of bodies that a test fills. ``append`` and ``remove_queue`` may be called while a job runs."""

    def __init__(self, queues: Mapping[str, Sequence[bytes]] | None = None) -> None:
        self.bodies: dict[str, list[bytes]] = {name: list(bodies) for name, bodies in (queues or {}).items()}
        #: When set, every poll raises it: an outage.
        self.outage: Exception | None = None
        self.opened: list[tuple[str, StartPosition]] = []

    def append(self, queue: str, *bodies: bytes) -> None:
        """Add records to a queue, which is created if need be."""
        self.bodies.setdefault(queue, []).extend(bodies)

    def remove_queue(self, queue: str) -> None:
        """Let a queue vanish."""
        del self.bodies[queue]

    def queues(self) -> Collection[Queue]:
        return [Queue(name) for name in list(self.bodies)]  # copied, because a test may change it during the iteration

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        self.opened.append((queue.name, start))
        return _MemoryReader(self, queue.name, start)


class _MemoryReader(OffsetReader):
    def __init__(self, source: MemorySource, name: str, start: StartPosition) -> None:
        self._source = source
        self._bodies = source.bodies.get(name, [])  # it may have vanished since the job has seen it
        offset = start.offset if isinstance(start, ReadPosition) else len(self._bodies) if start is LATEST else 0
        if offset > len(self._bodies):
            raise DataError(f"offset {offset} lies behind the end, {len(self._bodies)}", queue=name, offset=offset)
        super().__init__(offset)

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        import numpy as np

        if self._source.outage is not None:
            raise self._source.outage
        found = self._bodies[self._next : self._next + max_records]
        if not found:
            return None
        first, self._next = self._next, self._next + len(found)
        return RawBatch(np.arange(first, self._next, dtype=np.int64), self.position, bodies=Bodies.of(found))

    @property
    def latest(self) -> int:
        return len(self._bodies)


class MemorySink(Sink):
    """Keeps rows and batches, and of changelogs the kind of each row. ``failures`` are raised, one a call, before anything
    is stored.
    """

    accepts = "changelog"

    def __init__(self, settings: SinkSettings | None = None) -> None:
        self.settings = settings or SinkSettings()
        self.rows: list[dict[str, Any]] = []
        #: One of ``ChangeKind`` per row.
        self.kinds: list[int] = []
        self.batches: list[SinkBatch] = []
        self.failures: list[Exception] = []
        self.opened = 0
        self.closed = 0
        self._lock = threading.Lock()

    def open(self) -> None:
        self.opened += 1

    def batch_insert(self, batch: SinkBatch) -> None:
        if self.failures:
            raise self.failures.pop(0)
        with self._lock:
            self.batches.append(batch)
            self.rows.extend(batch.rows())
            kinds = batch.frame[CHANGE].to_list() if CHANGE in batch.frame.columns else [ChangeKind.INSERT] * len(batch)
            self.kinds.extend(kinds)

    def table(self) -> list[dict[str, Any]]:
        """Return the rows that are there after all changes, in the order in which they came.

        Raises DataError when a row is taken back that is not there.
        """
        table: list[dict[str, Any]] = []
        for row, kind in zip(self.rows, self.kinds, strict=True):
            if kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER):
                table.append(row)
            elif row in table:
                table.remove(row)
            else:
                raise DataError(f"{row!r} is retracted, but it is not there")
        return table

    def close(self) -> None:
        self.closed += 1


class MemoryTransactionalSink(MemorySink, TransactionalSink):
    """Keeps rows together with their queue's greatest position. ``stored`` outlives the sink: hand it to the next one."""

    def __init__(self, settings: SinkSettings | None = None, stored: dict[Queue, Position] | None = None) -> None:
        super().__init__(settings)
        self.stored: dict[Queue, Position] = {} if stored is None else stored

    def batch_insert(self, batch: SinkBatch) -> None:
        """Store the rows and the position. Raises StaleWriterError if the stored position is not ``batch.after``."""
        if self.stored.get(batch.queue) != batch.after:
            raise StaleWriterError("another writer was here", queue=batch.queue.id)
        super().batch_insert(batch)
        self.stored[batch.queue] = batch.last

    def last_offset(self, queue: Queue) -> Position | None:
        return self.stored.get(queue)


__all__ = ["EARLIEST", "MemorySink", "MemorySource", "MemoryTransactionalSink"]
