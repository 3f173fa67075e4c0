"""What threads do that prepare rules while other threads process batches, so that the batches are not delayed.

Two things in Python would delay them. A thread that processes a batch needs the interpreter's lock again after each of its
calls of polars, and its many waits for the lock add up. And the objects that are made here cause full garbage
collections, which stop all threads.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: How long such a thread keeps the interpreter's lock when another thread waits for it. Python's default is 5 ms. A batch
#: would wait for so long after each of its calls of polars, because each call releases the lock.
_SWITCH_SECONDS = 0.0002
#: How long such a thread works, in seconds of CPU time, and how long it then sleeps without the lock.
_WORK_SECONDS = 0.0004
_PAUSE_SECONDS = 0.0015

_sleep = time.sleep
_lock = threading.Lock()
_inside = 0
_without = 0
_collected_before = True
_seconds_before = 0.0


class _Own(threading.local):
    """Values of one thread."""

    inside = 0
    paused_at = 0.0


_own = _Own()


@contextmanager
def behind_batches() -> Iterator[None]:
    """Inside this context a thread gives up the interpreter's lock sooner, and ``pause`` lets this thread sleep now and then.

    The shorter time for the lock applies to the whole process. Several threads may be inside, and contexts may be nested.
    """
    global _inside, _seconds_before
    with _lock:
        if not _inside:
            _seconds_before = sys.getswitchinterval()
            sys.setswitchinterval(min(_SWITCH_SECONDS, _seconds_before))
        _inside += 1
    _own.inside += 1
    try:
        yield
    finally:
        _own.inside -= 1
        with _lock:
            _inside -= 1
            if not _inside:
                sys.setswitchinterval(_seconds_before)


def pause() -> None:
    """Let this thread sleep for 1.5 ms if it is inside ``behind_batches`` and has worked for 0.4 ms since its last sleep.

    Otherwise do nothing. Called between small pieces of work. The caller must not hold a lock that a batch may need.
    """
    if _own.inside and time.thread_time() - _own.paused_at >= _WORK_SECONDS:
        _sleep(_PAUSE_SECONDS)
        _own.paused_at = time.thread_time()


@contextmanager
def without_collections() -> Iterator[None]:
    """Inside this context no garbage is collected in the process, unless it was so before.

    For work that makes thousands of objects that stay: a collection would visit all of them, several times, and free none.
    Several threads may be inside, and contexts may be nested.
    """
    global _without, _collected_before
    with _lock:
        if not _without:
            _collected_before = gc.isenabled()
            gc.disable()
        _without += 1
    try:
        yield
    finally:
        with _lock:
            _without -= 1
            if not _without and _collected_before:
                gc.enable()
