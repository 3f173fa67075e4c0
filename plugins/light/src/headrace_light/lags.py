"""Asks readers for the ends of their queues, for the lags that the status shows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from headrace.flow.messages import Queue
from headrace.foundation.clock import Clock

from headrace_light.queue_run import QueueRun

#: At least this many queues are asked at a time; more only as long as they need less than this share of the time.
_ASKED_MIN = 512
_SHARE = 1 / 100
_ASKED_PER_CHECK = 32


class Lags:
    """Asks for the ends of queues every ``interval``: of all queues, or if there are very many, of those whose turn it is."""

    def __init__(self, clock: Clock, interval: timedelta) -> None:
        self._clock = clock
        self._share_seconds = interval.total_seconds() * _SHARE
        self._asked = 0

    def refresh(self, runs: Mapping[Queue, QueueRun]) -> None:
        """Ask for the ends of queues, after those that were asked last; a source that is away is asked once only."""
        if not runs:
            return
        begun = self._clock.monotonic()
        away: set[str] = set()
        listed = list(runs.items())
        start = self._asked % len(listed) if len(listed) > _ASKED_MIN else 0
        for count, (queue, run) in enumerate(listed[start:] + listed[:start]):
            passed = count >= _ASKED_MIN and not count % _ASKED_PER_CHECK
            if passed and self._clock.monotonic() - begun >= self._share_seconds:
                break
            self._asked = start + count + 1
            if queue.source not in away and not run.refresh_latest():
                away.add(queue.source)
