"""Which node of a job is at work, and since when: what to say of a job that does not come back.

A call of a user function or of a library can take for ever, and a thread in Python cannot be ended from outside. So each
lane notes the operator that it calls. Functions that wait for a job to stop read the notes.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """An operator at work on one batch or message. ``since`` is a reading of ``time.monotonic``."""

    job: str
    node: str
    queue: str
    since: float

    def seconds(self) -> float:
        """Return how long it has been at work."""
        return time.monotonic() - self.since


#: By identifier of the thread. A thread writes its own entry only, so that no lock is needed.
_current: dict[int, Work] = {}


def begin(job: str, node: str, queue: str) -> None:
    """Note that this thread's operator begins. Called by lanes, once per operator and batch."""
    _current[threading.get_ident()] = Work(job, node, queue, time.monotonic())


def end() -> None:
    """Note that it has come back."""
    _current.pop(threading.get_ident(), None)


def longest(job: str) -> tuple[int, Work] | None:
    """Return the thread and the work of this job that has lasted longest, None if nothing is at work here."""
    found = [(thread, work) for thread, work in list(_current.items()) if work.job == job]
    return min(found, key=lambda each: each[1].since, default=None)


def described(job: str) -> str:
    """Return the running calls as a sentence for an error: node, queue, seconds and the place in Python. Empty if there are none."""
    found = longest(job)
    if found is None:
        return ""
    thread, work = found
    return f"{work.node!r} has been at work on one batch of queue {work.queue!r} for {work.seconds():.0f} s{_place(thread)}"


def _place(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    innermost = traceback.extract_stack(frame)[-1]
    return f", in {innermost.name} ({innermost.filename}:{innermost.lineno})"
