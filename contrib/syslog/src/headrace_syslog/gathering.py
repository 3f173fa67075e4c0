"""Collects datagrams that were read and not yet appended, and decides when they are appended."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_syslog.appends import OVERHEAD_BYTES

#: If a read returns fewer datagrams, they are appended immediately.
GATHER_DATAGRAMS = 64
#: Other datagrams are held for this time, and appended together with those that follow. Each append costs a block, a
#: wait for the disk and a batch of the job, whatever its size.
GATHER_SECONDS = 0.025


class Gathered:
    """The datagrams of the next append. One thread uses it. ``batch_bytes``: their maximum size."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self.bodies: list[bytes] = []
        self.headers: list[Mapping[str, bytes]] = []
        self._cost = 0
        self._seconds = 0.0
        self._last_reading = 0

    @property
    def is_full(self) -> bool:
        """Whether the datagrams fill one append."""
        return self._cost >= self._batch_bytes

    def begin_reading(self, now: float) -> None:
        """Called before datagrams are read from the kernel; ``now`` are seconds of a monotonic clock."""
        if not self.bodies:
            self._seconds = now
        self._last_reading = 0

    def add(self, body: bytes, headers: Mapping[str, bytes]) -> None:
        """Add a datagram."""
        self.bodies.append(body)
        self.headers.append(headers)
        self._cost += len(body) + OVERHEAD_BYTES
        self._last_reading += 1

    def is_due(self, now: float) -> bool:
        """Return whether to append now: the last reading gave few datagrams, or there are many, or they have waited."""
        if self.is_full or self._last_reading < GATHER_DATAGRAMS:
            return bool(self.bodies)
        return now - self._seconds >= GATHER_SECONDS

    def take(self) -> tuple[list[bytes], list[Mapping[str, bytes]]]:
        """Return the datagrams and begin with none."""
        taken = self.bodies, self.headers
        self.bodies, self.headers, self._cost = [], [], 0
        return taken
