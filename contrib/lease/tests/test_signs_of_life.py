"""Holders are taken for gone by the watcher's own clock alone."""

from __future__ import annotations

from datetime import timedelta

from headrace.foundation.clock import ManualClock
from headrace_lease import LeaseRecord, SignsOfLife


def record(mark: str, name: str = "job") -> LeaseRecord:
    return LeaseRecord(name, 1, None, timedelta(), mark=mark)


class Watch:
    """Looks every second."""

    def __init__(self) -> None:
        self.clock = ManualClock(100.0)
        self.signs = SignsOfLife(timedelta(seconds=8), clock=self.clock)

    def look(self, *marks: str) -> list[bool]:
        found = []
        for mark in marks:
            asked = self.clock.monotonic()
            self.clock.advance(0.1)  # reading takes time
            self.signs.look([record(mark)], asked=asked)
            found.append(self.signs.gone(record(mark)))
            self.clock.advance(0.9)
        return found


def test_a_mark_that_stays_is_gone_after_the_duration_and_not_before() -> None:
    watch = Watch()
    # From the end of the first reading to the begin of the last one: 8.9 s. One look earlier it is 7.9 s.
    assert watch.look(*["a"] * 10) == [False] * 9 + [True]


def test_each_sign_of_life_begins_the_watch_anew() -> None:
    watch = Watch()
    assert not any(watch.look(*["a"] * 9, *["b"] * 9, *["c"] * 9))
    assert watch.look("c") == [True]


def test_a_watcher_that_was_paused_or_could_not_read_begins_anew() -> None:
    watch = Watch()
    watch.look(*["a"] * 9)
    watch.clock.advance(5.0)
    assert not any(watch.look(*["a"] * 9))
    assert watch.look("a") == [True]


def test_what_was_not_looked_at_is_not_gone() -> None:
    watch = Watch()
    watch.look(*["a"] * 20)
    assert not watch.signs.gone(record("a", name="other"))
    assert not watch.signs.gone(record("b"))
