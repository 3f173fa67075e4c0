"""Finds holders of leases that are gone, by the watcher's own clock only."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from headrace.foundation.clock import Clock, SystemClock

from headrace_lease.store import LeaseRecord


class SignsOfLife:
    """Watches the marks of leases. Call ``look`` repeatedly with records that were read from the store. One thread uses
    it.

    A holder is gone if its mark has not changed for ``duration`` while the store could be read all the time. A holder
    must stop by its own monotonic clock ``duration`` after it has *sent* its last renewal; then it has stopped by that
    time. So two holders never have the same lease, even if the clock of the store is changed, and an outage of the
    store makes no holder look dead.
    """

    def __init__(self, duration: timedelta, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._seconds = duration.total_seconds()
        self._seen: dict[str, tuple[str, float]] = {}
        self._looked = float("-inf")

    def look(self, records: Iterable[LeaseRecord], *, asked: float) -> None:
        """Record the current marks. ``asked``: the monotonic time just before they were read.

        If more than half a duration lies between two calls, all watches begin again, because it is unknown what
        happened in between.
        """
        read = self._clock.monotonic()
        forgotten = asked - self._looked > self._seconds / 2
        self._looked = asked
        found: dict[str, tuple[str, float]] = {}
        for record in records:
            mark, since = self._seen.get(record.name, ("", read))
            # A change counts from the time of its reading, so no holder is considered gone too early.
            found[record.name] = (record.mark, read if forgotten or mark != record.mark else since)
        self._seen = found

    def gone(self, record: LeaseRecord) -> bool:
        """Return whether the holder of a record from the last ``look`` has shown no sign of life for the duration."""
        mark, since = self._seen.get(record.name, ("", self._looked))
        return mark == record.mark and self._looked - since >= self._seconds

    def silent_seconds(self, name: str) -> float:
        """Return for how long a holder has shown no sign of life, as far as this was watched."""
        since = self._seen.get(name, ("", self._looked))[1]
        return max(0.0, self._clock.monotonic() - since)
