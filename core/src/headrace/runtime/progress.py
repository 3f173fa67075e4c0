"""One line on a terminal that tells how far a job is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from headrace.foundation.clock import Clock, SystemClock
from headrace.interfaces.backend import JobState, JobStatus


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
        self._stream = stream or sys.stderr
        self._clock = clock or SystemClock()
        self._interval_seconds = interval_seconds
        self._shown_at = self._clock.monotonic()
        self._records_then = 0
        self._width = 0

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
        self._write("\r" + self._line(current, f"{rate:,.0f}/s"))

    def end(self, status: JobStatus) -> None:
        """Show the last line."""
        if self._enabled:
            rate = status.records_read / status.seconds if status.seconds else 0.0
            self._write("\r" + self._line(status, f"{rate:,.0f}/s") + "\n")

    def _line(self, status: JobStatus, rate: str) -> str:
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
        padded = text.ljust(self._width)
        self._width = len(text)
        return padded

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
