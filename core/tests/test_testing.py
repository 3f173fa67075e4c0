"""Sources and sinks in memory: what a test does to them while a job runs."""

from __future__ import annotations

import threading

from headrace.interfaces.source import EARLIEST
from headrace.testing import MemorySource


def test_a_queue_that_vanishes_between_two_calls_is_empty() -> None:
    source = MemorySource({"a": [b"1"], "b": []})
    queue = next(each for each in source.queues() if each.name == "a")
    source.remove_queue("a")
    assert source.open(queue, EARLIEST).latest == 0
    assert [each.name for each in source.queues()] == ["b"]


def test_queues_are_listed_while_they_change() -> None:
    source, done, failed = MemorySource(), threading.Event(), []

    def look() -> None:
        while not done.is_set():
            try:
                source.queues()
            except RuntimeError as error:
                failed.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(3_000):
        source.append(f"q{number}", b"1")
        if number % 3:
            source.remove_queue(f"q{number}")
    done.set()
    looking.join()
    assert not failed
    assert len(source.queues()) == 1_000
