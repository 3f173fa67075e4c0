"""The engine's side of worker processes: it gives them raw batches, and gets the outputs of lanes in any order."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Literal

from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.foundation.errors import JobFailedError
from headrace.plan.graph import Plan

from headrace_light.settings import KEPT_BYTES_MAX
from headrace_light.workers.exchange import (
    Answer,
    Beginning,
    Message,
    Outcome,
    Request,
    buffers_of,
    outcome_of,
    place_of,
    position_of,
)
from headrace_light.workers.slots import Slot

logger = logging.getLogger(__name__)
#: Batches that are given to a worker before it has answered: one that it works on, and those that come next.
WAITING_MAX = 3
#: How often a batch is given to a worker. If so many processes die with it, the batch is the cause.
_TRIES_MAX = 3
_END_SECONDS = 5.0
_NO_WAIT = timedelta(0)


@dataclass(slots=True, eq=False)
class Work:
    """A raw batch for a lane, or the range of one (``raw`` is None) that a worker reads. ``outcome`` is None until it has answered."""

    queue: Queue
    start: ReadPosition
    end: ReadPosition
    raw: RawBatch | None = None
    outcome: Outcome | None = None
    #: How many processes have ended while they worked on it.
    tries: int = 0


class LaneWorkers:
    """Starts worker processes and ends them. Used by the engine's thread alone.

    Every process can do every batch, this one too.
    """

    def __init__(self, plan: Plan, count: int, *, until: Literal["end"] | None = None) -> None:
        """Copies the plan: raises PlanError when it cannot be copied. No process is started yet.

        ``count``: how many beside this one; ``until``: whether the run ends with the input.
        """
        from headrace_light.workers.travelling_plan import packed  # here: most jobs have no workers

        self._job = plan.job_name
        self._beginning = Beginning(list(sys.path), packed(plan), KEPT_BYTES_MAX, until)
        self._workers = [_Worker(number) for number in range(count)]
        self._number = 0

    @property
    def process_ids(self) -> list[int]:
        """The processes that run now."""
        return [each.process.pid for each in self._workers if each.process is not None and each.process.poll() is None]

    def start(self) -> None:
        """Start the processes. They import modules and unpack the plan while the caller continues."""
        for worker in self._workers:
            worker.start(self._beginning)

    @property
    def have_room(self) -> bool:
        """Whether a worker can take a batch now. A worker that is still starting gets none, so that no batch waits for
        its start.
        """
        return self._free() is not None

    def give(self, work: Work) -> None:
        """Give a worker a batch, when one has room."""
        worker = self._free()
        assert worker is not None, "the caller asks before"
        self._number += 1
        self._send(worker, self._number, work)

    @property
    def starting(self) -> bool:
        """Whether a worker is still starting."""
        return not all(each.ready for each in self._workers)

    def collect(self, patience: timedelta) -> bool:
        """Take all answers that have come; wait for the first one so long at most. Return whether there was any.

        Raises JobFailedError when the workers cannot begin.
        """
        any_came = False
        while came := wait(
            [each.channel for each in self._workers if each.channel is not None], patience.total_seconds()
        ):
            any_came, patience = True, _NO_WAIT
            for worker in self._workers:
                if worker.channel in came:
                    self._receive(worker)
        return any_came

    def close(self) -> None:
        """End all processes at once; their unfinished work is dropped. May be called twice."""
        for worker in self._workers:
            # One that is still starting has done nothing, and would notice its end only when everything is imported.
            worker.end(at_once=not worker.ready)

    def _free(self) -> _Worker | None:
        ready = [each for each in self._workers if each.ready and len(each.waiting) < WAITING_MAX]
        return min(ready, key=lambda each: len(each.waiting), default=None)

    def _send(self, worker: _Worker, number: int, work: Work) -> None:
        slot = (worker.waiting[-1][1] + 1) % WAITING_MAX if worker.waiting else 0
        worker.waiting.append((number, slot, work))
        with contextlib.suppress(ConnectionError):  # it has died, which is noticed when its answer is read
            worker.send(number, slot, work)

    def _receive(self, worker: _Worker) -> None:
        assert worker.channel is not None
        try:
            message = Message.read(worker.channel.recv_bytes())
        except (EOFError, ConnectionError):
            self._replace(worker)
            return
        header, *parts = message.parts(worker.answers)
        if message.number < 0:
            self._begun(worker, Answer.read(header))
            return
        number, slot, work = worker.waiting.popleft()
        assert (number, slot) == (message.number, message.slot), "a worker answers in order"
        work.outcome = outcome_of(Answer.read(header), parts, work.queue)

    def _begun(self, worker: _Worker, answer: Answer) -> None:
        if answer.error is None:
            worker.ready = True
            return
        error = outcome_of(answer, (), Queue("")).error
        raise JobFailedError(
            f"a worker process cannot start: {type(error).__name__}: {error}",
            job=self._job,
            option="workers",
            hint="the job's modules must be importable in a new process; or run it with workers=1",
        ) from error

    def _replace(self, worker: _Worker) -> None:
        """Start another process in place of one that has died, and give it the same batches in the same order."""
        worker.failures = 0 if worker.ready else worker.failures + 1
        code = worker.end()
        waiting, worker.waiting = worker.waiting, deque()
        how = f"by signal {-code}" if code < 0 else f"with exit status {code}"
        logger.warning("job %s: worker process %d ended %s; another one replaces it", self._job, worker.number, how)
        if worker.failures >= _TRIES_MAX:
            raise JobFailedError(f"worker processes end {how} before they begin", job=self._job, option="workers")
        if waiting and worker.ready:  # it works on one batch at a time, so the batches after the first were not begun
            waiting[0][2].tries += 1
        worker.start(self._beginning)
        for number, _, work in waiting:
            if work.tries >= _TRIES_MAX:
                work.outcome = Outcome(error=self._deadly(work, how))
            else:
                self._send(worker, number, work)

    def _deadly(self, work: Work, how: str) -> JobFailedError:
        first, last = work.start.offset, work.end.offset - 1
        return JobFailedError(
            f"worker processes ended {how} {work.tries} times while they processed the records {first} to {last}",
            job=self._job,
            queue=work.queue.id,
            offset=first,
            hint="look into the system's log whether memory ran out; a smaller max_batch_records needs less memory",
        )


class _Worker:
    """One process, its unanswered work, and the memory that is shared with it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: Connection | None = None
        #: Number, slot and work of each unanswered request, in order.
        self.waiting: deque[tuple[int, int, Work]] = deque()
        self.requests: Sequence[Slot] = ()
        self.answers: Sequence[Slot] = ()
        self.ready = False
        self.failures = 0

    def start(self, beginning: Beginning) -> None:
        """Start a process with new shared memory: the old memory may hold anything after the process before has
        died.
        """
        self.ready = False
        # One more than batches: what the process begins with may wait in it while batches are there already.
        self.requests, self.answers = ([Slot() for _ in range(WAITING_MAX + 1)] for _ in range(2))
        ours, theirs = socket.socketpair()
        slots = [each.descriptor for each in (*self.requests, *self.answers)]
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headrace_light.workers.process", str(theirs.fileno()), *map(str, slots)],
                pass_fds=(theirs.fileno(), *slots),
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        finally:
            theirs.close()
        self.channel = Connection(ours.detach())
        with contextlib.suppress(ConnectionError):  # it has died already: that is seen when its answer is read
            self.channel.send_bytes(Message.put(-1, WAITING_MAX, self.requests, beginning))

    def send(self, number: int, slot: int, work: Work) -> None:
        assert self.channel is not None
        raw = work.raw
        if raw is None:
            request = Request(queue=place_of(work.queue), reads=(position_of(work.start), position_of(work.end)))
            self.channel.send_bytes(Message.put(number, slot, self.requests, request))
            return
        bodies = raw.bodies
        request = Request(
            queue=place_of(work.queue),
            has_times=raw.times is not None,
            newline_separated=None if bodies is None else bodies.newline_separated,
            keys=None if raw.keys is None else list(raw.keys),
            headers=None if raw.headers is None else [dict(each) for each in raw.headers],
            fields=raw.fields,
        )
        self.channel.send_bytes(Message.put(number, slot, self.requests, request, buffers_of(raw)))

    def end(self, *, at_once: bool = False) -> int:
        """End the process if it has not ended, and return its exit status. ``at_once``: it is not waited for."""
        code = 0
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        if self.process is not None:
            if self.process.poll() is None:
                self._let_end(at_once=at_once)
            code = self.process.wait()
            self.process = None
        for slot in (*self.requests, *self.answers):
            slot.close()
        self.requests = self.answers = ()
        return code

    def _let_end(self, *, at_once: bool) -> None:
        assert self.process is not None
        try:
            self.process.wait(0 if self.waiting or at_once else _END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
