"""Processor cores in use, from readings of processes."""

from __future__ import annotations

import os

from headrace.foundation.clock import ManualClock
from headrace_server.sharing.load import CoresInUse, cpu_seconds


def test_cores_are_the_seconds_that_a_process_has_used_between_two_looks() -> None:
    clock, used = ManualClock(100.0), {1: 50.0, 2: 0.0}
    cores = CoresInUse(clock, used.get)
    assert cores.measured({"busy": 1, "idle": 2}) == {}  # what was used before the first look says nothing
    clock.advance(5)
    assert cores.measured({"busy": 1, "idle": 2}) == {}
    clock.advance(15)
    used[1] += 40.0
    assert cores.measured({"busy": 1, "idle": 2}) == {"busy": 2.0, "idle": 0.0}
    clock.advance(20)
    assert cores.measured({"busy": 1, "idle": 2}) == {"busy": 1.5, "idle": 0.0}  # one quiet look counts a quarter
    clock.advance(20)
    used[3] = 9.0
    assert cores.measured({"busy": 3, "ended": 4}) == {}  # a new process, and one that has ended
    clock.advance(20)
    used[3] += 10.0
    assert cores.measured({"busy": 3}) == {"busy": 1.25}


def test_this_process_has_used_some_processor_time() -> None:
    assert (cpu_seconds(os.getpid()) or 0.0) > 0.0
    assert cpu_seconds(2**22 + 1) is None
