"""Histories of a job that its users change between two starts, as they do: other options, workers, verbs, names, sinks, shards.

What a checkpoint allows goes on as if nothing had been changed; what it does not allow must be refused, and is taken back. Beside that the
clock is set back while nothing runs, and the disk is full from any seam on, also while a checkpoint or a savepoint is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from unittest.mock import patch

import headrace as hr
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.sink import SinkSettings
from headrace_light import backend

from tests.simulation.histories import Fault, History, history_of
from tests.simulation.jobs import SCHEMA
from tests.simulation.running import sink_options
from tests.simulation.servers import SINKS, Table, TopicSource
from tests.simulation.starting import Outcome, run_starts
from tests.simulation.workers import WorkerRun
from tests.simulation.world.scheduler import Process

_FULL_US_MAX = 3_000_000
_BACK_US = (0, 0, 0, 1_000_000, 86_400_000_000)
#: What a start must be refused for where a checkpoint is there, and what the error must speak of.
REFUSED = {"filter before the state": "input", "source renamed": "source", "shards": "shards"}
#: A condition that every result of a shape fulfils.
_ALL = {"flat": "id >= 0", "two stages": "keys > 0"}


@dataclass(frozen=True)
class Change:
    """What the job of one start is like. ``refused``: what a checkpoint does not allow, one of ``REFUSED``; None: nothing."""

    options: Mapping[str, Any]
    processes: int = 1
    #: Whether all records pass a filter before the state, and all results one behind it.
    filtered_before: bool = False
    filtered_behind: bool = False
    #: Whether results are written to a second sink, too.
    more: bool = False
    refused: str | None = None
    #: By how much the clock of the wall is set back before the start.
    back_us: int = 0


def change_of(random: Random, before: Change, *, keyed: bool, changes: bool) -> Change:
    """Return what the job is like after a change. ``keyed``, ``changes``: as of its shape."""
    options = {
        "max_batch_records": random.choice((1, 3, 100)),
        "checkpoint_interval": random.choice((0.001, 0.05, 0.5)),
        "batch_size": random.choice((2, 3, 100)),
        "flush_interval": random.choice((0.001, 0.1, 1.0)),
        "max_cached_rows": random.choice((1, 3, 100_000)),
    }
    refused = random.choice(list(REFUSED)) if random.random() < 0.3 else None
    if not keyed and refused != "source renamed":
        refused = None
    return Change(
        {**before.options, **options},
        processes=random.choice((1, 1, 2, 3)),
        filtered_before=not keyed and random.random() < 0.5,
        filtered_behind=random.random() < 0.5,
        more=not changes and random.random() < 0.4,
        refused=refused,
        back_us=random.choice(_BACK_US),
    )


def changed_history_of(seed: int) -> History:
    """Return the history of a seed: that of one instance with other faults. The changes are made of its seed while it runs."""
    random = Random(f"changed {seed}")
    history = history_of(seed)
    kinds = ("kill", "kill", "stop", "stop", "power", "savepoint", "full", "full savepoint")
    places = (
        "write",
        "sync",
        "rename",
        "reader.after_poll",
        "sink.after_insert",
        "checkpoint.after_flush",
        "checkpoint.after_save",
    )
    faults = tuple(
        Fault(random.choice(kinds), random.choice(places), random.choice((1, 1, 2, 3, 5)))
        for _ in range(random.choice((1, 2, 3, 4)))
    )
    return replace(history, faults=faults, vanishing=False, failing=0.0, full_until_us=0)


def run_changed(history: History) -> Outcome:
    """Run a history."""
    return run_starts(lambda place: ChangedRun(history, place))


class ChangedRun(WorkerRun):
    """A history whose job is another one at each start."""

    def __init__(self, history: History, place: str) -> None:
        super().__init__(history, place)
        self._more = Table(self.world, "more")
        self._random = Random(f"changes {history.seed}")
        self._change = Change(history.options)
        self._stored = False

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        with super().standing_in(), patch.object(backend, "processes_for", lambda plan, wanted: self._change.processes):
            yield

    def _one(self, *, bounded: bool) -> Process:
        directory = os.path.join(self.place, self._checkpoint, "light", "checkpoint.json")
        self._stored = os.path.exists(directory)
        made = change_of(self._random, self._change, keyed=self._shape.keyed, changes=self._shape.changes)
        if not self._stored:  # else it is another job, whose rows an output may have
            made = replace(self._change, options=made.options, processes=made.processes, refused=None)
        self._change = made
        self.world.wall_us -= made.back_us
        process = super()._one(bounded=bounded)
        if made.refused is not None and process.error is None and not process.dead:
            self.wrong.append(f"start {self.starts} was not refused: {made.refused}")
        return process

    def start_options(self, *, bounded: bool) -> dict[str, Any]:
        shards = self._shards % 3 + 1 if self._change.refused == "shards" else self._shards
        return {**super().start_options(bounded=bounded), "shards": shards}

    def options(self) -> Mapping[str, Any]:
        return self._change.options

    def job(self) -> Any:
        change, pipe = self._change, hr.stream("simulated", "job")
        streams = {
            name: pipe.from_(
                TopicSource(topic),
                format="json",
                schema=SCHEMA,
                name=f"{name}x" if change.refused == "source renamed" else name,
            )
            for name, topic in self._topics.items()
        }
        if change.filtered_before or change.refused == "filter before the state":
            streams["s0"] = streams["s0"].where("id >= 0")
        stream = self._shape.build(streams)
        if change.filtered_behind:
            stream = stream.where(_ALL.get(self._shape.name, "k IS NOT NULL"))
        settings = sink_options(change.options)
        bad = SINKS.get(self.history.sink, SINKS["transactional"])(self._bad, SinkSettings(**settings))
        stream = stream.dead_letters(lambda letters: letters.to(bad, name="bad"))
        if self.history.sink == "file":
            job = stream.to_file(os.path.join(self.place, "out"), format="json", name="out", fsync=True, **settings)
        else:
            job = stream.to(self._out.sink(settings), name="out")
        return job.to(SINKS["transactional"](self._more, SinkSettings(**settings)), name="more") if change.more else job

    # ------------------------------------------------------------------------------------------------- faults

    def _watch(self, process: Process, kind: str, what: str) -> None:
        fault = self._fault
        if fault is None or not fault.kind.startswith("full"):
            super()._watch(process, kind, what)
        elif kind == fault.place and process.passed[kind] == fault.count:
            self.disk.full_until_us = self.world.us + int(self.world.random.random() * _FULL_US_MAX)
            self.world.trace.add(self.world.us, "disk", "full", f"until {self.disk.full_until_us}")
            if fault.kind == "full savepoint":
                self.world.trace.add(self.world.us, process.name, "savepoint", "")
                self._stop(process, "savepoint")

    # ------------------------------------------------------------------------------------------------- checks

    def look(self, *, final: bool) -> None:
        super().look(final=final)
        wrong = self._more.there() - self._model
        if wrong and not self.doubled:
            self.wrong.append(f"rows that must not be there in the second sink: {dict(wrong)}")

    def _failed(self, process: Process) -> None:
        error, refused = process.error, self._change.refused
        if refused is not None and isinstance(error, CheckpointError) and REFUSED[refused] in str(error):
            self.world.trace.add(self.world.us, process.name, "refused", refused)
            return
        super()._failed(process)
