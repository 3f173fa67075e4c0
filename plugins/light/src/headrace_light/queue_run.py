"""One queue being read: its reader, its lane, and how far it is."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from headrace.backend import QueueStatus
from headrace.errors import JobFailedError, RetriableError
from headrace.faults import fault_point
from headrace.lane import Delivery, Lane
from headrace.messages import Queue, ReadPosition
from headrace.source import Reader

logger = logging.getLogger(__name__)
_PAUSE_SECONDS_MAX = 5.0


class QueueRun:
    """Polls one queue through its lane. ``bounded``: it is done at what was the end when it was opened."""

    def __init__(self, queue: Queue, reader: Reader, lane: Lane, *, bounded: bool) -> None:
        self.queue = queue
        self.lane = lane
        self.position: ReadPosition = reader.position
        self._reader = reader
        self._latest = reader.latest
        self._end = self._latest if bounded else None
        self._records = 0
        self._away_since: float | None = None
        self._pause_seconds = 0.1
        self._paused_until = 0.0

    @property
    def done(self) -> bool:
        """Whether a bounded run has reached its end."""
        return self._end is not None and self.position.offset >= self._end

    def poll(self, max_records: int, wait: timedelta) -> Sequence[Delivery] | None:
        """Read and process the next records; None when there were none."""
        if self._end is not None:
            max_records = min(max_records, self._end - self.position.offset)
        raw = self._reader.poll(max_records, wait)
        fault_point("reader.after_poll")
        self._away_since, self._pause_seconds = None, 0.1
        if raw is None:
            self.position = self._reader.position
            return None
        deliveries = self.lane.process(raw) if len(raw) else []
        self.position = raw.next_position
        self._records += len(raw)
        return deliveries

    def pause(self, error: RetriableError, now: float, retry_seconds: float) -> None:
        """The server is away: leave the queue alone for a while. Raises JobFailedError when it has been away too long."""
        if self._away_since is None:
            self._away_since = now
            logger.warning("queue %s: %s; trying again", self.queue.id, error.message)
        if now - self._away_since >= retry_seconds:
            raise JobFailedError(
                f"the source was away for {now - self._away_since:.0f} s: {error.message}",
                plugin=self.queue.source,
                queue=self.queue.id,
                offset=self.position.offset,
                hint="mend the server and start the job again: it goes on from its checkpoint",
            ) from error
        self._paused_until = now + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, _PAUSE_SECONDS_MAX)

    def paused(self, now: float) -> bool:
        """Whether the queue is to be left alone for now."""
        return now < self._paused_until

    def refresh_latest(self) -> bool:
        """Ask the reader for the queue's end, for the lag; return whether it answers."""
        try:
            self._latest = self._reader.latest
        except RetriableError as error:
            logger.debug("queue %s: cannot tell the lag: %s", self.queue.id, error.message)
            return False
        return True

    def status(self) -> QueueStatus:
        """Return how far the queue is."""
        return QueueStatus(self.queue.id, self.position.offset, self._latest, self._records)

    def close(self) -> None:
        """Close lane and reader."""
        self.lane.close()
        self._reader.close()
