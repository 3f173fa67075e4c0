"""Waiting for a file to grow: the system wakes the reader where it can (inotify of Linux), else time passes."""

from __future__ import annotations

import ctypes
import functools
import os
import select
import threading
from collections.abc import Callable

from headrace.foundation.clock import Clock, SystemClock

_IN_MODIFY = 0x2
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_EVENT_BYTES_MAX = 65_536
#: After a wake-up the next one comes not earlier: a file to which bytes are added one by one must not take a core.
_PAUSE_SECONDS = 0.001
#: What is waited for while time passes.
_NEVER = threading.Event()


class WakeUp:
    """Waits for one reader, in its thread. It never waits longer than asked, whatever the system reports or leaves out.

    So it does no harm that file systems of other machines, and mapped files, give no events.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._descriptor = -1
        self._usable = isinstance(clock, SystemClock)  # a clock of tests does not move while a thread waits elsewhere
        self._woken_seconds = float("-inf")

    def watch(self, path: str) -> None:
        """Wake up when the file at ``path`` is written to. Called before the reader looks into it.

        A file that is watched already costs one call of the system.
        """
        if not self._usable:
            return
        found = _functions()
        if found is None:
            self._usable = False
            return
        begin, add = found
        if self._descriptor < 0:
            self._descriptor = begin(_FLAGS)
        if self._descriptor < 0:
            self._usable = False  # the user has as many as the system allows
            return
        add(self._descriptor, os.fsencode(path), _IN_MODIFY)  # no such file: no events

    def wait(self, seconds: float) -> None:
        """Wait until a watched file was written to since the last ``wait``, or for ``seconds``."""
        if self._descriptor < 0:
            self._clock.wait(_NEVER, seconds)
            return
        pause = min(seconds, self._woken_seconds + _PAUSE_SECONDS - self._clock.monotonic())
        if pause > 0:
            self._clock.wait(_NEVER, pause)
            seconds -= pause
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if seconds > 0 and poll.poll(seconds * 1_000):
            os.read(self._descriptor, _EVENT_BYTES_MAX)
            self._woken_seconds = self._clock.monotonic()

    def close(self) -> None:
        """Give the descriptor back. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@functools.cache
def _functions() -> tuple[Callable[[int], int], Callable[[int, bytes, int], int]] | None:
    """Return ``inotify_init1`` and ``inotify_add_watch``; None: this system has none."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        return library.inotify_init1, library.inotify_add_watch
    except (AttributeError, OSError, TypeError):
        return None
