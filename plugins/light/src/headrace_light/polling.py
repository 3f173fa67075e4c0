"""Polls the queues in turn and collects the outputs of lanes, which run in this process, or ahead of it in worker
processes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from headrace.flow.messages import Queue, RawBatch
from headrace.foundation.clock import Clock
from headrace.foundation.errors import BrokenQueueError, RetriableError
from headrace.foundation.faults import fault_point
from headrace.interfaces.backend import RunOptions
from headrace.interfaces.metrics import SOURCE_RETRIES
from headrace.plan.graph import Plan
from headrace.plan.stages import idle_timeouts_us
from headrace.runtime.lane import Delivery, Shipment

from headrace_light.held_memory import HeldMemory
from headrace_light.memory_budget import MemoryBudget
from headrace_light.quarantine import Quarantine
from headrace_light.queue_run import QueueRun
from headrace_light.silent_queues import LOOKED_RECORDS_MAX, SilentQueues
from headrace_light.stages.interface import Stages
from headrace_light.turns import FEW_QUEUES, Turns

if TYPE_CHECKING:
    from headrace_light.workers.exchange import Outcome
    from headrace_light.workers.reading_ahead import Ahead, ReadingAhead

logger = logging.getLogger(__name__)
#: How many records a queue gives at most in one batch, where the run does not say it: docs/adr/037.
BATCH_RECORDS = 20_000
_NO_WAIT = timedelta(0)
#: How long an answer of a worker is waited for when there is nothing else to do.
_ANSWER_WAIT = timedelta(milliseconds=50)


class Polling:
    """Polls the queues of an engine, in its thread. ``runs`` is the engine's, which adds and removes queues.

    ``workers``: in how many processes lanes run; 1: in this one alone.
    """

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        runs: Mapping[Queue, QueueRun],
        broken: Quarantine,
        deliver: Callable[[Iterable[Delivery]], None],
        *,
        stages: Callable[[], Stages],
        clock: Clock,
        retry_seconds: float,
        stopping: threading.Event,
        workers: int,
        memory: MemoryBudget | None = None,
    ) -> None:
        """Raises PlanError when the plan cannot be copied to workers. Starts no process."""
        self._plan = plan
        self._options = options
        self._runs = runs
        self._broken = broken
        self._deliver = deliver
        self._stages = stages
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._stopping = stopping
        self._turns = Turns(clock)
        self._memory = memory
        self._silent = SilentQueues(runs, stages, clock, self._look)
        self._ahead = None
        if workers > 1:
            self._ahead = _reading_ahead(plan, workers, self._take_made, self._silent, options.until, clock, stopping)
        self._held = HeldMemory(runs, stages, self._ahead)
        self._bounded = {name for name, node in plan.sources.items() if node.source.bounded}
        self._idle_timeouts_us = idle_timeouts_us(plan) if plan.shuffles else {}
        #: The queue whose batch was given to a worker last.
        self._given: Queue | None = None

    def start(self) -> None:
        """Start the workers, if there are any."""
        if self._ahead is not None:
            self._ahead.start()

    @property
    def is_ahead(self) -> bool:
        """Whether there are records that were read and whose outputs were not collected yet."""
        return self._ahead is not None and self._ahead.pending

    def begin(self, run: QueueRun) -> None:
        """A queue was added to ``runs``."""
        self._turns.begin(run)

    @property
    def takes_turns(self) -> bool:
        """Whether there are so many queues that a round looks only at a part of those without records.

        A bounded run looks at all: it ends when each is at its end. So does a run with workers: a queue with records has to wait there
        while all workers are busy.
        """
        return len(self._runs) > FEW_QUEUES and self._options.until is None and self._ahead is None

    def poll_all(self, wait: timedelta) -> bool:
        """Read each queue once and return whether any had records. If very many are idle, read only those whose turn it is."""
        progressed = False
        takes_turns = self.takes_turns
        for run in self._turns.of_round() if takes_turns else self._in_turn():
            if self._stopping.is_set():
                break
            # A group may have taken it away, and given it again, while another queue was polled.
            if self._runs.get(run.queue) is not run or run.done or run.paused:
                continue
            if self._broken.is_due(run.queue):
                came = self._poll(run, wait)
                progressed |= came
                if takes_turns:
                    self._turns.looked(run, came=came)
        return progressed

    def holds(self, run: QueueRun) -> bool:
        """Whether records of a queue were read that are not taken yet."""
        return self._ahead is not None and self._ahead.has(run)

    def tell_idle(self, now: float) -> None:
        """Tell the keyed stages which queues they must not wait for."""
        if not self._plan.shuffles:
            return  # no stage waits for queues, and there may be very many of them
        stages = self._stages()
        for run in self._runs.values():
            if run.idle or stages.at_end:
                continue
            ended = run.queue.source in self._bounded and run.at_latest
            ended |= run.done or self._broken.is_given_up(run.queue)
            if ended:
                run.idle = stages.skip_idle(run.queue)
            elif self._is_silent(run, now):
                run.idle = stages.skip_idle(run.queue)
                self._silent.add(run)
        for queue in self._broken.not_waited_for(self._runs):
            stages.skip_idle(queue)

    def _is_silent(self, run: QueueRun, now: float) -> bool:
        timeout_us = self._idle_timeouts_us.get(run.queue.source)
        if timeout_us is None or (now - run.heard_seconds) * 1_000_000 < timeout_us:
            return False
        return run.found_nothing and not self.holds(run)

    def take_ready(self, *, busy: bool) -> bool:
        """Collect the outputs of workers whose turn has come; return whether there were any. Unless ``busy``, wait for
        an answer.
        """
        return self._ahead is not None and self._ahead.take_ready(_NO_WAIT if busy else _ANSWER_WAIT)

    def drain(self, queues: Iterable[Queue]) -> None:
        """Collect the outputs of everything that was read of queues. Then their positions are those of their
        readers.
        """
        if self._ahead is not None:
            self._ahead.drain(queues)

    def drop(self, run: QueueRun) -> None:
        """Forget a removed queue, and the records of it whose outputs were not collected."""
        self._turns.end(run)
        self._silent.discard(run)
        if self._ahead is not None:
            self._ahead.drop(run)

    def close(self) -> None:
        """End the workers."""
        if self._ahead is not None:
            self._ahead.close()

    def _in_turn(self) -> list[QueueRun]:
        """Return the queues in the order in which they are read now.

        Workers may have no room for more in the middle of a round. The next round goes on there: else the last queues would wait until
        the first ones have no more records.
        """
        runs = list(self._runs.values())
        behind = next((place for place, run in enumerate(runs, 1) if run.queue == self._given), 0)
        return runs[behind:] + runs[:behind]

    def _poll(self, run: QueueRun, wait: timedelta) -> bool:
        if self._memory is not None:
            self._memory.check(self._held)
        try:
            if run.broken:
                run.go_on_with(self._plan.sources[run.queue.source].source.open(run.queue, run.position))
            came = self._read_and_take(run, wait) if self._ahead is None else self._read_ahead(self._ahead, run, wait)
        except RetriableError as error:
            self._wait_for(run, error)
            return False
        except BrokenQueueError as error:
            self.drain([run.queue])
            run.broken = run.found_nothing = True
            self._broken.take(run.queue, error, run.position)
            return False
        return came

    def _read_and_take(self, run: QueueRun, wait: timedelta) -> bool:
        log_read, first = self._stages().log_read, self._silent.look_before
        deliveries = run.poll(self._max_records(run), wait, log_read, came=self._came, first=first)
        run.broken = run.broken and not self._broken.mended(run.queue)
        if deliveries is None:
            return False
        self._give(run, deliveries, run.lane.take_shipments)
        return True

    def _read_ahead(self, ahead: ReadingAhead, run: QueueRun, wait: timedelta) -> bool:
        came = ahead.read(run, self._max_records(run), wait, came=self._came)
        run.broken = run.broken and not self._broken.mended(run.queue)
        if came:
            run.heard_seconds, self._given = self._clock.monotonic(), run.queue
        return came

    def _look(self, run: QueueRun) -> bool:
        """Return whether a silent queue has records now; they are kept for its turn."""
        if run.done or run.paused or run.broken or not self._broken.is_due(run.queue):
            return False
        if self.holds(run):
            return True
        try:
            return run.look(LOOKED_RECORDS_MAX, ahead=self._ahead is not None)
        except RetriableError as error:
            self._wait_for(run, error)
        except BrokenQueueError as error:  # its own turn says so
            logger.debug("queue %s: %s", run.queue.id, error.message)
        return False

    def _max_records(self, run: QueueRun) -> int:
        wanted = self._options.batch_records(BATCH_RECORDS)
        return wanted if self._memory is None else self._memory.max_records(run.queue.source, wanted)

    def _came(self, queue: Queue, raw: RawBatch) -> None:
        if self._memory is not None:
            self._memory.came(queue.source, len(raw), raw.size_bytes)

    def _take_made(self, ahead: Ahead, made: Outcome) -> None:
        """Collect the output of a batch whose turn has come."""
        run, end = ahead.run, ahead.work.end
        if isinstance(made.error, RetriableError):
            self._wait_for(run, made.error)
            return
        if made.error is not None:
            raise made.error
        self._stages().log_read(run.queue, ahead.work.start, end)
        if made.counted:
            self._plan.meter.merge(made.counted, group=self._plan.meter.group)
        run.taken(end, made.records)
        self._give(run, made.deliveries, lambda: made.shipments)

    def _give(self, run: QueueRun, deliveries: Iterable[Delivery], shipments: Callable[[], Iterable[Shipment]]) -> None:
        fault_point("lane.after_process")
        self._deliver(deliveries)
        self._silent.awake(run)
        self._stages().take(shipments())

    def _wait_for(self, run: QueueRun, error: RetriableError) -> None:
        """Do not poll a queue for a while, because its server is not available."""
        if self._runs.get(run.queue) is run:
            self._plan.meter.add(SOURCE_RETRIES, 1, run.queue.source)
            run.pause(error, self._clock.monotonic(), self._retry_seconds)


def _reading_ahead(
    plan: Plan,
    processes: int,
    take: Callable[[Ahead, Outcome], None],
    silent: SilentQueues,
    until: Literal["end"] | None,
    clock: Clock,
    stopping: threading.Event,
) -> ReadingAhead:
    from headrace_light.workers.lane_workers import LaneWorkers  # here: most jobs have no workers
    from headrace_light.workers.reading_ahead import ReadingAhead

    workers = LaneWorkers(plan, processes - 1, until=until)
    first = silent.look_before
    return ReadingAhead(plan, workers, processes - 1, take, clock=clock, stopping=stopping, first=first)
