"""Datagrams that were read and not yet appended, and when they are to be appended."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_syslog.appends import OVERHEAD_BYTES

#: A reading that gives fewer datagrams is appended at once.
GATHER_DATAGRAMS = 64
#: Others are kept for so long, and appended together with those that follow: an append costs a block, a wait for the disk
#: and a batch of the job, whatever it holds.
GATHER_SECONDS = 0.025


class Gathered:
    """What the next append takes. Used by one thread. ``batch_bytes``: it is not to become larger."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self.bodies: list[bytes] = []
        self.headers: list[Mapping[str, bytes]] = []
        self._cost = 0
        self._seconds = 0.0
        self._last_reading = 0

    @property
    def is_full(self) -> bool:
        """Whether it holds as much as one append takes."""
        return self._cost >= self._batch_bytes

    def begin_reading(self, now: float) -> None:
        """Note that what the kernel holds is read from now on; ``now`` are seconds of a monotonic clock."""
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
        """Return what was gathered, and begin anew."""
        taken = self.bodies, self.headers
        self.bodies, self.headers, self._cost = [], [], 0
        return taken
