"""Where a queue begins, and how a source without group is told how far it is."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import RetriableError
from headrace.interfaces.source import EARLIEST, GroupSource, StartPosition
from headrace.plan.graph import SourceNode

from headrace_light.groups import Membership

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
    """Return where to begin a queue: where it is done, else at the beginning or where the source starts.

    What a group has committed comes before what this instance remembers (``stored``): other instances may have gone on. A
    job that is not in its group takes the further of both, unless the state of its keyed stages is that of the checkpoint.
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
    """Tell a broker how far its queues are, by a job that is no member of the group."""
    try:
        source.commit(own)
    except RetriableError as error:  # what is not committed is read again, which costs time but no data
        logger.warning("source %s: not committed: %s", source_id, error.message)
