"""Batches that were read ahead and are processed in worker processes, in the order of reading."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from headrace.flow.messages import Queue, RawBatch
from headrace.foundation.clock import Clock
from headrace.foundation.errors import RetriableError
from headrace.interfaces.operator import OperatorSpec
from headrace.plan.graph import OperatorNode, Plan, SourceNode, input_schema

from headrace_light.queue_run import QueueRun
from headrace_light.workers.combined_rows import CombinedRows
from headrace_light.workers.exchange import Outcome
from headrace_light.workers.lane_workers import WAITING_MAX, LaneWorkers, Work

logger = logging.getLogger(__name__)
#: A batch smaller than this is processed by the engine itself if no other batch waits: sending it to another process
#: costs more.
RECORDS_MIN = 250
_NO_WAIT = timedelta(0)
_LOOK = timedelta(milliseconds=200)
#: How long the engine waits for a batch when its queue moves to another instance, and before it logs that the batch
#: hangs.
DRAIN_SECONDS_MAX = 60.0


@dataclass(slots=True, eq=False)
class Ahead:
    """A batch that was read and whose output was not collected yet."""

    run: QueueRun
    work: Work


class ReadingAhead:
    """Reads queues and gives the records to workers, or to this process's own lanes.

    It returns their results in the order of reading.

    ``take`` is called with each batch and its outcome when its turn has come. It may raise; then the batch counts as taken.
    ``first`` is called before it, and may look at other queues.
    """

    def __init__(
        self,
        plan: Plan,
        workers: LaneWorkers,
        count: int,
        take: Callable[[Ahead, Outcome], None],
        *,
        clock: Clock,
        stopping: threading.Event,
        first: Callable[[QueueRun], None] | None = None,
    ) -> None:
        self._workers = workers
        self._first = first
        self._deciders = {name: _Decider(plan, node) for name, node in plan.sources.items()}
        self._read_by_workers = {name for name, node in plan.sources.items() if node.source.read_by_workers}
        self._combined = CombinedRows(plan)
        self._take = take
        self._clock = clock
        self._stopping = stopping
        #: The batch whose turn it is, since when the engine waits for it, and whether that was logged.
        self._awaited: tuple[Work | None, float, bool] = (None, 0.0, False)
        self._ahead: deque[Ahead] = deque()
        #: Results that wait for the turn of an earlier one are in memory, so they are counted too.
        self._ahead_max = 3 * WAITING_MAX * count

    @property
    def pending(self) -> bool:
        """Whether anything is at work or waits for its turn."""
        return bool(self._ahead)

    @property
    def size_bytes(self) -> int:
        """The size of the batches that wait for their turn."""
        return sum(ahead.work.raw.size_bytes for ahead in self._ahead if ahead.work.raw is not None)

    @property
    def process_ids(self) -> list[int]:
        """The worker processes that run now."""
        return self._workers.process_ids

    def has(self, run: QueueRun) -> bool:
        """Return whether records of a queue are being processed or wait for their turn."""
        return any(ahead.run is run for ahead in self._ahead)

    def start(self) -> None:
        """Start the workers."""
        self._workers.start()

    def read(
        self, run: QueueRun, max_records: int, wait: timedelta, *, came: Callable[[Queue, RawBatch], None] | None = None
    ) -> bool:
        """Read the next records of a queue if a process is free for them; return whether there were any. Raises what
        readers raise.

        They are done here when all workers have enough to do.
        """
        if self._ahead:
            self._workers.collect(_NO_WAIT)  # answers tell which workers are free
        if len(self._ahead) >= self._ahead_max:
            return False
        outstanding = self.has(run)
        if self._let_read(run, max_records, outstanding=outstanding):
            return True
        found = run.read_ahead(max_records, wait, outstanding=outstanding)
        if found is None:
            return False
        start, raw = found
        if came is not None:
            came(run.queue, raw)
        work = Work(run.queue, start, raw.next_position, raw)
        if not len(raw):
            work.outcome = Outcome()
        elif not self._goes_to_worker(run.queue, raw):
            work.outcome = self._made_here(run, raw)
        else:
            self._deciders[run.queue.source].decide(run.queue, int(raw.offsets[0]), int(raw.offsets[-1]))
            self._workers.give(work)
        self._ahead.append(Ahead(run, work))
        return True

    def _let_read(self, run: QueueRun, max_records: int, *, outstanding: bool) -> bool:
        """Give a worker the next range of a queue, which it reads itself, if that is possible."""
        source = run.queue.source
        if source not in self._read_by_workers or not (self._deciders[source].can_decide and self._workers.have_room):
            return False
        planned = run.plan_ahead(max_records, outstanding=outstanding)
        if planned is None:
            return False
        start, end = planned
        work = Work(run.queue, start, end)
        self._deciders[source].decide(run.queue, start.offset, end.offset - 1)
        self._workers.give(work)
        self._ahead.append(Ahead(run, work))
        return True

    def take_ready(self, patience: timedelta = _NO_WAIT) -> bool:
        """Return results whose turn has come; wait at most this long for an answer. Return whether there were any."""
        if self._ahead or self._workers.starting:
            waits = bool(self._ahead) and self._ahead[0].work.outcome is None
            self._workers.collect(patience if waits else _NO_WAIT)
            self._tell_hung()
        taken = False
        while self._ahead and (outcome := self._ahead[0].work.outcome) is not None:
            ahead = self._ahead[0]
            if self._first is not None:
                self._first(ahead.run)
                if not self._ahead or self._ahead[0] is not ahead:
                    continue  # a group has taken queues away
            self._ahead.popleft()
            taken = True
            if outcome.unread:
                logger.info("queue %s: a worker could not read: %s", ahead.run.queue.id, outcome.unread)
                self._give_back(ahead, operator_away=False)
                continue
            if isinstance(outcome.error, RetriableError):
                self._give_back(ahead, operator_away=True)
            self._take(ahead, outcome)
        return taken

    def drain(self, queues: Iterable[Queue]) -> None:
        """Return all results of these queues, and the results before them.

        Ends early when the job is stopped, or nothing comes for a minute, because a function hangs. What is left then was not taken, so
        it is before the position of no queue: whoever reads the queue next reads it again.
        """
        wanted = set(queues)
        until = self._clock.monotonic() + DRAIN_SECONDS_MAX
        while any(ahead.run.queue in wanted for ahead in self._ahead):
            if self.take_ready(_LOOK):
                until = self._clock.monotonic() + DRAIN_SECONDS_MAX
            elif self._stopping.is_set():
                return
            elif self._clock.monotonic() >= until:
                logger.warning(
                    "worker processes returned nothing for %.0f s: their work is given up", DRAIN_SECONDS_MAX
                )
                return

    def _tell_hung(self) -> None:
        """Log once that a worker needs very long for a batch."""
        first = self._ahead[0].work if self._ahead else None
        awaited, since, told = self._awaited
        now = self._clock.monotonic()
        if first is None or first is not awaited or first.outcome is not None:
            self._awaited = (first, now, False)
        elif not told and now - since >= DRAIN_SECONDS_MAX:
            self._awaited = (first, since, True)
            logger.warning(
                "queue %s: a worker process has been working on the records %d to %d for %.0f s, and the job waits for it. stop() ends "
                "it, and the next start processes them again",
                first.queue.id, first.start.offset, first.end.offset - 1, now - since,
            )  # fmt: skip

    def drop(self, run: QueueRun) -> None:
        """Forget the batches of a queue that moved to another instance, or was closed."""
        self._ahead = deque(ahead for ahead in self._ahead if ahead.run is not run)

    def close(self) -> None:
        """End the workers. Batches whose outputs were not collected are read again after the next start, or by another
        instance.
        """
        self._ahead.clear()
        self._workers.close()

    def _goes_to_worker(self, queue: Queue, raw: RawBatch) -> bool:
        if len(raw) < RECORDS_MIN and not self._ahead:
            return False
        return self._deciders[queue.source].can_decide and self._workers.have_room

    def _made_here(self, run: QueueRun, raw: RawBatch) -> Outcome:
        """Process records in this process, as a worker would."""
        try:
            deliveries = run.lane.process(raw)
            shipments = self._combined.of(run.lane.take_shipments())
        except Exception as error:  # raised when it is taken
            run.lane.take_shipments()
            return Outcome(error=error)
        return Outcome(deliveries, shipments, records=len(raw))

    def _give_back(self, failed: Ahead, *, operator_away: bool) -> None:
        """Give the run its batches back, from a failed one on: the same records are read again, in their order."""
        run = failed.run
        back = [failed, *(ahead for ahead in self._ahead if ahead.run is run)]
        self._ahead = deque(ahead for ahead in self._ahead if ahead.run is not run)
        raws = [(ahead.work.start, ahead.work.raw) for ahead in back if ahead.work.raw is not None]
        if len(raws) == len(back):
            run.take_back(raws)
        else:
            run.go_back(failed.work.start, failed.work.end, operator_away=operator_away)


class _Decider:
    """Lets operators of a source's stage make decisions that depend on the order of records, before other processes
    process the records.
    """

    def __init__(self, plan: Plan, source: SourceNode) -> None:
        stage = [node for node in plan.stage(source).values() if isinstance(node, OperatorNode)]
        self._asked = [
            (node.spec, input_schema(node.input)) for node in stage if type(node.spec).decide is not OperatorSpec.decide
        ]
        #: An operator that learns its columns from the rows can decide only when they are decoded: here, one batch after the other.
        self.can_decide = all(schema is not None for _, schema in self._asked)

    def decide(self, queue: Queue, first: int, last: int) -> None:
        for spec, schema in self._asked:
            assert schema is not None
            spec.decide(schema, queue, first, last)
