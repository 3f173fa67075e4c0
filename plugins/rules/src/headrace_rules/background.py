"""The manners of threads that make rules ready while others process batches.

Three things of Python would hold up batches meanwhile, each for the whole process: its lock, which the other threads want
after every call of polars; the sum of many such waits; and full garbage collections, set off by what is made here.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: How long such a thread keeps the interpreter's lock when another one wants it. Python's own is 5 ms, which a batch would
#: wait for after each of its calls of polars, every one of which gives the lock away.
_SWITCH_SECONDS = 0.0002
#: How long such a thread works, in seconds of its own CPU, and how long it then leaves the lock alone.
_WORK_SECONDS = 0.0004
_PAUSE_SECONDS = 0.0015

_sleep = time.sleep
_lock = threading.Lock()
_inside = 0
_seconds_before = 0.0
_spared_jobs: set[str] = set()


class _Own(threading.local):
    """What a thread knows of itself."""

    inside = 0
    paused_at = 0.0


_own = _Own()


@contextmanager
def behind_batches() -> Iterator[None]:
    """Within it the interpreter's lock changes hands soon, and ``pause`` pauses this thread now and then.

    The first holds for the whole process; may be entered several times.
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
    """Let the other threads work, if this one has made rules ready for a while behind them; else do nothing.

    Called between small pieces of such work, never with a lock held that a batch may want.
    """
    if _own.inside and time.thread_time() - _own.paused_at >= _WORK_SECONDS:
        _sleep(_PAUSE_SECONDS)
        _own.paused_at = time.thread_time()


def spare_the_collector(job: str) -> None:
    """Leave what there is now out of garbage collections while a job runs.

    Making 1,000 rules ready makes some 30,000 objects, upon which Python walks over all that the process has: 30 ms for what
    headrace itself imports, more in a larger program, with the interpreter's lock held. After this it walks over what is new.
    Reference cycles among the old objects are found again after the job.
    """
    with _lock:
        if not _spared_jobs:
            gc.freeze()
            # Over nothing; without it Python would let as many new objects come as before, a quarter of all that there were.
            gc.collect()
        _spared_jobs.add(job)


def use_the_collector_again(job: str) -> None:
    """Undo ``spare_the_collector`` once the last of the jobs has ended."""
    with _lock:
        if job in _spared_jobs:
            _spared_jobs.remove(job)
            if not _spared_jobs:
                gc.unfreeze()
