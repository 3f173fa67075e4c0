"""Counts messages that arrived and were not stored, by reason, and logs the counts from time to time."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)
#: Shortest time between two log messages about losses.
TELL_SECONDS = 10.0

KERNEL = "datagrams that the kernel had no room for (net.core.rmem_max limits it)"
TOO_LONG = "messages longer than message_bytes"
REFUSED = "datagrams and connections of senders that are not in allow"
CONNECTIONS = "connections beyond max_connections"
INCOMPLETE = "messages whose connection ended within them"
FRAMING = "connections whose framing could not be read"
NOT_STORED = "messages that the buffer did not take"


class Losses:
    """Counts what is lost. Any thread may call it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._told_seconds = -TELL_SECONDS

    def add(self, reason: str, count: int = 1) -> None:
        """Count a loss."""
        if count:
            with self._lock:
                self._counts[reason] += count

    def counts(self) -> Mapping[str, int]:
        """Return how much was lost since the source began to listen, by reason."""
        with self._lock:
            return dict(self._counts)

    def tell(self, *, at_once: bool = False) -> None:
        """Log the losses since the last log message, unless that was a short time ago."""
        with self._lock:
            now = self._clock()
            new = self._counts - self._told
            if not new or (not at_once and now - self._told_seconds < TELL_SECONDS):
                return
            self._told, self._told_seconds = self._counts.copy(), now
        for reason, count in sorted(new.items()):
            logger.warning("syslog: %d %s (%d since the start)", count, reason, self._told[reason])
