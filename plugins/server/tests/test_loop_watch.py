"""Loops of the server that hang are found, shown and logged with the place where they hang."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
from headrace.foundation.clock import ManualClock
from headrace_server.loop_watch import STALLED_SECONDS, LoopRounds, LoopWatch


@pytest.fixture
def hanging() -> Iterator[threading.Thread]:
    """A thread that waits in a function with a name that is found again."""
    released = threading.Event()

    def waits_for_what_never_comes() -> None:
        released.wait()

    thread = threading.Thread(target=waits_for_what_never_comes, name="the one that hangs")
    thread.start()
    yield thread
    released.set()
    thread.join()


def test_a_loop_that_hangs_is_logged_once_with_the_stacks_of_all_threads(
    hanging: threading.Thread, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(0.0)
    loops = [LoopRounds(name, clock) for name in ("one", "two", "three")]
    watch = LoopWatch(clock, *loops, None)
    for loop in loops[:2]:
        loop.begin()
    clock.advance(STALLED_SECONDS / 2)
    loops[0].begin()
    clock.advance(STALLED_SECONDS / 2)
    assert watch.stalled() == {"two": STALLED_SECONDS}
    watch.look()
    watch.look()
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "the two loop has been in one round for 120 s" in record.message
    assert f"thread {hanging.name}\n" in record.message
    assert "waits_for_what_never_comes" in record.message
    loops[1].begin()
    watch.look()
    assert caplog.records[1].message == "the two loop goes on"
    assert len(caplog.records) == 2


def test_a_loop_that_has_ended_is_not_missed() -> None:
    clock = ManualClock(0.0)
    loop = LoopRounds("one", clock)
    watch = LoopWatch(clock, loop)
    loop.begin()
    loop.end()
    clock.advance(10 * STALLED_SECONDS)
    assert watch.stalled() == {}
