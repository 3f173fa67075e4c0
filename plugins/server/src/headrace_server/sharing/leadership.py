"""What only one of the servers does: one lease for each such task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from headrace.foundation.clock import Clock
from headrace_lease import Lease, LeaseLostError, LeaseRecord, Leases

_RENEWALS_PER_DURATION = 4


class Task:
    """A task of one server at a time. ``hold`` is called by the server's loop."""

    def __init__(self, leases: Leases, clock: Clock, name: str, holder: str, duration: timedelta) -> None:
        self._leases = leases
        self._clock = clock
        self._name = name
        self._holder = holder
        self._duration = duration
        self.lease: Lease | None = None
        self._renewed = float("-inf")

    def hold(self, records: Mapping[str, LeaseRecord], is_gone: Callable[[LeaseRecord], bool]) -> bool:
        """Keep the lease, or take it if it is free or its holder is gone. Return whether this server has it."""
        now = self._clock.monotonic()
        if self.lease is not None:
            if now - self._renewed < self._duration.total_seconds() / _RENEWALS_PER_DURATION:
                return True
            try:
                self.lease.renew()
                self._renewed = now
                return True
            except LeaseLostError:
                self.lease = None
        seen = records.get(self._name)
        if seen is None or seen.last_holder is None:
            self.lease = self._leases.acquire(self._name, holder=self._holder, duration=self._duration)
        elif is_gone(seen):
            self.lease = self._leases.take_over(seen, holder=self._holder, duration=self._duration)
        self._renewed = now
        return self.lease is not None

    def release(self) -> None:
        """Let another server have the task at once."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None
