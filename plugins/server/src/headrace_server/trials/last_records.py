"""A source that reads the last records of another one, and tells nobody that it has read them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from headrace.flow.messages import Queue, ReadPosition
from headrace.flow.schema import Schema
from headrace.interfaces.source import EARLIEST, LATEST, Reader, Source, StartPosition


class LastRecords(Source):
    """The last ``count`` records of each queue of ``source``, up to the end at the moment when the queue is opened.

    It is no GroupSource, so no group of a broker is joined and no position is committed. Offsets may have gaps, so a queue may give
    fewer records than ``count``. Made for a run with ``until="end"`` and without a checkpoint.
    """

    bounded = True

    def __init__(self, source: Source, count: int) -> None:
        self.settings = source.settings
        self._source = source
        self._count = count

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
        reader = self._source.open(queue, EARLIEST)
        first = max(reader.earliest, reader.latest - self._count)
        # Readers find a place by its hint, which only they know: so they go there themselves.
        while reader.position.offset < first:
            place = reader.position_after(first - reader.position.offset)
            if place.offset <= reader.position.offset:
                break
            reader.seek(place)
        return reader if start is not LATEST else self._source.open(queue, LATEST)

    def close(self) -> None:
        self._source.close()
