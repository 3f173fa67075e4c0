"""Worker processes of the light backend (``workers=2``) as processes of the world: the engine's side and theirs are unchanged.

What stands in for the system is a channel of messages instead of a socket, and a process of the world instead of one that is started. The
shared memory is real. A worker is killed before and after each message, or is silent for a while, as the seed decides; then the engine
starts another one and gives it the same batches.
"""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from headrace_light import backend
from headrace_light.workers import lane_workers, reading_ahead
from headrace_light.workers.exchange import Beginning, Message
from headrace_light.workers.serving import Serving
from headrace_light.workers.slots import Slot

from tests.simulation.histories import History
from tests.simulation.running import Run
from tests.simulation.starting import Outcome, run_starts
from tests.simulation.world.scheduler import Crashed, Process, Task, World

_US = 40
#: How many of 100 messages kill the worker that takes or gives them, and how many it is silent after.
_KILLED, _SILENT = 0.04, 0.05
#: A batch that has ended three workers ends the job, as it should.
_KILLS_MAX = 2
_SILENT_US_MAX = 400_000


class Channel:
    """One end of a connection of messages."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._arrived: deque[bytes] = deque()
        self.other: Channel | None = None
        self.owner: Process | None = None
        self.closed = False
        self.waiting: list[Task] = []

    @property
    def has_something(self) -> bool:
        """Whether a message can be taken, or the other side has gone."""
        return bool(self._arrived) or self.is_over

    @property
    def is_over(self) -> bool:
        other = self.other
        return other is None or other.closed or (other.owner is not None and other.owner.ended)

    def send_bytes(self, content: bytes) -> None:
        if self.is_over:
            raise BrokenPipeError(32, "Broken pipe")
        assert self.other is not None
        self._world.step("worker.message", f"{len(content)} bytes")
        self.other._arrived.append(bytes(content))
        self.other.wake()

    def recv_bytes(self) -> bytes:
        while not self._arrived:
            if self.is_over:
                raise EOFError
            self.waiting.append(self._world.current)
            self._world.pause(100_000)
        return self._arrived.popleft()

    def wake(self) -> None:
        for task in self.waiting:
            self._world.wake(task)
        self.waiting.clear()

    def close(self) -> None:
        self.closed = True
        if self.other is not None:
            self.other.wake()


class _Popen:
    """Instead of ``subprocess.Popen``: a process of the world."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process
        self.pid = 50_000 + process.number

    def poll(self) -> int | None:
        return (-9 if self._process.dead else 0) if self._process.ended else None

    def kill(self) -> None:
        self._world.kill(self._process, "the engine ends it")

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else self._world.us + int(timeout * 1e6)
        while not self._process.ended:
            if until is not None and self._world.us >= until:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            self._world.pause(1_000)
        return self.poll() or 0


class Workers:
    """The workers of all starts of a history."""

    def __init__(self, world: World, *, faults: bool) -> None:
        self._world = world
        self._faults = faults
        self.processes: list[Process] = []
        self.killed = 0
        #: The system frees the memory of a process with it; that of the world's processes is freed with the history.
        self._slots: list[Slot] = []
        self._unserved: set[int] = set()

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """While the body runs, jobs on light have workers of the world."""
        with (
            patch.object(lane_workers._Worker, "start", self._start()),
            patch.object(lane_workers, "wait", self._wait),
            patch.object(reading_ahead, "RECORDS_MIN", 0),
            patch.object(backend, "processes_for", lambda plan, wanted: 3),
            patch.object(Slot, "__init__", self._noting()),
        ):
            try:
                yield
            finally:
                for slot in self._slots:
                    slot.close()
                for descriptor in self._unserved:
                    os.close(descriptor)

    def _noting(self) -> Any:
        slots, make = self._slots, Slot.__init__

        def made(slot: Slot, descriptor: int | None = None) -> None:
            make(slot, descriptor)
            slots.append(slot)

        return made

    def _wait(self, channels: Sequence[Channel], seconds: float) -> list[Channel]:
        until = self._world.us + int(seconds * 1e6)
        while True:
            if self._world.current.process.dead:
                raise Crashed
            found = [each for each in channels if each.has_something]
            if found or self._world.us >= until:
                return found
            for each in channels:
                each.waiting.append(self._world.current)
            self._world.pause(min(20_000, until - self._world.us))

    def _start(self) -> Any:
        workers = self

        def start(self: Any, beginning: Beginning) -> None:
            self.ready = False
            self.requests, self.answers = ([Slot() for _ in range(lane_workers.WAITING_MAX + 1)] for _ in range(2))
            world = workers._world
            ours, theirs = Channel(world), Channel(world)
            ours.other, theirs.other = theirs, ours
            ours.owner = world.current.process
            slots = [os.dup(each.descriptor) for each in (*self.requests, *self.answers)]
            workers._unserved.update(slots)
            process = world.process(f"worker {self.number}", lambda: workers._serve(theirs, slots))
            theirs.owner = process
            workers.processes.append(process)
            self.process, self.channel = _Popen(world, process), ours
            ours.send_bytes(Message.put(-1, lane_workers.WAITING_MAX, self.requests, beginning))

        return start

    def _serve(self, channel: Channel, slots: Sequence[int]) -> None:
        self._unserved.difference_update(slots)
        serving = Serving(_Faulty(self, channel) if self._faults else channel, slots)  # type: ignore[arg-type]
        try:
            serving.run()
        except (EOFError, ConnectionError):
            pass
        finally:
            channel.close()


class _Faulty:
    """The channel as a worker sees it that may die, or be slow, before and after each message."""

    def __init__(self, workers: Workers, channel: Channel) -> None:
        self._workers, self._channel = workers, channel

    def send_bytes(self, content: bytes) -> None:
        self._strike()
        self._channel.send_bytes(content)
        self._strike()

    def recv_bytes(self) -> bytes:
        found = self._channel.recv_bytes()
        self._strike()
        return found

    def _strike(self) -> None:
        world = self._workers._world
        draw = world.random.random()
        if draw < _KILLED and self._workers.killed < _KILLS_MAX:
            self._workers.killed += 1
            process = world.current.process
            world.kill(process, "kill of a worker")
            self._channel.close()
            raise Crashed
        if _KILLED <= draw < _KILLED + _SILENT:
            world.pause(int(world.random.random() * _SILENT_US_MAX))


class WorkerRun(Run):
    """A history of one instance whose lanes run in two worker processes."""

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        self.workers = Workers(self.world, faults=True)
        with super().standing_in(), self.workers.standing_in():
            yield

    def beside(self) -> Sequence[Process]:
        return [each for each in self.workers.processes if not each.ended]


def run_with_workers(history: History) -> Outcome:
    """Run a history of one instance with workers."""
    # A job that is stopped drops what workers were given: of a queue that has gone meanwhile it cannot be read again.
    lasting = replace(history, vanishing=history.vanishing and not history.faults)
    return run_starts(lambda place: WorkerRun(lasting, place))
