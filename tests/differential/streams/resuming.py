"""Jobs that end on the way and go on from their checkpoint: stopped, or ended by a fault at a named place."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.foundation import faults
from headrace.foundation.errors import JobFailedError
from headrace.testing import MemorySink, MemoryTransactionalSink

from tests.differential.streams.plan import Plan
from tests.differential.streams.running import Result, job_of, result_of, script_of, started

#: Where a run may end (see headrace.foundation.faults). All are in the engine's own thread.
PLACES = (
    "reader.after_poll", "lane.after_process", "shard.after_process", "shard.after_save", "checkpoint.after_flush", "checkpoint.after_save",
)  # fmt: skip


class _Fault(faults.Faults):
    """Ends a run when a place is passed for the ``count``th time: as a kill would, nothing is stored any more."""

    def __init__(self, place: str, count: int) -> None:
        super().__init__("")
        self._place, self._left = place, count

    def passed(self, place: str) -> None:
        self._left -= place == self._place
        if place == self._place and self._left == 0:
            raise JobFailedError(f"fault at {place}")


@contextmanager
def fault_at(place: str, count: int) -> Iterator[None]:
    """Let runs end at a place."""
    before = faults._faults
    faults._faults = _Fault(place, count)
    try:
        yield
    finally:
        faults._faults = before


def run_stopped(plan: Plan, *, batch: int, after: int, making: Any = job_of, **options: Any) -> Result:
    """Run a plan, stop it when so many rows have arrived, and go on from the checkpoint."""
    with tempfile.TemporaryDirectory() as place:
        script = script_of(plan, batch, until=after)
        job, first = making(plan, script, lambda name: MemorySink())
        handle = started(job, script, until=None, max_batch_records=batch, checkpoint=place, **options)
        waited = threading.Event()
        while not script.exhausted and handle.status().error is None:
            waited.wait(0.001)
        handle.stop()
        handle.wait()
        return _gone_on(plan, Path(place), batch, [first], making, options)


def run_ended(plan: Plan, *, batch: int, place: str, count: int, making: Any = job_of, **options: Any) -> Result:
    """Run a plan, end it by a fault, and go on from what is stored. Without a fault it runs to its end once more."""
    with tempfile.TemporaryDirectory() as directory:
        stored: dict[str, Any] = {}
        script = script_of(plan, batch)
        job, first = making(plan, script, lambda name: _transactional(stored, name))
        ends = {"until": "end", "checkpoint": directory, "checkpoint_interval": "1 ms"}
        with fault_at(place, count):
            try:
                started(job, script, max_batch_records=batch, **ends, **options).wait()
            except JobFailedError as error:
                if "fault at" not in str(error):
                    raise
        return _gone_on(plan, Path(directory), batch, [first], making, options, stored)


def _transactional(stored: dict[str, Any], name: str) -> MemorySink:
    return MemoryTransactionalSink(stored=stored.setdefault(name, {}))


def _gone_on(
    plan: Plan, place: Path, batch: int, before: list[dict[str, MemorySink]], making: Any, options: dict[str, Any],
    stored: dict[str, Any] | None = None,
) -> Result:  # fmt: skip
    def made_sink(name: str) -> MemorySink:
        return MemorySink() if stored is None else _transactional(stored, name)

    script = script_of(plan, batch)
    job, sinks = making(plan, script, made_sink)
    started(job, script, until="end", max_batch_records=batch, checkpoint=str(place), **options).wait()
    return result_of({name: [*(each[name] for each in before), sinks[name]] for name in sinks})
