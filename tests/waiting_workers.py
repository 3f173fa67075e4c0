"""Worker processes of the light backend in tests: small inputs would be read before they are ready."""

from __future__ import annotations

from datetime import timedelta

from headrace_light.workers.lane_workers import LaneWorkers

_start = LaneWorkers.start


def start_and_wait(workers: LaneWorkers) -> None:
    """Start workers and wait until they are ready: takes the place of ``LaneWorkers.start``."""
    _start(workers)
    while workers.starting:
        workers.collect(timedelta(seconds=1))
