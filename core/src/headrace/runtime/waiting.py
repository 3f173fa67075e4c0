"""Repeats calls of operators behind a shuffle while a server is not available: an entry that has begun must be
finished.

In front of a shuffle the lane processes the records again. Behind it, operators may have changed their state already,
so only the call itself may be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobFailedError, RetriableError
from headrace.foundation.retrying import Tries, until_done

T = TypeVar("T")
_current = threading.local()


class Waiting:
    """How a runtime waits for servers that operators ask. ``away`` is called with the first error of a call, ``back``
    when the call has succeeded.

    A call is given up after ``retry_seconds``, or when ``stopping`` is set: then JobFailedError ends the job.
    """

    def __init__(
        self,
        clock: Clock,
        retry_seconds: float,
        *,
        away: Callable[[RetriableError], None],
        back: Callable[[], None],
        stopping: threading.Event | None = None,
    ) -> None:
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._away, self._back = away, back
        self._stopping = stopping or threading.Event()

    def until_answered(self, call: Callable[[], T]) -> T:
        """Return the result of a call, which is repeated until it succeeds."""
        return until_done(
            call,
            clock=self._clock,
            stopping=self._stopping,
            retriable=RetriableError,
            failed=self._failed,
            back=self._back,
        )

    def _failed(self, error: RetriableError, tries: Tries) -> None:
        if tries.waited_seconds >= self._retry_seconds or self._stopping.is_set():
            raise self._given_up(error, tries.waited_seconds) from error
        if tries.failures == 1:
            self._away(error)

    def _given_up(self, error: RetriableError, waited: float) -> JobFailedError:
        why = "the job was stopped while" if self._stopping.is_set() else f"for {waited:.0f} s"
        return JobFailedError(
            f"{why} the server that an operator uses was not available: {error.message}",
            plugin=error.plugin,
            queue=error.queue,
            hint="repair the server and start the job again: it continues from its checkpoint",
        )


@contextmanager
def waiting(how: Waiting) -> Iterator[None]:
    """Let ``until_answered`` wait in this thread, within the block. Runtimes use it around the code that drives a
    shard.
    """
    before = getattr(_current, "how", None)
    _current.how = how
    try:
        yield
    finally:
        _current.how = before


def until_answered(call: Callable[[], T]) -> T:
    """Return the result of a call of user code. If the runtime waits for servers, the call is repeated after a
    RetriableError.

    Used by operators, for calls that change nothing when they raise. If the runtime does not wait, the error is raised,
    and the runtime processes the records again.
    """
    how: Waiting | None = getattr(_current, "how", None)
    return call() if how is None else how.until_answered(call)
