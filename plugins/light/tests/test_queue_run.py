"""A range that was read before a crash is read again, also if its reader does not give it at once."""

from __future__ import annotations

from datetime import timedelta

import headrace as hr
import pytest
from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import DataError
from headrace.interfaces.readers import ForwardingReader
from headrace.interfaces.source import EARLIEST, Reader
from headrace.runtime.lane import Lane
from headrace.testing import MemorySink, MemorySource
from headrace_light.queue_run import QueueRun


class Reluctant(ForwardingReader):
    """Gives nothing every other time, as a reader does whose connection brings records of other queues first."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self.polls = 0

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        self.polls += 1
        return self._reader.poll(min(2, max_records), timeout) if self.polls % 2 == 0 else None


def run_over(count: int) -> tuple[QueueRun, MemorySink]:
    source = MemorySource({"q": [b'{"n": %d}' % n for n in range(count)]})
    sink = MemorySink()
    plan = hr.stream("test", "again").from_(source, format="json", schema={"n": "int64"}, name="in").to(sink).plan()
    queue = Queue("q", "in")
    reader = Reluctant(source.open(queue, EARLIEST))
    return QueueRun(queue, reader, Lane(plan, plan.sources["in"], queue), bounded=True, clock=SystemClock()), sink


def test_a_reader_that_gives_nothing_at_first_is_asked_again() -> None:
    run, _ = run_over(6)
    deliveries = run.read_again(ReadPosition(1), ReadPosition(6), 100)
    assert [n for each in deliveries for n in each.batch.frame["n"]] == [1, 2, 3, 4, 5]


def test_records_that_are_gone_stop_the_job() -> None:
    run, _ = run_over(3)
    with pytest.raises(DataError, match="records 1 to 6 were read before, but the queue now has no records after 3"):
        run.read_again(ReadPosition(1), ReadPosition(6), 100)
