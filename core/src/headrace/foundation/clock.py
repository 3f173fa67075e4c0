"""Where time comes from, so that tests can move it by hand."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What headrace asks for time. Two readings are compared only within one process."""

    def now(self) -> float:
        """Return seconds since the Unix epoch, for what people see and for processing-time windows."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only grow, for intervals and time-outs."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until ``event`` is set or ``seconds`` have passed; return whether it is set."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(max(0.0, seconds))


class ManualClock:
    """A clock that moves only by its methods: for tests.

    ``wait`` never blocks: it moves the clock by the requested time and returns whether the event is set.
    """

    def __init__(self, start_seconds: float = 0.0) -> None:
        self._seconds = start_seconds
        self._lock = threading.Lock()

    def now(self) -> float:
        return self._seconds

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        with self._lock:
            self._seconds += seconds

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if not event.is_set():
            self.advance(max(0.0, seconds))
        return event.is_set()
