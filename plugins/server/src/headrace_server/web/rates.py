"""Records per second of each job, from the counts that its runner gives."""

from __future__ import annotations

import threading
from collections import deque

from headrace.foundation.clock import Clock

_WINDOW_SECONDS = 10.0
_SHORTEST_SECONDS = 1.0


class Rates:
    """Remembers the counts of the last seconds. May be used from any thread; looked at by every page that shows rates."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[str, deque[tuple[float, int]]] = {}

    def rate(self, job: str, records: int | None) -> float | None:
        """Take the count of a job and return its records per second over the last ten seconds; None: not known yet, or it does not run."""
        now = self._clock.monotonic()
        with self._lock:
            if records is None:
                self._counts.pop(job, None)
                return None
            counts = self._counts.setdefault(job, deque())
            if counts and counts[-1][1] > records:  # a new process counts anew
                counts.clear()
            if not counts or now - counts[-1][0] >= _SHORTEST_SECONDS / 2:
                counts.append((now, records))
            while len(counts) > 2 and now - counts[1][0] >= _WINDOW_SECONDS:
                counts.popleft()
            first, before = counts[0]
            return (records - before) / (now - first) if now - first >= _SHORTEST_SECONDS else None
