"""One line on a terminal that tells how far a job is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from headrace.foundation.clock import Clock, SystemClock
from headrace.interfaces.backend import JobState, JobStatus


class RewrittenLine:
    """A line on a terminal that is written over itself. Used by one thread."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._width = 0

    def show(self, text: str, end: str = "") -> None:
        """Show a text in place of the last one. ``end``: a newline leaves it there."""
        self._stream.write("\r" + text.ljust(self._width) + end)
        self._stream.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Remove the text, if there is one."""
        if self._width:
            self.show("", "\r")


class ProgressLine:
    """Shows a job's status, rewritten in place on a terminal a few times a second, and a last line at the end."""

    def __init__(
        self,
        *,
        enabled: bool,
        stream: TextIO | None = None,
        clock: Clock | None = None,
        interval_seconds: float = 0.25,
    ) -> None:
        self._enabled = enabled
        self._line = RewrittenLine(stream)
        self._clock = clock or SystemClock()
        self._interval_seconds = interval_seconds
        self._shown_at = self._clock.monotonic()
        self._records_then = 0

    def show(self, status: Callable[[], JobStatus]) -> None:
        """Show the status if it is time to. ``status`` is called only then."""
        if not self._enabled:
            return
        now = self._clock.monotonic()
        passed = now - self._shown_at
        if passed < self._interval_seconds:
            return
        current = status()
        rate = (current.records_read - self._records_then) / passed
        self._shown_at, self._records_then = now, current.records_read
        self._line.show(_text_of(current, f"{rate:,.0f}/s"))

    def end(self, status: JobStatus) -> None:
        """Show the last line."""
        if self._enabled:
            rate = status.records_read / status.seconds if status.seconds else 0.0
            self._line.show(_text_of(status, f"{rate:,.0f}/s"), "\n")


def _text_of(status: JobStatus, rate: str) -> str:
    known = [queue for queue in status.queues if queue.latest]
    total = sum(queue.latest or 0 for queue in known)
    done = sum(queue.offset for queue in known)
    part = f" {100 * done // total:3d}%" if total and status.state is not JobState.STARTING else ""
    rows = sum(status.rows_written.values())
    text = f"{status.job} {status.state.value}{part}  {status.records_read:,} records  {rate}  {rows:,} rows out"
    if status.dead_letters:
        text += f"  {status.dead_letters:,} dead letters"
    broken = sum(1 for queue in status.queues if queue.broken is not None)
    if broken:
        text += f"  {broken} broken queue{'s' if broken > 1 else ''}"
    return text
