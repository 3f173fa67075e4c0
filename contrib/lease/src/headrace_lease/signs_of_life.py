"""Tells which holders of leases are gone, by the watcher's own clock alone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from headrace.foundation.clock import Clock, SystemClock

from headrace_lease.store import LeaseRecord


class SignsOfLife:
    """Watches the marks of leases. ``look`` is called again and again with what was read of the store; one thread uses it.

    A holder is gone when its mark has not changed for ``duration`` while the store could be read all the time. A holder that stops by
    its own monotonic clock, ``duration`` after it has *sent* its last renewal, has stopped by then. So two never hold one lease,
    however the clock of the store is set, and an outage of the store does not make anybody look dead.
    """

    def __init__(self, duration: timedelta, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._seconds = duration.total_seconds()
        self._seen: dict[str, tuple[str, float]] = {}
        self._looked = float("-inf")

    def look(self, records: Iterable[LeaseRecord], *, asked: float) -> None:
        """Note the marks of now. ``asked``: the monotonic time right before they were read.

        After a pause of half a duration between two looks all watches begin anew: nobody knows what has happened in between.
        """
        read = self._clock.monotonic()
        forgotten = asked - self._looked > self._seconds / 2
        self._looked = asked
        found: dict[str, tuple[str, float]] = {}
        for record in records:
            mark, since = self._seen.get(record.name, ("", read))
            # A change is as late as its reading: counted from then, no holder is taken for gone too early.
            found[record.name] = (record.mark, read if forgotten or mark != record.mark else since)
        self._seen = found

    def gone(self, record: LeaseRecord) -> bool:
        """Return whether the holder in a record, of those that were looked at last, has shown no sign of life for the duration."""
        mark, since = self._seen.get(record.name, ("", self._looked))
        return mark == record.mark and self._looked - since >= self._seconds

    def silent_seconds(self, name: str) -> float:
        """Return for how long a holder has shown no sign of life, as far as this was watched."""
        since = self._seen.get(name, ("", self._looked))[1]
        return max(0.0, self._clock.monotonic() - since)
