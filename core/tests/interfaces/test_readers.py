"""The bases of readers."""

from __future__ import annotations

from datetime import timedelta

import headrace as hr
import pytest
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import DataError
from headrace.interfaces.readers import ForwardingReader, OffsetReader, started
from headrace.interfaces.source import EARLIEST, LATEST, Reader, StartPosition
from headrace.testing import MemorySource


class Ten(OffsetReader):
    """A queue with ten records."""

    def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
        return None

    @property
    def latest(self) -> int:
        return 10


class Noting(ForwardingReader):
    """Notes how it is polled."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self.polls: list[int] = []

    def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
        self.polls.append(max_records)
        return super().poll(max_records, timeout)


class Telling(Ten):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__(4)
        self.told: list[object] = []

    def waypoints(self) -> list[ReadPosition]:
        return [ReadPosition(7)]

    def use_waypoints(self, positions: object) -> None:
        self.told.append(positions)

    def limit(self, end: ReadPosition) -> None:
        self.told.append(end)

    def skip_range(self, max_records: int) -> ReadPosition | None:
        return ReadPosition(9)

    def close(self) -> None:
        self.told.append("closed")


def test_an_offset_reader_is_where_it_is_sent() -> None:
    reader = Ten(3)
    assert (reader.position, reader.earliest, reader.position_after(4)) == (ReadPosition(3), 0, ReadPosition(7))
    reader.seek(ReadPosition(8))
    assert (reader.position, reader.position_after(4)) == (ReadPosition(8), ReadPosition(10))


def test_a_forwarding_reader_gives_what_the_other_gives() -> None:
    source = MemorySource({"q": [b"a", b"b", b"c"]})
    reader = Noting(source.open(Queue("q"), EARLIEST))
    reader.seek(ReadPosition(1))
    batch = reader.poll(5, timedelta(0))
    assert batch is not None
    assert batch.offsets.tolist() == [1, 2]
    assert (reader.polls, reader.position, reader.earliest, reader.latest) == ([5], ReadPosition(3), 0, 3)


def test_every_call_but_skip_range_is_forwarded() -> None:
    other = Telling()
    reader = ForwardingReader(other)
    assert (reader.waypoints(), reader.position_after(2), reader.latest) == ([ReadPosition(7)], ReadPosition(6), 10)
    reader.use_waypoints([ReadPosition(5)])
    reader.limit(ReadPosition(6))
    reader.close()
    assert other.told == [[ReadPosition(5)], ReadPosition(6), "closed"]
    assert reader.skip_range(5) is None


class Starting:
    """Notes where it begins; position 9 is lost."""

    def __init__(self) -> None:
        self.did: list[object] = []

    def begin(self, *, latest: bool) -> None:
        self.did.append("latest" if latest else "earliest")

    def restore(self, position: ReadPosition) -> None:
        if position.offset == 9:
            raise DataError("lost", offset=9)
        self.did.append(position.offset)

    def close(self) -> None:
        self.did.append("closed")


@pytest.mark.parametrize(("start", "did"), [(EARLIEST, "earliest"), (LATEST, "latest"), (ReadPosition(4), 4)])
def test_a_reader_is_started_where_it_is_told(start: StartPosition, did: object) -> None:
    assert started(Starting(), start).did == [did]


def test_a_reader_that_cannot_start_is_closed() -> None:
    reader = Starting()
    with pytest.raises(DataError):
        started(reader, ReadPosition(9))
    assert reader.did == ["closed"]
