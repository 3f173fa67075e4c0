"""Where a queue begins, and how the job's positions are reported to the broker of a source without a group."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import RetriableError
from headrace.foundation.machine import boot_id
from headrace.interfaces.source import EARLIEST, GroupSource, Source, StartPosition
from headrace.plan.graph import Plan, SourceNode

from headrace_light.checkpoint_directory import StoredCheckpoint
from headrace_light.groups import Membership
from headrace_light.stages.interface import Stages

logger = logging.getLogger(__name__)


def start_of(
    node: SourceNode,
    queue: Queue,
    stored: ReadPosition | None,
    group: Membership | None,
    *,
    appeared: bool,
    keyed: bool,
) -> StartPosition:
    """Return where to begin a queue: at the stored position, else at the beginning or where the source starts.

    The offset that a group has committed has priority over the position of this instance (``stored``), because other instances
    may have read on. A job that is not in its group takes the later of both, unless the state of its keyed stages is that of
    the checkpoint.
    """
    if isinstance(node.source, GroupSource):
        committed = node.source.committed(queue)
        if group is not None:
            stored = committed or stored
        elif not keyed or stored is None:
            stored = max((one for one in (stored, committed) if one), key=lambda one: one.offset, default=None)
    if stored is not None:
        return stored
    return EARLIEST if appeared or (group is not None and group.appeared(queue)) else node.source.start


def commit_without_group(source_id: str, source: GroupSource, own: Mapping[Queue, ReadPosition]) -> None:
    """Commit the positions of queues to a broker, from a job that is no member of the group."""
    try:
        source.commit(own)
    except RetriableError as error:  # uncommitted records are read again, which costs time but no data
        logger.warning("source %s: not committed: %s", source_id, error.message)


def tell_stored(source_id: str, source: Source, own: Mapping[Queue, ReadPosition]) -> None:
    """Tell a source that is not a group which positions are in a stored checkpoint."""
    try:
        source.stored(own)
    except RetriableError as error:  # its server keeps more until the next checkpoint
        logger.warning("source %s: its server was not told what is stored: %s", source_id, error.message)


def next_checkpoint(
    before: StoredCheckpoint, plan: Plan, stages: Stages, number: int, positions: Mapping[Queue, ReadPosition]
) -> StoredCheckpoint:
    """Return the checkpoint of now; the versions of its state are not known yet."""
    return replace(
        before, id=number, positions=positions, sequence=stages.sequence, shards=stages.shard_counts,
        definitions=plan.state_definitions, outputs=plan.output_digests, states=None, boot=boot_id(),
    )  # fmt: skip


def tell_all_stored(plan: Plan, groups: Mapping[str, Membership], positions: Mapping[Queue, ReadPosition]) -> None:
    """Tell all sources which positions are in a stored checkpoint."""
    for source_id, node in plan.sources.items():
        own = {queue: position for queue, position in positions.items() if queue.source == source_id}
        if source_id in groups:
            groups[source_id].commit(own)
        elif isinstance(node.source, GroupSource):
            commit_without_group(source_id, node.source, own)
        else:
            tell_stored(source_id, node.source, own)
