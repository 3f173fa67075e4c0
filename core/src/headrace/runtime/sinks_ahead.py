"""Whether a sink has rows of entries that are still to come: new results would be taken for replays of those, and dropped.

Behind a shuffle a row's offset is the number of its entry. A sink is ahead when an older checkpoint was put in place, a part of one is
missing, or the clock was put back. Every backend asks its sinks at the start, before anything new is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.flow.dead_letters import branch_of
from headrace.flow.messages import Queue
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.sink import Sink, TransactionalSink
from headrace.plan.graph import Plan, SinkNode


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Up to which entry a sink has rows of a shard."""

    sink_id: str
    queue: Queue
    entry: int


def known_rows(plan: Plan, sinks: Mapping[str, Sink], shards: Mapping[str, Iterable[int]]) -> Iterator[KnownRows]:
    """Ask the sinks for their positions of each shard, dead letters included. The questions do not change the sinks.

    ``sinks`` by node id, opened, with nothing waiting to be written; only transactional ones can be asked. ``shards``: the numbers of those
    to ask for, by shuffle.
    Raises RetriableError when a server is away.
    """
    bad = plan.dead_letters_id
    behind = () if bad is None else plan.reachable(plan.nodes[bad])
    for shuffle, numbers in shards.items():
        stage = plan.stage(plan.nodes[shuffle])
        branches = [branch_of(node_id) for node_id in stage]
        for sink_id, sink in sinks.items():
            if not isinstance(sink, TransactionalSink):
                continue
            own = isinstance(stage.get(sink_id), SinkNode)
            for number in numbers:
                shard = Queue(str(number), shuffle)
                queues = [shard] if own else []
                if sink_id in behind:
                    queues += [shard.branched(branch) for branch in branches]
                for queue in queues:
                    last = sink.last_offset(queue)
                    sink.queue_removed(queue)
                    if last is not None:
                        yield KnownRows(sink_id, queue, last.offset)


def newest_rows(plan: Plan, sinks: Mapping[str, Sink], shards: Mapping[str, Iterable[int]]) -> KnownRows | None:
    """Return which rows that a sink has come from the latest entry; None when no sink has any. Raises as ``known_rows`` does."""
    return max(known_rows(plan, sinks, shards), key=lambda each: each.entry, default=None)


def sink_is_ahead(plan: Plan, found: KnownRows, entry: int, *, can_write: bool = True) -> CheckpointError:
    """Return the refusal of a start whose state is at an entry before that of a sink's rows.

    ``can_write``: whether ``sinks_ahead="write"`` can be had; it cannot where instances share shards over topics.
    """
    choice = (
        "bring back the newest checkpoint; or start from the beginning with another checkpoint directory and an output without these rows "
        "(replace_output=True, where the sink can, another writer or place); or write the results since then once more, behind those that "
        "are there: sinks_ahead='write' (--sinks-ahead write), which is exact in the end where results change by key"
    )
    shared = (
        "the topics of the shuffles were made anew: let the job write to an output without these rows (another writer or place), or "
        "delete what the sink remembers of it with its rows"
    )
    return CheckpointError(
        f"{found.sink_id!r} has rows of shard {found.queue} up to entry {found.entry}, and the {'state' if can_write else 'topic'} is at "
        f"entry {entry}: new results would be dropped as already stored. Possible causes: an older checkpoint was restored, a part of it "
        "is missing, or the clock was set back",
        job=plan.job_name,
        plugin=found.sink_id,
        queue=found.queue.id,
        option="sinks_ahead" if can_write else None,
        hint=choice if can_write else shared,
    )
