"""Ranges of queues that a worker process reads itself, from copies of the sources."""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta
from typing import Any

from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.foundation.errors import DataError
from headrace.interfaces.source import Reader
from headrace.plan.graph import Plan

#: How many readers are cached: a worker does not learn that a queue was removed.
_READERS_MAX = 64
_NO_WAIT = timedelta(0)


class Ranges:
    """Reads ranges that the engine has planned. Used by one thread."""

    def __init__(self, plan: Plan) -> None:
        self._sources = {name: node.source for name, node in plan.sources.items()}
        self._readers: OrderedDict[Queue, Reader] = OrderedDict()

    def read(
        self, queue: Queue, reads: tuple[tuple[int, dict[str, Any]], tuple[int, dict[str, Any]]]
    ) -> list[RawBatch]:
        """Return the records of a range, in the pieces in which they are read. Raises what readers raise.

        Then the reader is closed: the engine reads the range itself, and the next range gets a new reader.
        """
        start, end = (ReadPosition(offset, hint) for offset, hint in reads)
        reader = self._at(queue, start)
        try:
            reader.limit(end)
            pieces: list[RawBatch] = []
            while (at := reader.position.offset) < end.offset:
                raw = reader.poll(end.offset - at, _NO_WAIT)
                if raw is None:
                    raise DataError(f"the source returned no records after record {at}", queue=queue.id, offset=at)
                pieces.append(raw.until(end))
        except BaseException:
            self._readers.pop(queue).close()
            raise
        return [piece for piece in pieces if len(piece)]

    def _at(self, queue: Queue, start: ReadPosition) -> Reader:
        reader = self._readers.pop(queue, None)
        if reader is None:
            while len(self._readers) >= _READERS_MAX:
                self._readers.popitem(last=False)[1].close()
            reader = self._sources[queue.source].open(queue, start)
        elif reader.position != start:
            try:
                reader.seek(start)
            except BaseException:
                reader.close()
                raise
        self._readers[queue] = reader
        return reader
