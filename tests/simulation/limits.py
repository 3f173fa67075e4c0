"""Limits of the code that only many rows, queues or hours reach: some of them are small in a world, so that what is behind them happens.

A trim comes every minute, a whole snapshot after a hundred deltas, the shared flush thread with the 65th queue: no history would see them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from types import ModuleType
from typing import Any
from unittest.mock import patch

from headrace.flow import key_hashes
from headrace.interfaces import frozen_state
from headrace.runtime import sink_writer
from headrace_dimension import loading
from headrace_light import lags, polling, storing_behind, turns
from headrace_light.shared import restore, shard_run, shuffle_records, stages, topic_state
from headrace_light.stages import local, shard_storage
from headrace_light.storing_behind import _Storing
from headrace_stateful.aggregates import distinct_values
from headrace_stateful.keys import columns, row_log, slots
from headrace_stateful.windows import aligned_windows, session_log

from tests.simulation.world.seams import current

#: How often of a hundred a world has a limit small.
_SMALL = 0.25
_STORING_SECONDS_MAX = 0.05
#: What is made small: in which module, under which name, and to which values.
LIMITS: tuple[tuple[ModuleType, str, tuple[Any, ...]], ...] = (
    (stages, "_TRIM_SECONDS", (0.0,)),
    (restore, "_SNAPSHOT_SECONDS_MAX", (0.5,)),
    (shard_storage, "_DELTAS_MAX", (0, 2)),
    (shard_storage, "_DELTA_BYTES_MIN", (0,)),
    (shard_storage, "_ROLLING_MAX", (2,)),
    (shard_run, "_RECORDS_MAX", (1,)),
    (topic_state, "_RECORDS_MAX", (1,)),
    (topic_state, "_PACKED_BYTES_MIN", (0,)),
    (topic_state, "_OVERHEAD_BYTES", (948_300,)),
    (shuffle_records, "_MESSAGES_MAX", (1,)),
    (local, "_SNAPSHOT_ROWS_MAX", (0,)),
    (polling, "FEW_QUEUES", (0,)),
    (turns, "_LATELY_MAX", (1,)),
    (turns, "_IDLE_LOOKS_MIN", (1,)),
    (turns, "_LOOKS_PER_CHECK", (1,)),
    (lags, "_ASKED_MIN", (0,)),
    (lags, "_ASKED_PER_CHECK", (1,)),
    (sink_writer, "_OWN_THREADS_MAX", (0, 1)),
    (distinct_values, "_MANY", (1,)),
    (aligned_windows, "MERGED_BY_WINDOW", (1,)),
    (aligned_windows, "ROWS_PER_WINDOW", (1,)),
    (aligned_windows, "_MOST_COMBINED", (1,)),
    (session_log, "_MERGED_FROM", (0,)),
    (row_log, "_LEAST_DEAD", (1,)),
    (columns, "_LEAST_DEAD", (1,)),
    (key_hashes, "_FEW_BYTES", (0,)),
    (loading, "PARTED_BYTES", (0, 60)),
    (slots, "_FROZEN_FROM", (0,)),
    (slots, "_LEAST_PLACES", (4,)),
    (slots, "_MOVED_FROM", (4,)),
    (slots, "_MOVED_PLACES", (1, 4)),
    (columns, "_IN_PLACE_MIN", (16,)),
    (frozen_state, "LARGE_ROWS_MIN", (0,)),
)


def _slowly(run: Callable[[_Storing], None]) -> Callable[[_Storing], None]:
    """A checkpoint of millions of rows takes a while, in which the job reads on."""

    def slow(self: _Storing) -> None:
        world = current()
        if world is not None:
            time.sleep(world.random.random() * _STORING_SECONDS_MAX)
        run(self)

    return slow


@contextmanager
def small_limits(seed: int | str) -> Iterator[None]:
    """Let some limits be small while the body runs: which is a matter of the seed."""
    random = Random(f"limits {seed}")
    with ExitStack() as stack:
        if random.random() < 0.5:  # every checkpoint but the first is stored while the job goes on
            stack.enter_context(patch.object(storing_behind, "BEHIND_ROWS_MIN", 0))
            if Random(f"slow {seed}").random() < 0.5:
                stack.enter_context(patch.object(_Storing, "run", _slowly(_Storing.run)))
        for module, name, values in LIMITS:
            if random.random() < _SMALL:
                stack.enter_context(patch.object(module, name, random.choice(values)))
        yield
