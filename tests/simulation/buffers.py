"""Histories of a buffer on disk (headrace-buffer): threads append, one reads and trims, the process is killed, the power fails.

Rules, as docs/buffer.md promises them: a record whose append has returned is there until it is trimmed, with its offset; what a reader
was given stays; what is there is what was appended; a start after a crash is not refused.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from headrace.foundation.errors import JobError, RetriableError
from headrace_buffer.errors import BufferFullError
from headrace_buffer.log import RecordLog

from tests.simulation.entering import inside, memory
from tests.simulation.histories import Fault
from tests.simulation.starting import Outcome
from tests.simulation.world.disk import Disk
from tests.simulation.world.scheduler import Process, World

_real_close = os.close
_PLACES = ("open", "write", "sync", "rename", "remove", "truncate", "mkdir")
_WAIT = timedelta(seconds=2)


@dataclass(frozen=True)
class BufferHistory:
    """One history: what each of some threads appends (sizes of records, append by append), and the fault of each start but the last."""

    seed: int
    appends: tuple[tuple[tuple[int, ...], ...], ...]
    faults: tuple[Fault, ...]
    trims: bool = True
    preempt: float = 0.1
    failing: float = 0.0
    slow: float = 0.0
    full_until_us: int = 0
    journal: bool = False

    def __str__(self) -> str:
        faults = ", ".join(f"{each.kind} at {each.place or 'seam'} {each.count}" for each in self.faults)
        return f"seed {self.seed}: a buffer, {sum(map(len, self.appends))} appends a start of {len(self.appends)} threads, {faults}"


def buffer_history_of(seed: int) -> BufferHistory:
    """Return the history of a seed."""
    random = Random(f"buffer {seed}")
    appends = tuple(
        tuple(
            tuple(random.choice((0, 10, 100, 3000)) for _ in range(random.randint(1, 2)))
            for _ in range(random.randint(1, 6))
        )
        for _ in range(random.randint(1, 3))
    )
    faults = []
    for _ in range(random.choice((1, 2, 2, 3))):
        kind = random.choice(("kill", "kill", "torn", "power", "power"))
        place = "write" if kind == "torn" else random.choice((None, *_PLACES))
        count = random.randint(1, 60) if place is None else random.choice((1, 2, 3, 5, 8))
        faults.append(Fault(kind, place, count))
    return BufferHistory(
        seed, appends, tuple(faults), trims=random.random() < 0.7, preempt=random.choice((0.0, 0.05, 0.3)),
        failing=random.choice((0.0, 0.0, 0.0, 0.1)), slow=random.choice((0.0, 0.0, 0.1)),
        full_until_us=random.choice((0, 0, 0, 20_000)), journal=random.random() < 0.5,
    )  # fmt: skip


def run_buffer(history: BufferHistory) -> Outcome:
    """Run a history."""
    with tempfile.TemporaryDirectory(prefix="headrace-world-", dir=memory()) as place:
        os.mkdir(disk_place := os.path.join(place, "disk"))
        world = World(f"world {history.seed}", preempt=history.preempt, steps_max=20_000)
        disk = Disk(world, disk_place, journal=history.journal)
        run = _Run(history, world, disk)
        with inside(world, disk):
            run.all()
        events = world.trace.events
        return Outcome(history, tuple(run.wrong), world.trace, run.starts, len(events), world.us / 1e6)


class _Run:
    def __init__(self, history: BufferHistory, world: World, disk: Disk) -> None:
        self._history, self._world, self._disk = history, world, disk
        disk.failing, disk.slow, disk.full_until_us = history.failing, history.slow, history.full_until_us
        #: Records by offset whose append has returned, or that a reader was given; all that were ever asked for; and the trim.
        self._there: dict[int, bytes] = {}
        self._asked: set[bytes] = set()
        self._trimmed = 0
        #: A disk that is full or fails: nothing of an append is stored. One that fails again when that is undone ends the log.
        self._refusals: list[type[Exception]] = [
            RetriableError,
            BufferFullError,
            *([JobError] if history.failing else []),
        ]
        self._fault: Fault | None = None
        self.starts = 0
        self.wrong: list[str] = []
        world.watch = self._watch

    def all(self) -> None:
        for fault in (*self._history.faults, None):
            self._fault = fault
            self.starts += 1
            self._world.steps_left = 20_000
            torn = fault is not None and fault.kind == "torn"
            self._disk.torn = self._torn if torn else (lambda size: None)
            process = self._world.process(f"job {self.starts}", self._main)
            if not self._world.run(process) or process.stacks:
                self.wrong.append(f"it does not come to an end:\n{process.stacks}")
            self._disk.release(process.descriptors, _real_close)
            error = process.error
            if error is not None and not (self._history.failing or self._world.us < self._history.full_until_us):
                self.wrong.append(f"start {self.starts}: {type(error).__name__}: {error}")
            if process.errors:
                self.wrong.append(f"start {self.starts}: a thread ended with an error: {process.errors}")
            if fault is not None and fault.kind == "power" and process.dead:
                self._world.boots += 1
                self._disk.lose_power()
            if self.wrong:
                return

    def _watch(self, process: Process, kind: str, what: str) -> None:
        fault = self._fault
        if fault is None or fault.kind == "torn":
            return
        passed = process.steps if fault.place is None else process.passed[kind] if kind == fault.place else 0
        if passed == fault.count:
            self._world.kill(process, fault.kind)

    def _torn(self, size: int) -> int | None:
        fault, process = self._fault, self._world.current.process
        if fault is None or process.passed["write"] != fault.count:
            return None
        return int(self._world.random.random() * size)

    def _main(self) -> None:
        log = RecordLog(os.path.join(self._disk.place, "buffer"), quota_bytes=64 * 1024)
        try:
            self._check(log)
            threads = [
                threading.Thread(target=self._append, args=(log, number, appends), name=f"sender {number}", daemon=True)
                for number, appends in enumerate(self._history.appends)
            ]
            for each in threads:
                each.start()
            while any(each.is_alive() for each in threads):
                self._read(log)
            for each in threads:
                each.join()
            self._check(log)
        finally:
            log.close()

    def _append(self, log: RecordLog, number: int, appends: Any) -> None:
        for at, sizes in enumerate(appends):
            bodies = [
                f"{self.starts} {number} {at} {place} ".encode().ljust(size, b".") for place, size in enumerate(sizes)
            ]
            self._asked.update(bodies)
            with contextlib.suppress(*self._refusals):
                made = log.append(bodies, timeout=_WAIT)
                self._know(made.first, bodies)

    def _read(self, log: RecordLog) -> None:
        """Read what is there from somewhere on; now and then trim what was read."""
        random = self._world.random
        time.sleep(0.001)
        begin = self._trimmed + int(random.random() * max(1, log.latest - self._trimmed))
        if not log.wait(begin, timedelta(milliseconds=20)):
            return
        found = log.read(begin, 100)
        if found is None:
            return
        self._know(found.first, [bytes(each) for each in found.bodies])
        if self._history.trims and random.random() < 0.3:
            before = int(random.random() * (found.first + len(found)))
            if before > self._trimmed:
                self._trimmed = before
                with contextlib.suppress(*self._refusals):
                    log.trim(before)

    def _know(self, first: int, bodies: list[bytes]) -> None:
        for offset, body in enumerate(bodies, first):
            if self._there.setdefault(offset, body) != body:
                self.wrong.append(f"record {offset} was {self._there[offset][:40]!r} and is {body[:40]!r} now")
            if body not in self._asked:
                self.wrong.append(f"record {offset} is {body[:40]!r}, which nobody has appended")

    def _check(self, log: RecordLog) -> None:
        """Everything that must be there is there."""
        at = max(self._trimmed, log.earliest)
        while (found := log.read(at, 100)) is not None:
            self._know(found.first, [bytes(each) for each in found.bodies])
            at = found.first + len(found)
        lost = [offset for offset in self._there if offset >= max(at, self._trimmed)]
        if lost:
            self.wrong.append(f"records {min(lost)} to {max(lost)} are lost: the buffer ends before {at}")
