"""What is done again when a server or a disk is away: how long to pause between tries, since when it fails, and when it works.

All retries of headrace use these: ``until_done`` where a thread can wait, ``Backoff`` where it has other work
meanwhile, ``Outages`` where several things can fail independently. The caller decides when to give up, and with which
error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import RetriableError

T = TypeVar("T")
E = TypeVar("E", bound=Exception)
_FIRST_SECONDS = 0.1
_SECONDS_MAX = 5.0


class Backoff:
    """How long to leave something alone after failures: pauses double from ``first_seconds`` to ``seconds_max``.

    ``jitter`` gives a number from 0 to 1 that makes a pause up to half shorter. ``random.random`` keeps many clients of a server
    that restarts from coming back at the same moment. Used by one thread.
    """

    def __init__(
        self,
        *,
        first_seconds: float = _FIRST_SECONDS,
        seconds_max: float = _SECONDS_MAX,
        monotonic: Callable[[], float] | None = None,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        self._first_seconds = first_seconds
        self._seconds_max = seconds_max
        self._monotonic = monotonic or SystemClock().monotonic
        self._jitter = jitter
        self._failures = 0
        self._not_before = 0.0

    def remaining_seconds(self) -> float:
        """Return the seconds until the next try is due; 0 when it is."""
        return max(0.0, self._not_before - self._monotonic()) if self._failures else 0.0

    def failed(self) -> float:
        """Note a failure; return the seconds to wait."""
        pause = min(self._seconds_max, self._first_seconds * 2.0 ** min(self._failures, 30))
        if self._jitter is not None:
            pause *= 1.0 - 0.5 * self._jitter()
        self._failures += 1
        self._not_before = self._monotonic() + pause
        return pause

    def succeeded(self) -> None:
        """Forget the failures."""
        self._failures = 0


class Outages:
    """Remembers by name what does not work. Used by one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def goes_on(self, what: str) -> float | None:
        """Note that something has failed again; return for how many seconds it has by now, None when it is the first time."""
        now = self._clock.monotonic()
        if what in self._since:
            return now - self._since[what]
        self._since[what] = now
        return None

    def is_over(self, what: str) -> bool:
        """Note that something works; return whether it had failed before."""
        return self._since.pop(what, None) is not None


@dataclass
class Tries:
    """What is known of an action that has failed. Given to the function that decides whether it is tried again."""

    #: How often it has failed.
    failures: int
    #: Since it was tried first.
    waited_seconds: float
    #: Until the next try. The function may change it.
    pause_seconds: float


def until_done(
    action: Callable[[], T],
    *,
    clock: Clock,
    stopping: threading.Event,
    retriable: type[E] | tuple[type[E], ...],
    failed: Callable[[E, Tries], None],
    back: Callable[[], None] = lambda: None,
    backoff: Backoff | None = None,
) -> T:
    """Return what ``action`` gives, trying it again while it raises one of ``retriable``.

    ``failed`` is called for each failure: it raises an error to end the tries, or returns to continue them. A RetriableError that says
    when to come again (``after``) is not tried sooner. The wait ends early when ``stopping`` is set; then the action is tried
    once more, and ``failed`` decides. ``back`` is called when the action has worked after failures.
    """
    backoff = backoff or Backoff(monotonic=clock.monotonic)
    begun, failures = clock.monotonic(), 0
    while True:
        try:
            result = action()
        except retriable as error:
            failures += 1
            pause = backoff.failed()
            if isinstance(error, RetriableError) and error.after is not None:
                pause = max(pause, error.after.total_seconds())
            tries = Tries(failures, clock.monotonic() - begun, pause)
            failed(error, tries)
            clock.wait(stopping, tries.pause_seconds)
        else:
            if failures:
                back()
            return result
