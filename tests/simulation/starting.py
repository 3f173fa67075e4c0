"""Starts a job in a world again and again, each time with a fault, until it has come to its end."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.foundation.errors import JobError, JobFailedError
from headrace_light.stages import shard_storage

from tests.simulation.entering import inside, memory
from tests.simulation.histories import Fault
from tests.simulation.world.disk import Disk
from tests.simulation.world.scheduler import Process, World
from tests.simulation.world.trace import Trace

_real_close = os.close
#: A start that has been given everything has stopped within this time.
_REST_SECONDS = 2.0
_STARTS_MAX = 12
#: What may stay of a shard beside the deltas that a next snapshot replaces: the snapshot, and what a process that died was writing.
_VERSIONS_MORE = 3
#: lock, checkpoint, two order logs, and what a process that died was writing.
_FILES_MAX = 8
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


def run_starts(make: Callable[[str], Starts]) -> Outcome:
    """Run a history. ``make`` is given the directory of its disk."""
    with tempfile.TemporaryDirectory(prefix="headrace-world-", dir=memory()) as place:
        os.mkdir(disk_place := os.path.join(place, "disk"))
        run = make(disk_place)
        with inside(run.world, run.disk), run.standing_in():
            run.all()
        return run.outcome()


class Starts(ABC):
    """A history of one instance while it runs. Used by the driver of its world.

    ``history`` has the fields of ``History`` that say what happens, whatever the job is.
    """

    #: Whether results have identities that the order log keeps, and the number of shards may change.
    keyed = True
    shards_change = True
    steps_max = 30_000

    def __init__(self, history: Any, place: str) -> None:
        self.history = history
        self.world = World(f"world {history.seed}", preempt=history.preempt)
        self.disk = Disk(self.world, place, journal=history.journal)
        self.disk.full_until_us = history.full_until_us
        self.disk.failing, self.disk.slow = history.failing, history.slow
        self.world.jumps = sorted(history.jumps, reverse=True)
        self.place = place
        #: When the last record comes.
        self.last_us = 0
        self.wrong: list[str] = []
        self.starts = 0
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

    @abstractmethod
    def job(self) -> Any:
        """Return the job of a new start. Called in its process."""

    @abstractmethod
    def look(self, *, final: bool) -> None:
        """Add to ``wrong`` what is wrong with the rows that are there. Called after each start."""

    def begin(self) -> None:
        """Called in the world before the first start."""

    def beside(self) -> Sequence[Process]:
        """Return processes that the job has started, which end when it has ended."""
        return ()

    def standing_in(self) -> AbstractContextManager[None]:
        """Return a context in which simulated servers stand at the place of drivers."""
        return contextlib.nullcontext()

    @property
    def doubled(self) -> bool:
        """Whether results may have come twice, whatever the sink promises."""
        # The order log does not wait for the disk (ADR 009): when the power fails, results may come again under other positions.
        return self._doubled or (self._power_failed and self.keyed)

    @property
    def written_behind(self) -> bool:
        """Whether the job was let write on behind its sinks after the power failed."""
        return self._doubled

    # ------------------------------------------------------------------------------------------------- starts

    def all(self) -> None:
        """Start the job until it has come to the end of its input, each time with the next fault."""
        self.begin()
        waiting = list(self.history.faults)
        while not self.wrong and self.starts < _STARTS_MAX:
            self._fault = waiting.pop(0) if waiting else None
            bounded = self._fault is None or self.world.us > self.last_us
            while self._fault is None and self.world.us <= self.last_us:  # a process that ends wakes the driver
                self.world.pause(self.last_us + 1 - self.world.us)
            process = self._one(bounded=bounded)
            if self.wrong:
                return
            self.look(final=False)
            if process.error is not None:
                self._failed(process)
                if self._refused:
                    return
            elif bounded and not process.dead and process.result == "finished":
                self.look(final=True)
                return
        if not self.wrong:
            self.wrong.append(f"not at the end after {self.starts} starts")

    def _one(self, *, bounded: bool) -> Process:
        self.starts += 1
        self._handle, self._stop_asked, self._taken = None, not bounded, None
        # The first 'fault' that happens to a start is its own; the others are those of the disk and of servers.
        self.world.watch = self._watch if self._fault is not None else None
        self.disk.torn = self._torn if self._fault is not None and self._fault.kind == "torn" else (lambda size: None)
        self.world.steps_left = self.steps_max
        process = self.world.process(f"job {self.starts}", lambda: self._main(bounded))
        if not self.world.run(process):
            self.wrong.append(f"threads wait for each other for ever:\n{process.stacks}")
        elif process.stacks:
            self.wrong.append(f"no end after {self.steps_max:,} steps, {self.world.us / 1e6:.1f} s:\n{process.stacks}")
        elif process.errors:
            self.wrong.append(f"a thread ended with an error: {process.errors}")
        for other in self.beside():
            self.world.run(other)
        if not process.dead and process.error is None:
            self._look_at_what_stays(process)
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

    def _look_at_what_stays(self, process: Process) -> None:
        """A start that has ended by itself keeps no file open, and its directory has what its newest checkpoint needs."""
        if process.descriptors:
            self.wrong.append(f"files stay open: {self.disk.names_of(process.descriptors)}")
        prefix = f"{self._checkpoint}/light/"
        names = [name.removeprefix(prefix) for name in self.disk.files() if name.startswith(prefix)]
        states = Counter(os.path.dirname(name) for name in names if name.startswith("state/"))
        most = max(states.values(), default=0)
        if most > shard_storage._PUT_OFF_MAX * (shard_storage._DELTAS_MAX + 1) + _VERSIONS_MORE:
            self.wrong.append(f"{most} versions of the state of a shard stay: {names}")
        others = [name for name in names if not name.startswith("state/")]
        if len(others) > _FILES_MAX:
            self.wrong.append(f"{len(others)} files stay beside the states: {others}")

    def _begin_at_savepoint(self, place: str) -> None:
        self._savepoint, self._checkpoint = place, f"checkpoint-{self.starts}"
        if self.keyed and self.shards_change:
            self._shards = {1: 2, 2: 1, 3: 2}[self._shards]

    def options(self) -> Mapping[str, Any]:
        """Return the options of the start that comes."""
        given: Mapping[str, Any] = self.history.options
        return given

    def start_options(self, *, bounded: bool) -> dict[str, Any]:
        """Return with what the job is started."""
        options = self.options()
        return {
            "checkpoint": os.path.join(self.place, self._checkpoint),
            "from_savepoint": self._savepoint,
            "checkpoint_interval": timedelta(seconds=options["checkpoint_interval"]),
            "discovery_interval": timedelta(seconds=0.5),
            "max_batch_records": options["max_batch_records"],
            "shards": self._shards,
            "until": "end" if bounded else None,
            "show_progress": False,
            "sinks_ahead": self._sinks_ahead,
            "replace_output": self._replace,
        }

    def _main(self, bounded: bool) -> str:
        """What the process of the job does: as a user's program would."""
        handle = self._handle = self.job().start("light", **self.start_options(bounded=bounded))
        if not bounded:
            left = max(0.0, (self.last_us - self.world.us) / 1e6)
            try:
                handle.wait(timedelta(seconds=left + _REST_SECONDS))
            except TimeoutError:
                handle.stop(timedelta(minutes=30))
        report = handle.wait(timedelta(hours=1))
        return str(report.state.value if hasattr(report, "state") else handle.status().state.value)

    # ------------------------------------------------------------------------------------------------- faults

    def _watch(self, process: Process, kind: str, what: str) -> None:
        fault = self._fault
        if fault is None or fault.kind == "torn":
            return
        passed = process.steps if fault.place is None else process.passed[kind] if kind == fault.place else 0
        if passed != fault.count:
            return
        if fault.kind in ("stop", "savepoint"):
            self.world.trace.add(self.world.us, process.name, fault.kind, "")
            self._stop(process, fault.kind)
        else:
            self.world.kill(process, fault.kind)

    def _stop(self, process: Process, kind: str) -> None:
        self._stop_asked = True
        handle = self._handle
        if handle is None:
            return
        place = os.path.join(self.place, f"savepoint-{self.starts}") if kind == "savepoint" else None

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
        if "No space left" in text and self.disk.full_until_us:
            self.world.pause(max(1, self.disk.full_until_us - self.world.us))  # what the hint says: make room
            return
        if self._rotten and isinstance(error, JobError):
            self._refused = True  # that is what checksums are for
            return
        if self.history.failing and os.strerror(errno.EIO) in text:
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
        self.wrong.append(f"start {self.starts} failed: {type(error).__name__}: {text}")

    def outcome(self) -> Outcome:
        """Return what the history came to."""
        events = self.world.trace.events
        return Outcome(self.history, tuple(self.wrong), self.world.trace, self.starts, len(events), self.world.us / 1e6)
