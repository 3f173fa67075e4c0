"""The positions of a job of this backend in a savepoint, and how a job begins at one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial

from headrace.flow.messages import Queue
from headrace.foundation.clock import Clock
from headrace.foundation.errors import CheckpointError, JobError
from headrace.foundation.machine import boot_id
from headrace.interfaces.backend import RunOptions
from headrace.plan.graph import Plan
from headrace.plan.state_check import lost_sources
from headrace.runtime.patience import WaitFor
from headrace.runtime.savepoint_start import SavepointStart
from headrace.runtime.savepoints import Place

from headrace_light.checkpoint_directory import StoredCheckpoint
from headrace_light.groups import Membership
from headrace_light.queue_run import QueueRun
from headrace_light.stages.interface import Stages

_FIRST = 1


def place_of(checkpoint: StoredCheckpoint, runs: Iterable[QueueRun], clock: Clock, *, stopped: bool) -> Place:
    """Return the position of a checkpoint that was just made."""
    idle = [run.queue for run in runs if run.idle]
    now_us = int(clock.now() * 1_000_000)
    return Place(checkpoint.positions, checkpoint.sequence, checkpoint.shards, idle, now_us, stopped)


def savepoint_start(
    plan: Plan, options: RunOptions, checkpoint: StoredCheckpoint
) -> tuple[SavepointStart | None, StoredCheckpoint]:
    """Return the savepoint at which a job begins, None if it continues from its checkpoint or begins without one; and the positions.

    Raises CheckpointError when it cannot begin there, or if the job has lost a source that it read.
    """
    if lost := lost_sources(plan, {queue.source for queue in checkpoint.positions}):
        kept = {queue: at for queue, at in checkpoint.positions.items() if queue.source not in lost}
        checkpoint = replace(checkpoint, positions=kept)
    start = SavepointStart.of(plan, options)
    if start is None:
        return None, checkpoint
    if checkpoint.id and checkpoint.savepoint != start.savepoint.id:
        raise CheckpointError(
            f"the checkpoint {options.checkpoint!r} belongs to a job that has already started, and not from the savepoint "
            f"{options.from_savepoint!r}",
            job=plan.job_name,
            option="from_savepoint",
            hint="start from a savepoint with an empty checkpoint directory; to continue from the checkpoint, leave out from_savepoint",
        )
    if checkpoint.id:
        return None, checkpoint
    found = start.savepoint
    return start, StoredCheckpoint(positions=found.place.positions, outputs=found.outputs, savepoint=found.id)


def begin_at(
    start: SavepointStart,
    checkpoint: StoredCheckpoint,
    stages: Stages,
    groups: Iterable[Membership],
    clock: Clock,
    wait_for: WaitFor,
) -> StoredCheckpoint:
    """Take over positions and state of a savepoint; return the job's first checkpoint, which the caller stores.

    ``checkpoint`` has the positions. The sinks are open, and are asked whether they are ahead. Raises CheckpointError; RetriableError when
    a server is not available in time.
    """
    shards = stages.shard_counts
    start.tell(shards)
    sinks = {sink_id: node.sink for sink_id, node in start.plan.sinks.items()}
    now_us = int(clock.now() * 1_000_000)
    sequence = wait_for("its sinks", partial(start.sequence_before, sinks, shards, now_us))
    for group in groups:
        wait_for("its groups", partial(group.begin_at, checkpoint.positions))
    made = start.plan.state_definitions, start.plan.output_digests
    checkpoint = replace(checkpoint, id=_FIRST, definitions=made[0], outputs=made[1])
    stages.begin_at(start.states(shards), _FIRST, sequence, wait_for)
    return replace(checkpoint, sequence=stages.sequence, shards=shards, boot=boot_id())


def not_all_queues(plan: Plan, groups: Collection[str], read: Collection[Queue]) -> JobError | None:
    """Return the refusal of a savepoint when other instances read a part of the queues; None when none does."""
    for source_id in groups:
        known = {queue.name for queue in plan.sources[source_id].source.queues()}
        own = {queue.name for queue in read if queue.source == source_id}
        if known - own:
            return CheckpointError(
                f"other instances of the job read {', '.join(sorted(known - own)[:3])}: this instance has only a part of the positions",
                job=plan.job_name,
                plugin=source_id,
                hint="stop the other instances first",
            )
    return None
