"""Where the numbers of a job's entries in keyed stages start on Spark, so that no sink takes new rows for rows that it has."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from headrace.interfaces.sink import Sink, TransactionalSink
from headrace.plan.graph import Plan
from headrace.runtime.sinks_ahead import newest_rows, sink_is_ahead

from headrace_spark.checkpoints.offsets import JobOffsets
from headrace_spark.transit.payload import KeyedPlan, unpickled

logger = logging.getLogger(__name__)


def numbered_behind_sinks(
    plan: Plan, plan_bytes: bytes, keyed: KeyedPlan, stored: tuple[int, JobOffsets] | None, *, write: bool
) -> KeyedPlan:
    """Ask the sinks for the last entry of which they have rows; return the next number. Called by the driver when sinks are prepared.

    ``stored``: the last micro-batch that was planned, None where the job begins. ``write``: results that a sink has already come once more.
    Raises CheckpointError when a sink is ahead of the state, RetriableError when its server is away.
    """
    with opened(plan_bytes) as sinks:
        found = newest_rows(plan, sinks, {name: range(keyed.shards) for name in plan.shuffles})
    marks = None if stored is None else stored[1].keyed
    if found is None:
        return keyed
    if stored is None or marks is None:
        return replace(keyed, base_least=found.entry + 1)
    last_entry = marks.base + stored[0]
    if found.entry <= last_entry:
        return keyed
    if not write:
        raise sink_is_ahead(plan, found, last_entry)
    logger.warning(
        "job %s: %s has rows up to entry %d, but the state is that of entry %d: the results since then are written again",
        plan.job_name, found.sink_id, found.entry, last_entry,
    )  # fmt: skip
    return replace(keyed, base_moved=(marks.base, marks.base + found.entry - last_entry))


@contextmanager
def opened(plan_bytes: bytes) -> Iterator[Mapping[str, Sink]]:
    """Give opened copies of a plan's sinks, to ask for positions. The plan's own sinks are not opened, as they are pickled."""
    nodes = unpickled(plan_bytes).sinks
    sinks = {name: node.sink for name, node in nodes.items() if isinstance(node.sink, TransactionalSink)}
    try:
        for sink in sinks.values():
            sink.open()
        yield sinks
    finally:
        for sink in sinks.values():
            sink.close()
