"""Runs a history in a world of its own and says what is wrong with what came out."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.foundation.errors import JobError, JobFailedError
from headrace.interfaces.sink import SinkSettings

from tests.simulation.entering import inside, memory
from tests.simulation.histories import Fault, History
from tests.simulation.jobs import SCHEMA, SHAPES, bad_records, body_of, expected
from tests.simulation.servers import SINKS, Table, Topic, TopicSource, shown
from tests.simulation.world.disk import Disk
from tests.simulation.world.scheduler import Process, World
from tests.simulation.world.trace import Trace

_real_close = os.close
#: A start that has been given everything has stopped within this time.
_REST_SECONDS = 2.0
_STARTS_MAX = 12
#: What a job says of servers that are away.
_AWAY = ("did not accept rows", "was not available", "cannot be written", "cannot write")


@dataclass(frozen=True)
class Outcome:
    """What a history came to. ``wrong``: each rule that was broken, with what was found."""

    history: Any
    wrong: tuple[str, ...]
    trace: Trace
    starts: int
    steps: int
    seconds: float


def run(history: History) -> Outcome:
    """Run a history."""
    with tempfile.TemporaryDirectory(prefix="headrace-world-", dir=memory()) as place:
        os.mkdir(disk_place := os.path.join(place, "disk"))
        run = Run(history, disk_place)
        with inside(run.world, run.disk):
            run.all()
        return run.outcome()


class Run:
    """One history while it runs. Used by the driver of its world."""

    def __init__(self, history: History, place: str) -> None:
        self._history = history
        self._shape = SHAPES[history.shape]
        self.world = World(f"world {history.seed}", preempt=history.preempt)
        self.disk = Disk(self.world, place, journal=history.journal)
        self.disk.full_until_us = history.full_until_us
        self.disk.failing, self.disk.slow = history.failing, history.slow
        self.world.jumps = sorted(history.jumps, reverse=True)
        self._place = place
        self._topics = {
            name: Topic(
                self.world,
                name,
                {q: [(us, body_of(row)) for us, row in rows] for q, rows in queues.items()},
                trims=history.trims,
                appearing=not self._shape.timed,
            )
            for name, queues in history.input.items()
        }
        self._table, self._bad = Table(self.world, "table"), Table(self.world, "bad")
        for server in (*self._topics.values(), self._table, self._bad):
            server.away = list(history.away.get(server.name, ()))
            server.lossy = history.lossy
        self._last_us = max(
            (us for queues in history.input.values() for rows in queues.values() for us, _ in rows), default=0
        )
        self._model = expected(self._shape, history.input)
        self._wrong: list[str] = []
        self._starts = 0
        self._fault: Fault | None = None
        self._handle: Any = None
        self._stop_asked = False
        self._taken: str | None = None
        #: Whether rows may have come twice: the power failed, and the user let the job write on behind its sinks.
        self._doubled = False
        self._power_failed = False
        self._sinks_ahead = "refuse"
        self._replace = False
        #: Where the job keeps its checkpoint, with how many shards, and the savepoint from which it begins.
        self._checkpoint = "checkpoint"
        self._shards = history.options["shards"]
        self._savepoint: str | None = None
        #: Whether a bit of the checkpoint has turned round, and whether a start was refused because of that.
        self._rotten = self._refused = False

    # ------------------------------------------------------------------------------------------------- starts

    def all(self) -> None:
        """Start the job until it has come to the end of its input, each time with the next fault."""
        waiting = list(self._history.faults)
        while not self._wrong and self._starts < _STARTS_MAX:
            self._fault = waiting.pop(0) if waiting else None
            bounded = self._fault is None or self.world.us > self._last_us
            if self._fault is None and self.world.us <= self._last_us:
                self.world.pause(self._last_us + 1 - self.world.us)
            process = self._one(bounded=bounded)
            if self._wrong:
                return
            self._look(final=False)
            if process.error is not None:
                self._failed(process)
                if self._refused:
                    return
            elif bounded and not process.dead and process.result == "finished":
                self._look(final=True)
                return
        if not self._wrong:
            self._wrong.append(f"not at the end after {self._starts} starts")

    def _one(self, *, bounded: bool) -> Process:
        self._starts += 1
        self._handle, self._stop_asked, self._taken = None, not bounded, None
        # The first 'fault' that happens to a start is its own; the others are those of the disk and of servers.
        self.world.watch = self._watch if self._fault is not None else None
        self.disk.torn = self._torn if self._fault is not None and self._fault.kind == "torn" else (lambda size: None)
        self.world.steps_left = 30_000
        process = self.world.process(f"job {self._starts}", lambda: self._main(bounded))
        if not self.world.run(process):
            self._wrong.append(f"threads wait for each other for ever:\n{process.stacks}")
        elif process.stacks:
            self._wrong.append(f"no end after 30,000 steps, {self.world.us / 1e6:.1f} s:\n{process.stacks}")
        elif process.errors:
            self._wrong.append(f"a thread ended with an error: {process.errors}")
        self.disk.release(process.descriptors, _real_close)
        if self._taken is not None and process.error is None and not process.dead:
            self._begin_at_savepoint(self._taken)
        if self._fault is not None and self._fault.kind == "power" and process.dead:
            self._power_failed = True
            self.world.boots += 1
            self.disk.lose_power()
        if self._fault is not None and self._fault.kind == "rot" and process.dead:
            names = [name for name in self.disk.files() if name.startswith(f"{self._checkpoint}/light/")]
            if names:
                self._rotten = True
                self.disk.rot(names[int(self.world.random.random() * len(names))])
        return process

    def _begin_at_savepoint(self, place: str) -> None:
        self._savepoint, self._checkpoint = place, f"checkpoint-{self._starts}"
        if self._shape.keyed:
            self._shards = {1: 2, 2: 1, 3: 2}[self._shards]

    def _main(self, bounded: bool) -> str:
        """What the process of the job does: as a user's program would."""
        options = self._history.options
        handle = self._handle = self._job().start(
            "light",
            checkpoint=os.path.join(self._place, self._checkpoint),
            from_savepoint=self._savepoint,
            checkpoint_interval=timedelta(seconds=options["checkpoint_interval"]),
            max_batch_records=options["max_batch_records"],
            shards=self._shards,
            until="end" if bounded else None,
            show_progress=False,
            sinks_ahead=self._sinks_ahead,
            replace_output=self._replace,
        )
        if not bounded:
            left = max(0.0, (self._last_us - self.world.us) / 1e6)
            try:
                handle.wait(timedelta(seconds=left + _REST_SECONDS))
            except TimeoutError:
                handle.stop(timedelta(minutes=30))
        report = handle.wait(timedelta(hours=1))
        return str(report.state.value if hasattr(report, "state") else handle.status().state.value)

    def _job(self) -> Any:
        pipe = hr.stream("simulated", "job")
        streams = {
            name: pipe.from_(TopicSource(topic), format="json", schema=SCHEMA, name=name)
            for name, topic in self._topics.items()
        }
        stream = self._shape.build(streams)
        settings = {
            "batch_size": self._history.options["batch_size"],
            "flush_interval": timedelta(seconds=self._history.options["flush_interval"]),
            "max_cached_rows": self._history.options["max_cached_rows"],
        }
        bad = SINKS["transactional" if self._history.sink == "file" else self._history.sink](
            self._bad, SinkSettings(**settings)
        )
        stream = stream.dead_letters(lambda letters: letters.to(bad, name="bad"))
        if self._history.sink == "file":
            directory = os.path.join(self._place, "out")
            return stream.to_file(directory, format="json", name="out", fsync=True, **settings)
        return stream.to(SINKS[self._history.sink](self._table, SinkSettings(**settings)), name="out")

    # ------------------------------------------------------------------------------------------------- faults

    def _watch(self, process: Process, kind: str, what: str) -> None:
        fault = self._fault
        if fault is None or fault.kind == "torn":
            return
        passed = process.steps if fault.place is None else process.passed[kind] if kind == fault.place else 0
        if passed != fault.count:
            return
        if fault.kind in ("stop", "savepoint"):
            self._stop(process, fault.kind)
        else:
            self.world.kill(process, fault.kind)

    def _stop(self, process: Process, kind: str) -> None:
        self._stop_asked = True
        handle = self._handle
        if handle is None:
            return
        place = os.path.join(self._place, f"savepoint-{self._starts}") if kind == "savepoint" else None

        def stop() -> None:
            with contextlib.suppress(JobError):  # of a job that has ended, or fails: then there is none
                handle.stop(timedelta(hours=1), savepoint=place)
                self._taken = place

        stopper = threading.Thread(target=stop, name="stopper", daemon=True)
        self.world.spawn(stopper, process, f"{process.name}/stopper")

    def _torn(self, size: int) -> int | None:
        fault, process = self._fault, self.world.current.process
        if fault is None or process.passed["write"] != fault.count:
            return None
        return int(self.world.random.random() * size)

    # ------------------------------------------------------------------------------------------------- checks

    def _failed(self, process: Process) -> None:
        """A start has ended with an error: is it one that may be?"""
        error = process.error
        text = str(error)
        if "No space left" in text and self._history.full_until_us:
            self.world.pause(max(1, self._history.full_until_us - self.world.us))  # what the hint says: make room
            return
        if self._rotten and isinstance(error, JobError):
            self._refused = True  # that is what checksums are for
            return
        if self._history.failing and os.strerror(errno.EIO) in text:
            return  # a disk that fails at the start of a job
        if self._stop_asked and isinstance(error, JobFailedError) and any(each in text for each in _AWAY):
            return  # a job that is to stop does not wait for servers
        if (
            self._power_failed
            and "sinks_ahead" in text + str(getattr(error, "hint", ""))
            and self._sinks_ahead == "refuse"
        ):
            self._sinks_ahead, self._doubled = "write", True  # what the hint says
            return
        if self._power_failed and "replace_output" in str(getattr(error, "hint", "")) and not self._replace:
            self._replace = True  # what the hint says
            return
        self._wrong.append(f"start {self._starts} failed: {type(error).__name__}: {text}")

    def _look(self, *, final: bool) -> None:
        """Compare what is there with what must be there."""
        # The order log does not wait for the disk (ADR 009): when the power fails, results may come again under other positions.
        doubled = self._doubled or (self._power_failed and self._shape.keyed)
        promised = self._history.sink != "plain" and not doubled
        there = self._rows()
        if self._history.sink != "plain" and not self._doubled:
            self._wrong += self._table.faults + self._bad.faults
        if not self._shape.changes:
            wrong = there - self._model
            if not promised:
                wrong = Counter({text: count for text, count in wrong.items() if text not in self._model})
            if wrong:
                self._wrong.append(f"rows that must not be there: {dict(wrong)}")
        if not final:
            return
        missing = self._model - there
        if missing:
            self._wrong.append(f"rows are missing: {dict(missing)}")
        if self._shape.changes and promised and there != self._model:
            self._wrong.append(f"rows that must not be there: {dict(there - self._model)}")
        bad, letters = bad_records(self._history.input), sum(self._bad.there().values())
        if letters < bad or (promised and letters > bad):
            self._wrong.append(f"{letters} dead letters of {bad} bad records")

    def _rows(self) -> Counter[str]:
        if self._history.sink != "file":
            return self._table.there()
        found: Counter[str] = Counter()
        for path in sorted(Path(self._place, "out").glob("*.json*")):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                times = {name: datetime.fromisoformat(row[name]) for name in row if name.startswith("window_")}
                found[shown({**row, **times})] += 1
        return found

    def outcome(self) -> Outcome:
        """Return what the history came to."""
        events = self.world.trace.events
        return Outcome(
            self._history, tuple(self._wrong), self.world.trace, self._starts, len(events), self.world.us / 1e6
        )
