"""Runs a history in a world of its own and says what is wrong with what came out."""

from __future__ import annotations

import gc
import json
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.foundation import faults as fault_points
from headrace.foundation.errors import JobFailedError
from headrace.interfaces.sink import SinkSettings

from tests.simulation.histories import Fault, History
from tests.simulation.jobs import SCHEMA, SHAPES, bad_records, body_of, expected
from tests.simulation.servers import SINKS, Table, Topic, TopicSource, shown
from tests.simulation.world.disk import Disk
from tests.simulation.world.scheduler import Process, World
from tests.simulation.world.seams import SEAMS, Entered
from tests.simulation.world.trace import Trace

_real_close = os.close
#: A start that has been given everything has stopped within this time.
_REST_SECONDS = 2.0
_STARTS_MAX = 12
#: What a job says of servers that are away.
_AWAY = ("did not accept rows", "was not available")


@dataclass(frozen=True)
class Outcome:
    """What a history came to. ``wrong``: each rule that was broken, with what was found."""

    history: History
    wrong: tuple[str, ...]
    trace: Trace
    starts: int
    steps: int
    seconds: float


class _Points:
    """Makes the named fault points of headrace seams of the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def passed(self, place: str) -> None:
        self._world.step(place)


def run(history: History) -> Outcome:
    """Run a history."""
    with tempfile.TemporaryDirectory(prefix="headrace-world-", dir=_memory()) as place:
        os.mkdir(disk_place := os.path.join(place, "disk"))
        run = Run(history, disk_place)
        before = fault_points._faults
        fault_points._faults = _Points(run.world)  # type: ignore[assignment]
        collecting = gc.isenabled()
        gc.disable()  # it would run finalizers at moments that no seed decides
        try:
            with Entered(run.world, run.disk), _quiet():
                run.all()
        finally:
            fault_points._faults = before
            if collecting:
                gc.enable()
        return run.outcome()


def _memory() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


class Run:
    """One history while it runs. Used by the driver of its world."""

    def __init__(self, history: History, place: str) -> None:
        self._history = history
        self._shape = SHAPES[history.shape]
        self.world = World(f"world {history.seed}", preempt=history.preempt)
        self.disk = Disk(self.world, place, journal=history.journal)
        self.disk.full_until_us = history.full_until_us
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
        #: Whether rows may have come twice: the power failed, and the user let the job write on behind its sinks.
        self._doubled = False
        self._power_failed = False
        self._sinks_ahead = "refuse"
        self._replace = False

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
            elif bounded and not process.dead and process.result == "finished":
                self._look(final=True)
                return
        if not self._wrong:
            self._wrong.append(f"not at the end after {self._starts} starts")

    def _one(self, *, bounded: bool) -> Process:
        self._starts += 1
        self._handle, self._stop_asked = None, not bounded
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
        if self._fault is not None and self._fault.kind == "power" and process.dead:
            self._power_failed = True
            self.world.boots += 1
            self.disk.lose_power()
        return process

    def _main(self, bounded: bool) -> str:
        """What the process of the job does: as a user's program would."""
        options = self._history.options
        handle = self._handle = self._job().start(
            "light",
            checkpoint=os.path.join(self._place, "checkpoint"),
            checkpoint_interval=timedelta(seconds=options["checkpoint_interval"]),
            max_batch_records=options["max_batch_records"],
            shards=options["shards"],
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
        if fault.kind == "stop":
            self._stop(process)
        else:
            self.world.kill(process, fault.kind)

    def _stop(self, process: Process) -> None:
        self._stop_asked = True
        handle = self._handle
        if handle is not None:
            import threading

            stopper = threading.Thread(target=lambda: handle.stop(timedelta(hours=1)), name="stopper", daemon=True)
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
        if self._history.sink != "plain":
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Servers are away all the time: nobody reads what is logged of that."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


__all__ = ["SEAMS", "Outcome", "run"]
