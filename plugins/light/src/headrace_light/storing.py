"""Stores the parts of a checkpoint, while its disk may be full, read-only or not available."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from headrace.foundation.clock import Clock
from headrace.foundation.errors import HeadraceError, JobFailedError, RetriableError
from headrace.foundation.retrying import Tries, until_done
from headrace.foundation.storage_faults import storage_error
from headrace.runtime.waiting import Waiting

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Storing:
    """Repeats what could not be stored, for the time limit that also holds for servers that are not available. Used by the engine's thread.

    Nothing is read until it succeeds, so that nothing is lost or done twice. A stopping job tries once more and then fails.
    """

    def __init__(
        self, job: str, place: Path | None, clock: Clock, stopping: threading.Event, retry_seconds: float
    ) -> None:
        self._job = job
        self._place = place
        self._clock = clock
        self._stopping = stopping
        self._retry_seconds = retry_seconds

    def waiting(self, *, away: Callable[[RetriableError], None], back: Callable[[], None]) -> Waiting:
        """Return how to wait for the servers of operators: with the same time limit as for storing."""
        return Waiting(self._clock, self._retry_seconds, away=away, back=back, stopping=self._stopping)

    def until_stored(self, action: Callable[[], T]) -> T:
        """Return the result of an action that can be repeated. Raises JobFailedError when it has failed for too long."""

        def failed(error: Exception, tries: Tries) -> None:
            found = (
                error if isinstance(error, HeadraceError) else storage_error(cast(OSError, error), self._place or ".")
            )
            if self._stopping.is_set() or tries.waited_seconds >= self._retry_seconds:
                raise self._failure(found, tries.waited_seconds) from error
            if tries.failures == 1:
                hint = f" ({found.hint})" if found.hint else ""
                logger.warning("job %s waits: %s%s", self._job, found.message, hint)

        def back() -> None:
            logger.warning("job %s continues: its checkpoint can be written again", self._job)

        return until_done(
            action,
            clock=self._clock,
            stopping=self._stopping,
            retriable=(OSError, RetriableError),
            failed=failed,
            back=back,
        )

    def _failure(self, error: HeadraceError, waited: float) -> JobFailedError:
        again = "the next start continues from the last checkpoint that was written"
        hint = f"{error.hint}; {again}" if error.hint else again
        message = f"{error.message}, for {waited:.0f} s" if waited >= 1 else error.message
        return JobFailedError(message, job=self._job, option="checkpoint", hint=hint)
