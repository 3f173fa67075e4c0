"""Which shards of which shuffles get a shipment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.flow.messages import Batch, QueueAdded, Watermark
from headrace.plan.graph import Plan, ShuffleNode
from headrace.runtime.lane import Shipment
from headrace.runtime.shuffle import ShardMessage, by_shard

#: Messages by shuffle and number of the shard, in the order in which they are to be taken.
Pending = dict[tuple[str, int], list[ShardMessage]]


def shard_counts(plan: Plan, shards: int) -> Mapping[str, int]:
    """Return how many shards each shuffle of a plan has: one for those that bring all rows together."""
    return {name: shards if any(node.keys) else 1 for name, node in plan.shuffles.items()}


def route(
    shipments: Iterable[Shipment], nodes: Mapping[str, ShuffleNode], counts: Mapping[str, int], pending: Pending
) -> None:
    """Add to ``pending`` what shipments bring: rows to the shards of their keys, messages about queues to every shard."""
    for shipment in shipments:
        node, count = nodes[shipment.shuffle], counts[shipment.shuffle]
        content, queue, side = shipment.content, shipment.queue, shipment.side
        if isinstance(content, Batch):
            for number, frame in by_shard(content.frame, node.keys[side], count):
                pending.setdefault((shipment.shuffle, number), []).append(ShardMessage("rows", queue, side, frame))
            continue
        if isinstance(content, Watermark):
            message = ShardMessage("watermark", queue, side, time_us=content.time_us)
        else:
            message = ShardMessage("added" if isinstance(content, QueueAdded) else "removed", queue, side)
        for number in range(count):
            pending.setdefault((shipment.shuffle, number), []).append(message)
