"""The manners of threads that make rules ready while others process batches."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: How long such a thread keeps the interpreter's lock when another one wants it. Python's own is 5 ms, which a batch would
#: wait for after each of its calls of polars, every one of which gives the lock away.
_SWITCH_SECONDS = 0.0002

_lock = threading.Lock()
_inside = 0
_seconds_before = 0.0


@contextmanager
def behind_batches() -> Iterator[None]:
    """Within it the interpreter's lock changes hands soon. Holds for the whole process; may be entered several times."""
    global _inside, _seconds_before
    with _lock:
        if not _inside:
            _seconds_before = sys.getswitchinterval()
            sys.setswitchinterval(min(_SWITCH_SECONDS, _seconds_before))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                sys.setswitchinterval(_seconds_before)
