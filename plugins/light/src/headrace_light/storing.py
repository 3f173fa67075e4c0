"""Storing what a checkpoint consists of, while its disk may be full, read-only or away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headrace.clock import Clock
from headrace.errors import HeadraceError, JobFailedError, RetriableError
from headrace.storage_faults import storage_error
from headrace.waiting import Waiting

logger = logging.getLogger(__name__)
T = TypeVar("T")
_PAUSE_SECONDS_FIRST = 0.1
_PAUSE_SECONDS_MAX = 5.0


class Storing:
    """Tries again what could not be stored, for as long as servers that are away are waited for. Used by the engine's thread.

    Nothing is read meanwhile, so that nothing is lost or done twice. A job that is to stop tries once more and then fails.
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
        """Return how servers are waited for that operators ask: as long as what is stored is tried again."""
        return Waiting(self._clock, self._retry_seconds, away=away, back=back, stopping=self._stopping)

    def until_stored(self, action: Callable[[], T]) -> T:
        """Return what an action gives that can be done again. Raises JobFailedError when it could not be done for long."""
        begun, pause, told = self._clock.monotonic(), _PAUSE_SECONDS_FIRST, False
        while True:
            last = self._stopping.is_set()
            try:
                result = action()
            except (OSError, RetriableError) as error:
                failed = storage_error(error, self._place or ".") if isinstance(error, OSError) else error
                waited = self._clock.monotonic() - begun
                if last or waited >= self._retry_seconds:
                    raise self._failure(failed, waited) from error
                if not told:
                    told = True
                    logger.warning(
                        "job %s waits: %s%s", self._job, failed.message, f" ({failed.hint})" if failed.hint else ""
                    )
                self._clock.wait(self._stopping, pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)
            else:
                if told:
                    logger.warning("job %s goes on: its checkpoint can be written again", self._job)
                return result

    def _failure(self, error: HeadraceError, waited: float) -> JobFailedError:
        again = "the next start goes on from the last checkpoint that was written"
        hint = f"{error.hint}; {again}" if error.hint else again
        message = f"{error.message}, for {waited:.0f} s" if waited >= 1 else error.message
        return JobFailedError(message, job=self._job, option="checkpoint", hint=hint)
