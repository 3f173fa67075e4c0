"""Base classes of readers: for readers whose positions are only offsets, and for readers that change the records of
another reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from headrace.flow.messages import RawBatch, ReadPosition
from headrace.interfaces.source import EARLIEST, Reader, StartPosition


class OffsetReader(Reader):
    """Base of readers that find a record by its offset alone.

    It keeps the offset of the next record in ``_next``. A derived class implements ``latest``, and ``poll``, which sets
    ``_next`` to the offset after the returned records. The queue keeps all records, from offset 0 on, unless
    ``earliest`` is overridden.
    """

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def seek(self, position: ReadPosition) -> None:
        self._next = position.offset

    @property
    def position(self) -> ReadPosition:
        return ReadPosition(self._next)

    @property
    def earliest(self) -> int:
        return 0


class ForwardingReader(Reader):
    """Base of readers that wrap another reader: all calls go to that reader, and a derived class overrides some.

    ``skip_range`` is not forwarded, because its records would not pass the ``poll`` of the derived class.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        return self._reader.poll(max_records, timeout)

    def seek(self, position: ReadPosition) -> None:
        self._reader.seek(position)

    @property
    def position(self) -> ReadPosition:
        return self._reader.position

    @property
    def earliest(self) -> int:
        return self._reader.earliest

    @property
    def latest(self) -> int:
        return self._reader.latest

    def position_after(self, max_records: int) -> ReadPosition:
        return self._reader.position_after(max_records)

    def waypoints(self) -> Sequence[ReadPosition]:
        return self._reader.waypoints()

    def use_waypoints(self, positions: Sequence[ReadPosition]) -> None:
        self._reader.use_waypoints(positions)

    def limit(self, end: ReadPosition) -> None:
        self._reader.limit(end)

    def close(self) -> None:
        self._reader.close()


class StartingReader(Protocol):
    """A reader that asks its server where it begins."""

    def begin(self, *, latest: bool) -> None:
        """Begin in a queue that is not in the checkpoint: at its first record, or after its last one."""

    def restore(self, position: ReadPosition) -> None:
        """Continue at a checkpoint's position. Raises DataError if the queue cannot have reached it."""

    def close(self) -> None: ...


StartingReaderT = TypeVar("StartingReaderT", bound=StartingReader)


def started(reader: StartingReaderT, start: StartPosition) -> StartingReaderT:
    """Return the reader at its start position, for ``Source.open``. If this fails, the reader is closed. A ``StartAt``
    is not supported.
    """
    try:
        if isinstance(start, ReadPosition):
            reader.restore(start)
        else:
            reader.begin(latest=start is not EARLIEST)
    except BaseException:
        reader.close()
        raise
    return reader
