"""Waiting in tests for other threads, processes and servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
#: Long enough for a machine that does other things too. A test that passes does not wait for its end.
PATIENCE_SECONDS = 180.0


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
    ``shown`` returns then. An assertion in ``probe`` ends the wait at once.
    """
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not (found := probe()):
        assert time.monotonic() < deadline, f"never happened: {what} {shown()}"
        pause.wait(pause_seconds)
    return found
