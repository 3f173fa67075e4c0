"""A source that reads the last records of another one, and tells nobody that it has read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Literal

from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.flow.schema import Schema
from headrace.interfaces.readers import ForwardingReader
from headrace.interfaces.source import EARLIEST, LATEST, Reader, Source, StartPosition

#: First offset and the one after the last, by the id of a queue.
Ranges = Mapping[str, tuple[int, int]]


class LastRecords(Source):
    """The last ``count`` records of each queue of ``source``, up to the end at the moment when the queue is opened.

    With ``ranges`` it reads these instead, of the queues that they name: what another run has read, as it says in ``read``. It is no
    GroupSource, so no group of a broker is joined and no position is committed. Offsets may have gaps, so a queue may give
    fewer records than ``count``. Made for a run with ``until="end"`` and without a checkpoint.
    """

    bounded = True

    def __init__(self, source: Source, count: int, *, ranges: Ranges | None = None) -> None:
        self.settings = source.settings
        self._source = source
        self._count = count
        self._ranges = ranges or {}
        #: What was opened, by the id of the queue.
        self.read: dict[str, tuple[int, int]] = {}

    def schema(self) -> Schema | None:
        return self._source.schema()

    def use_run(self, *, until: Literal["end"] | None) -> None:
        self._source.use_run(until=until)

    def queues(self) -> Collection[Queue]:
        self._source.node_name, self._source.reader_name = self.node_name, self.reader_name
        self._source.header_fields = self.header_fields
        return self._source.queues()

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        if isinstance(start, ReadPosition):
            return self._source.open(queue, start)
        if start is LATEST and not self._ranges:
            return self._source.open(queue, LATEST)
        reader = self._source.open(queue, EARLIEST)
        end = reader.latest
        first, end = self._ranges.get(queue.id, (max(reader.earliest, end - self._count), end))
        # Readers find a place by its hint, which only they know: so they go there themselves.
        while reader.position.offset < first:
            place = reader.position_after(first - reader.position.offset)
            if place.offset <= reader.position.offset:
                break
            reader.seek(place)
        self.read[queue.id] = (first, end)
        return _UpTo(reader, end)

    def close(self) -> None:
        self._source.close()


class _UpTo(ForwardingReader):
    """A reader whose queue seems to end at an offset, though more may have come."""

    def __init__(self, reader: Reader, end: int) -> None:
        super().__init__(reader)
        self._end = end

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        left = self._end - self._reader.position.offset
        if left <= 0:
            return None
        batch = self._reader.poll(min(max_records, left), timeout)
        # Offsets may have gaps: then fewer records lie before the end than were asked for.
        return None if batch is None else batch.until(ReadPosition(self._end))

    @property
    def latest(self) -> int:
        return min(self._end, self._reader.latest)
