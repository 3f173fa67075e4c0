"""Waiting at the start of a job: it waits for servers that are not available, as a running job does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, TypeVar

from headrace.foundation.clock import Clock
from headrace.foundation.errors import RetriableError
from headrace.foundation.retrying import Backoff, Tries, until_done

logger = logging.getLogger(__name__)
T = TypeVar("T")
_PAUSE_SECONDS_MAX = 2.0
_TELL_SECONDS = 10.0


class WaitFor(Protocol):
    """The type of ``Patience.wait_for``."""

    def __call__(self, what: str, action: Callable[[], T], /) -> T: ...


class Patience:
    """Repeats an action of a start while a server is not available. Used by the thread that starts the job.

    One start waits at most ``timeout`` in total. Errors other than RetriableError (an unknown topic, a wrong
    password) are raised at once. It logs what it waits for at the level WARNING: at first, and then every ten
    seconds. An error from a signal handler ends the waiting, and so does ``stopping``: then the server's error is
    raised.
    """

    def __init__(self, job: str, timeout: timedelta, clock: Clock, *, stopping: threading.Event | None = None) -> None:
        self._job = job
        self._timeout_seconds = timeout.total_seconds()
        self._clock = clock
        self._waited_seconds = 0.0
        self._stopping = stopping or threading.Event()

    def wait_for(self, what: str, action: Callable[[], T]) -> T:
        """Return the result of ``action``, which may be called several times. Raises its RetriableError when the time is up."""
        told, before, begun = float("-inf"), self._waited_seconds, self._clock.monotonic()

        def failed(error: RetriableError, tries: Tries) -> None:
            nonlocal told
            self._waited_seconds = before + tries.waited_seconds
            left = self._timeout_seconds - self._waited_seconds
            if self._stopping.is_set():
                raise error
            if left <= 0:
                waited = f"it was waited for {self._waited_seconds:.0f} s (start_timeout)"
                error.hint = f"{error.hint}; {waited}" if error.hint else waited
                raise error
            if tries.waited_seconds - told >= _TELL_SECONDS:
                told = tries.waited_seconds
                logger.warning("job %s waits for %s, up to %.0f s more: %s", self._job, what, left, error.message)
            tries.pause_seconds = min(tries.pause_seconds, left)

        def back() -> None:
            self._waited_seconds = before + self._clock.monotonic() - begun
            logger.warning("job %s continues: %s is available", self._job, what)

        backoff = Backoff(seconds_max=_PAUSE_SECONDS_MAX, monotonic=self._clock.monotonic)
        return until_done(
            action,
            clock=self._clock,
            stopping=self._stopping,
            retriable=RetriableError,
            failed=failed,
            back=back,
            backoff=backoff,
        )
