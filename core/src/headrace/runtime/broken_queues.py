"""Queues that cannot be read: they are set aside while the others are read, and tried again from time to time."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headrace.flow.messages import Queue
from headrace.foundation.clock import Clock
from headrace.foundation.errors import BrokenQueueError
from headrace.foundation.retrying import Backoff

logger = logging.getLogger(__name__)
_PAUSE_SECONDS_FIRST = 1.0
_PAUSE_SECONDS_MAX = 60.0


@dataclass
class _Broken:
    error: BrokenQueueError
    #: The offset of the next record; None if the queue could not be opened.
    offset: int | None
    since_seconds: float
    backoff: Backoff


class BrokenQueues:
    """Remembers which queues were set aside, why, and when each is to be tried again. Used by one thread of a runtime.

    Pauses between two tries grow from one second to one minute. After ``patience_seconds`` windows no longer
    wait for the queue, but it is still tried. ``logs``: whether this object logs queues that are set aside.
    """

    def __init__(self, job: str, clock: Clock, patience_seconds: float, *, logs: bool = True) -> None:
        self._job = job
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._logs = logs
        self._broken: dict[Queue, _Broken] = {}

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._broken

    def __bool__(self) -> bool:
        return bool(self._broken)

    def set_aside(self, queue: Queue, error: BrokenQueueError, offset: int | None) -> bool:
        """Set a queue aside, or note that another try has failed. Return whether it was readable before. It is logged once."""
        now = self._clock.monotonic()
        before = self._broken.get(queue)
        if before is not None:
            before.error = error
            before.backoff.failed()
            return False
        backoff = Backoff(
            first_seconds=_PAUSE_SECONDS_FIRST, seconds_max=_PAUSE_SECONDS_MAX, monotonic=self._clock.monotonic
        )
        backoff.failed()
        self._broken[queue] = _Broken(error, offset, now, backoff)
        if self._logs:
            tell_set_aside(self._job, queue.id, offset, error.message, error.hint)
        return True

    def is_due(self, queue: Queue) -> bool:
        """Return whether a queue may be read: it is not set aside, or it is time for the next try."""
        found = self._broken.get(queue)
        return found is None or not found.backoff.remaining_seconds()

    def is_given_up(self, queue: Queue) -> bool:
        """Return whether a queue has been broken for so long that windows do not wait for it any more."""
        found = self._broken.get(queue)
        return found is not None and self._clock.monotonic() - found.since_seconds >= self._patience_seconds

    def mended(self, queue: Queue) -> bool:
        """Note that a queue can be read; return whether it had been set aside."""
        if self._broken.pop(queue, None) is None:
            return False
        if self._logs:
            tell_mended(self._job, queue.id)
        return True

    def forget(self, queue: Queue) -> None:
        """Forget a queue that exists no more."""
        self._broken.pop(queue, None)

    def reason(self, queue: Queue) -> str | None:
        """Return why a queue was set aside; None: it was not."""
        found = self._broken.get(queue)
        return None if found is None else found.error.message

    def reasons(self) -> dict[Queue, tuple[int | None, str]]:
        """Return the position of each queue that is set aside, and the reason."""
        return {queue: (found.offset, found.error.message) for queue, found in dict(self._broken).items()}

    def first_error(self) -> BrokenQueueError | None:
        """Return the error of the queue that was set aside first."""
        return next((found.error for found in self._broken.values()), None)


def tell_set_aside(job: str, queue_id: str, offset: int | None, message: str, hint: str | None) -> None:
    """Log that a queue was set aside."""
    at = "" if offset is None else f" before record {offset}"
    more = f" ({hint})" if hint else ""
    logger.warning(
        "job %s: queue %s is set aside%s, the other queues are read on: %s%s", job, queue_id, at, message, more
    )


def tell_mended(job: str, queue_id: str) -> None:
    """Log that a queue can be read again."""
    logger.warning("job %s: queue %s can be read again", job, queue_id)
