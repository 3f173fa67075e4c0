"""Servers that are not available while instances share a job: failed actions are tried again, up to a limit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobFailedError, RetriableError
from headrace.foundation.retrying import Outages

logger = logging.getLogger(__name__)
T = TypeVar("T")


class SharedOutages:
    """Remembers which actions fail now, and since when. Used by the engine's thread."""

    def __init__(self, job: str, clock: Clock, retry_seconds: float) -> None:
        self._job = job
        self._retry_seconds = retry_seconds
        self._outages = Outages(clock)

    def trying(self, what: str, action: Callable[[], T]) -> T | None:
        """Return the result of an action; None when a server is not available. Raises JobFailedError when this has lasted too long."""
        try:
            result = action()
        except RetriableError as error:
            away = self._outages.goes_on(what)
            if away is None:
                away = 0.0
                logger.warning("job %s cannot %s: %s; trying again", self._job, what, error.message)
            if away >= self._retry_seconds:
                raise JobFailedError(
                    f"for {away:.0f} s it was not possible to {what}: {error.message}",
                    job=self._job,
                    hint="repair the server and start the job again: it continues from the committed offsets",
                ) from error
            return None
        if self._outages.is_over(what):
            logger.info("job %s can %s again", self._job, what)
        return result
