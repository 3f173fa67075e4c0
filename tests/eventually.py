"""Waiting in tests for other threads, processes and servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
#: Long enough for a machine that does other things too. A test that passes does not wait for its end.
PATIENCE_SECONDS = 180.0
#: The longer something takes, the more seldom it is looked for: this part of the time that has passed, up to so many seconds. Looking
#: costs this process and the one that is asked: every 10 ms, it would take half of a processor from those that are waited for.
_PAUSE_SHARE, _PAUSE_SECONDS_MAX = 0.04, 0.1


def eventually(
    probe: Callable[[], T],
    what: str,
    *,
    shown: Callable[[], object] = lambda: "",
    seconds: float = PATIENCE_SECONDS,
    pause_seconds: float = 0.01,
) -> T:
    """Call ``probe`` until it returns something true, and return that.

    Real time bounds the wait; nothing is asserted about how long it takes. Fails with ``what`` never happened and with what
    ``shown`` returns then. An assertion in ``probe`` ends the wait at once. ``pause_seconds``: the shortest pause between two calls.
    """
    begun = time.monotonic()
    pause = threading.Event()
    while not (found := probe()):
        passed = time.monotonic() - begun
        assert passed < seconds, f"never happened: {what} {shown()}"
        pause.wait(max(pause_seconds, min(passed * _PAUSE_SHARE, _PAUSE_SECONDS_MAX)))
    return found
