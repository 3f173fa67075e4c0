"""When queues that cannot be read are tried again, and when windows stop waiting for them."""

from __future__ import annotations

import logging

import pytest
from headrace.flow.messages import Queue
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import BrokenQueueError
from headrace.runtime.broken_queues import BrokenQueues

QUEUE = Queue("a", "in")
ERROR = BrokenQueueError("no permission to read a", hint="let the job's user read it")


def test_pauses_grow_to_a_minute() -> None:
    clock = ManualClock()
    broken = BrokenQueues("job", clock, 300.0)
    assert broken.is_due(QUEUE)
    pauses = []
    for _ in range(9):
        broken.set_aside(QUEUE, ERROR, 3)
        begun = clock.monotonic()
        while not broken.is_due(QUEUE):
            clock.advance(0.5)
        pauses.append(clock.monotonic() - begun)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_it_is_told_once_and_when_it_is_mended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    broken = BrokenQueues("job", ManualClock(), 300.0)
    assert broken.set_aside(QUEUE, ERROR, 3)
    assert not broken.set_aside(QUEUE, ERROR, 3)
    assert broken.reasons() == {QUEUE: (3, "no permission to read a")}
    assert broken.mended(QUEUE)
    assert not broken.mended(QUEUE)
    assert [record.message for record in caplog.records] == [
        "job job: queue in/a is set aside before record 3, the other queues are read on: no permission to read a "
        "(let the job's user read it)",
        "job job: queue in/a can be read again",
    ]


def test_windows_wait_for_it_as_long_as_for_a_source_that_is_away() -> None:
    clock = ManualClock()
    broken = BrokenQueues("job", clock, 300.0)
    broken.set_aside(QUEUE, ERROR, 3)
    clock.advance(299)
    broken.set_aside(QUEUE, ERROR, 3)
    assert not broken.is_given_up(QUEUE)
    clock.advance(1)
    assert broken.is_given_up(QUEUE)
    broken.mended(QUEUE)
    assert not broken.is_given_up(QUEUE)
