"""Calls behind a shuffle that find a server away are made again where they stand: an entry that has begun must be finished.

In front of a shuffle the records themselves wait and are taken through the lane again. Behind it operators have changed by then,
so nothing but the call itself may be repeated.
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
    """How a runtime waits for servers that operators ask. ``away`` is told of the first error of a call, ``back`` when it has worked.

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
        """Return what a call gives, making it again and again."""
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
    """Let ``until_answered`` wait in this thread. Used by runtimes around what drives a shard."""
    before = getattr(_current, "how", None)
    _current.how = how
    try:
        yield
    finally:
        _current.how = before


def until_answered(call: Callable[[], T]) -> T:
    """Return what a call of a user's code gives; where the runtime waits for servers, a RetriableError repeats it.

    Used by operators, for calls that change nothing when they raise. Else the error is raised: the runtime begins
    again with the records.
    """
    how: Waiting | None = getattr(_current, "how", None)
    return call() if how is None else how.until_answered(call)
