"""Watches a job that runs in this process: warns about a call that does not return, and ends a process that hangs.

If the call lets other threads run (a query of polars, a socket, Python code), the watchdog prints a warning, and a stop
has a time limit. If the call holds Python's global lock (a loop in C), no signal handler can run either. Then a timer of
``faulthandler``, which needs no Python, ends the process.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from headrace.foundation import at_work
from headrace.foundation.errors import OptionError
from headrace.interfaces.backend import JobHandle
from headrace.interfaces.settings import parse_duration

from headrace_console.reporting import say

#: How long a graceful stop may take before the command gives up waiting.
STOP_TIMEOUT = timedelta(minutes=5)
#: The environment variable that sets another time.
STOP_TIMEOUT_VARIABLE = "HEADRACE_STOP_TIMEOUT"
#: A batch that takes this long causes a warning; the next warning comes when it has taken twice as long.
_TOLD_FROM_SECONDS = 60.0
_GRACE_SECONDS = 5.0


def stop_timeout() -> timedelta:
    """Return how long a graceful stop may take. It is also how long one call may block all of Python.

    Raises OptionError if the environment variable is not a duration greater than 0.
    """
    given = os.environ.get(STOP_TIMEOUT_VARIABLE)
    if given is None:
        return STOP_TIMEOUT
    try:
        made = parse_duration(given)
    except ValueError as error:
        raise OptionError(f"{STOP_TIMEOUT_VARIABLE}={given!r}: {error}", hint="write 30s, 2m or 1h") from error
    if made <= timedelta():
        raise OptionError(f"{STOP_TIMEOUT_VARIABLE}={given!r} must be greater than 0", hint="write 30s, 2m or 1h")
    return made


class Watchdog:
    """Checks a job regularly, from the main thread. Used by ``headrace run``."""

    def __init__(self, timeout: timedelta) -> None:
        self._seconds = timeout.total_seconds()
        self._told_seconds = _TOLD_FROM_SECONDS

    def look(self, handle: JobHandle) -> None:
        """Warn about a node that needs long for one batch, and restart the timer that ends the process. Called every 200 ms."""
        self._arm(self._seconds)
        found = at_work.longest(handle.status().job)
        if found is None or found[1].seconds() < _TOLD_FROM_SECONDS:
            self._told_seconds = _TOLD_FROM_SECONDS
        elif found[1].seconds() >= self._told_seconds:
            self._told_seconds = 2 * found[1].seconds()
            say(f"\nwarning: {at_work.described(found[1].job)}", style="yellow")

    def stop(self, handle: JobHandle) -> None:
        """Stop the job gracefully. Raises TimeoutError if that takes too long; with light it says which node is at work."""
        # The timer fires after the time-out of handle.stop, whose error says more.
        self._arm(self._seconds + _GRACE_SECONDS)
        handle.stop(timedelta(seconds=self._seconds))

    @staticmethod
    def _arm(seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or 2)


@contextmanager
def watching(timeout: timedelta) -> Iterator[Watchdog]:
    """Give a watchdog while a job runs; at the end switch off its timer."""
    try:
        yield Watchdog(timeout)
    finally:
        faulthandler.cancel_dump_traceback_later()
