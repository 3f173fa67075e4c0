"""How many processor cores the units of this server use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import psutil
from headrace.foundation.clock import Clock

_INTERVAL_SECONDS = 15.0
#: What a new measurement counts, beside those before: a minute's burst moves nothing.
_PART_OF_NEW = 0.25


class CoresInUse:
    """Measures processes every 15 seconds. Used by one thread. ``read_cpu`` gives the processor seconds of a process and its children."""

    def __init__(self, clock: Clock, read_cpu: Callable[[int], float | None] | None = None) -> None:
        self._clock = clock
        self._read_cpu = read_cpu or cpu_seconds
        self._measured = float("-inf")
        self._before: dict[str, tuple[int, float]] = {}
        self._cores: dict[str, float] = {}

    def measured(self, processes: Mapping[str, int]) -> dict[str, float]:
        """Return the cores of each unit, by the number of its process, if it is time to measure again; else nothing."""
        now = self._clock.monotonic()
        passed = now - self._measured
        if passed < _INTERVAL_SECONDS:
            return {}
        found: dict[str, float] = {}
        readings: dict[str, tuple[int, float]] = {}
        for unit, pid in processes.items():
            seconds = self._read_cpu(pid)
            if seconds is None:
                continue
            readings[unit] = (pid, seconds)
            before_pid, before = self._before.get(unit, (None, 0.0))
            if before_pid == pid:  # of a new process the start would count, which ends soon
                used = max(0.0, seconds - before) / passed
                last = self._cores.get(unit, used)
                found[unit] = round(last + _PART_OF_NEW * (used - last), 3)
        self._measured, self._before = now, readings
        known = {unit: cores for unit, cores in self._cores.items() if unit in readings}
        self._cores = {**known, **found}
        return found


def cpu_seconds(pid: int) -> float | None:
    """Return the processor seconds of a process and of those that it has started; None if it has ended."""
    try:
        process = psutil.Process(pid)
        found = [process, *process.children(recursive=True)]
    except psutil.Error:
        return None
    total = 0.0
    for each in found:
        try:
            times = each.cpu_times()
        except psutil.Error:  # a child that has ended in the meantime
            continue
        total += times.user + times.system
    return total
