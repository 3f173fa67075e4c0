"""The keyed stages of a job that several instances share: shuffles are topics, shards and their state move.

source lane ─▶ topic of the shuffle (queue = shard) ─▶ whichever instance has the shard ─▶ sinks, or the next topic

A shard's input is the log of its queue, the same for every owner, and so are its results and their numbers: so an owner that
does not know yet that it has lost the shard does no harm. State is stored as of an offset of that log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import ClassVar

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import CheckpointError, DataError, RetriableError
from headrace.foundation.faults import fault_point
from headrace.interfaces.backend import QueueStatus
from headrace.interfaces.operator import Operator
from headrace.plan.graph import Plan
from headrace.plan.stages import tick_seconds
from headrace.plan.state_check import check_definitions
from headrace.runtime.lane import Shipment
from headrace.runtime.patience import WaitFor

from headrace_light.checkpoint_directory import StoredCheckpoint
from headrace_light.pauses import Pauses
from headrace_light.shared.elasticity import Elasticity, savepoints_refused
from headrace_light.shared.membership import ShardMembership
from headrace_light.shared.outages import SharedOutages
from headrace_light.shared.restore import ShardRestore
from headrace_light.shared.transport import Transport
from headrace_light.stages.interface import Host, Stages
from headrace_light.stages.order_log import Entry
from headrace_light.state_memory import StateMemory

logger = logging.getLogger(__name__)
_TRIM_SECONDS = 60.0
#: Longest time for which an idle engine waits for records of a shuffle before it polls the sources again.
_WAIT_MAX = timedelta(milliseconds=50)


class SharedStages(Stages):
    """The keyed stages of a job in this instance."""

    in_checkpoint: ClassVar[bool] = False
    needs_clock: ClassVar[bool] = True

    def __init__(
        self, plan: Plan, host: Host, elasticity: Elasticity, *, shards: int, memory: StateMemory | None = None
    ) -> None:
        self._job = plan.job_name
        self._clock = host.clock
        self._outlets = host.outlets
        self._outages = SharedOutages(plan.job_name, host.clock, host.retry_seconds)
        self._transport = Transport(plan, host.clock, elasticity.topics, self._outages, shards=shards)
        self._restore = ShardRestore(
            plan,
            host.clock,
            elasticity,
            self._transport,
            self._outages,
            directory=host.directory,
            sinks=partial(host.outlets.sinks_to_ask, flushed=False),
            memory=memory,
        )
        self._memory = memory
        self._make_checkpoint = host.make_checkpoint
        self._members = ShardMembership(
            plan.job_name,
            host.clock,
            self._transport,
            self._restore,
            self._outages,
            retry_seconds=host.retry_seconds,
            make_checkpoint=host.make_checkpoint,
            discard=host.outlets.discard,
        )
        self._tick_seconds = tick_seconds(plan)
        now = host.clock.monotonic()
        self._ticked_seconds, self._trimmed_seconds = now, now
        #: Whether the last poll of the shuffles gave nothing.
        self._idle = True

    @classmethod
    def of(
        cls, plan: Plan, host: Host, checkpoint: StoredCheckpoint, elasticity: Elasticity, *, shards: int,
        memory: StateMemory | None = None,
    ) -> SharedStages:  # fmt: skip
        """Make the stages of a job; ``memory`` limits that of their state.

        Raises CheckpointError when the checkpoint is of other verbs, or has the state itself.
        """
        if checkpoint.sequence is not None:
            raise CheckpointError(
                f"{host.directory} has the state of the job as it ran in one process; instances that share shards would start without it",
                job=plan.job_name,
                option="reliability",
                hint="leave reliability out to continue with it, or start from the beginning with another checkpoint directory",
            )
        if checkpoint.definitions:
            check_definitions(plan, checkpoint.definitions, place=str(host.directory))
        if memory is not None:
            memory.open(host.directory, shards, stored=host.storing.until_stored)
        try:
            return cls(plan, host, elasticity, shards=shards, memory=memory)
        except BaseException:
            if memory is not None:
                memory.close()
            raise

    # ------------------------------------------------------------------------------------------ begin and end

    def open(self) -> None:
        """Create the topics, and tell every shard which queues exist, before the first row."""
        self._transport.open()
        self._members.open()
        self._restore.open()
        self._transport.announce(run.shard for run in self._members.runs)
        self._transport.flush_now()

    def replay(self, checkpoint: StoredCheckpoint, wait_for: WaitFor) -> Iterator[Entry]:
        """Yield nothing: input that must be processed again is read again from the topics."""
        return iter(())

    def begin_at(
        self, states: Iterable[tuple[str, int, bytes]], checkpoint_id: int, sequence: int, wait_for: WaitFor
    ) -> None:
        self.check_savepoint()

    def check_savepoint(self) -> None:
        raise savepoints_refused(self._job)

    def join(self, wait_for: WaitFor) -> None:
        self._members.join(wait_for)

    def leave(self) -> None:
        self._members.leave()

    def close(self) -> None:
        self._members.close()
        self._restore.close()
        self._transport.close()
        if self._memory is not None:
            self._memory.close()

    # -------------------------------------------------------------------------------------------------- input

    def log_read(self, queue: Queue, start: ReadPosition, end: ReadPosition) -> None:
        """Nothing is logged: uncommitted input is read again, and shards drop the rows that they already have."""

    def take(self, shipments: Iterable[Shipment]) -> None:
        self._transport.ship(shipments)

    def add_queue(self, queue: Queue, shipments: Iterable[Shipment]) -> None:
        self._transport.ship(shipments)

    def remove_queue(self, queue: Queue, shipments: Iterable[Shipment]) -> None:
        self._transport.ship(shipments)

    def skip_idle(self, queue: Queue) -> bool:
        self._transport.tell_idle(queue)
        return True

    def wait_again(self, queue: Queue) -> None:
        self._transport.tell_awake(queue)

    # ------------------------------------------------------------------------------------------ between polls

    def discover(self) -> None:
        """Check which queues the sources have now, and tell the shards. If that fails, it is done the next time."""
        self._outages.trying("announce queues", self._announce)
        for run in self._members.runs:
            self._outages.trying("find the lag", run.refresh_latest)

    def _announce(self) -> None:
        self._transport.announce(run.shard for run in self._members.runs)

    def poll(self) -> bool:
        progressed = False
        self._members.begin_waiting()
        for run in self._members.runs:
            if not self._members.has(run):
                continue
            try:
                outputs = self._outages.trying("read a shuffle", run.poll)
            except DataError as error:
                if not self._outages.trying("ask for committed offsets", partial(self._members.is_behind, run)):
                    raise
                # The groups are polled before it begins: they say whether it is still this instance's.
                logger.warning(
                    "job %s: shard %s belonged to another instance for some time: %s",
                    self._job,
                    run.shard.queue.id,
                    error.message,
                )
                self._members.begin_again(run)
                continue
            if self._memory is not None:
                self._memory.trim()
            if outputs is not None:
                progressed = True
                fault_point("shard.after_process")
                self._transport.ship(outputs.shipments)
                self._outlets.deliver(outputs.deliveries)
            elif run.broken:
                self._members.begin_again(run)
        self._idle = not progressed
        restoring = self._restore.step(self._members.runs, idle=self._idle, begin_again=self._members.begin_again)
        return restoring or progressed

    def keep_up(self, *, idle: bool) -> None:
        self._members.poll()
        now = self._clock.monotonic()
        if self._tick_seconds is not None and now - self._ticked_seconds >= self._tick_seconds:
            self._ticked_seconds = now
            self._transport.tell_time(run.shard for run in self._members.runs)
        # A restore keeps the engine busy, but records that came in before a step wait only for this step.
        restoring = self._idle and any(run.restoring for run in self._members.runs)
        self._transport.flush_when_due(idle=idle or restoring)
        if self._memory is not None and any(run.shard.wants_checkpoint for run in self._members.runs):
            self._make_checkpoint()

    def rest(self, pauses: Pauses, otherwise: Callable[[], bool]) -> bool:
        return pauses.rest_in(self._members.wait, _WAIT_MAX)

    # -------------------------------------------------------------------------------------------- checkpoints

    @property
    def changed(self) -> bool:
        return self._transport.unflushed or any(self._restore.to_store(run) for run in self._members.runs)

    def flush(self) -> bool:
        """Make the sent records durable, store the state of the shards, then commit their positions to the groups."""
        if not self._transport.flush() or self._outages.trying("store state", self._stored) is None:
            return False
        fault_point("shard.after_save")
        self._members.commit()
        if self._clock.monotonic() - self._trimmed_seconds >= _TRIM_SECONDS:
            self._trimmed_seconds = self._clock.monotonic()
            self._outages.trying("trim a shuffle", self._trim)
        return True

    def _stored(self) -> bool:
        for run in self._members.runs:
            if self._restore.to_store(run):
                try:
                    self._restore.store(run)
                except RetriableError:
                    if run.shard.restoring:  # only a delta of it can be stored
                        self._members.begin_again(run)
                    raise
        return True

    def _trim(self) -> None:
        for run in self._members.runs:
            if run.saved is not None:
                self._transport.trim(run.shard, before=run.saved.offset)

    # ------------------------------------------------------------------------------------------------- status

    def statuses(self) -> tuple[QueueStatus, ...]:
        return tuple(run.status() for run in self._members.runs)

    def watermark_us(self) -> int | None:
        found = [run.shard.watermark_us for run in self._members.runs]
        return min((each for each in found if each is not None), default=None)

    def state_rows(self) -> int:
        return sum(run.shard.state_rows() for run in self._members.runs)

    def operators(self) -> Iterable[tuple[str, Operator]]:
        """See ``Stages``: of the shards that are here now."""
        return (each for run in self._members.runs for each in run.shard.operators.items())

    def late_rows(self) -> int:
        """See ``Stages``: of the shards that are here now."""
        return sum(run.shard.late_rows() for run in self._members.runs)
