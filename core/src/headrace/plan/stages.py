"""Functions for backends about the keyed stages of a plan: what sends to which shuffle, and what each waits for."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.foundation.errors import PlanError
from headrace.interfaces.operator import StatefulSpec
from headrace.plan.graph import Node, OperatorNode, Plan


def upstream_of(plan: Plan) -> Mapping[str, tuple[frozenset[str], ...]]:
    """Return the sources and shuffles whose rows arrive at each side of each shuffle. Raises PlanError for dead letters."""
    roots: dict[str, Node] = {**plan.sources, **plan.shuffles}
    stages = {root_id: set(plan.stage(root)) for root_id, root in roots.items()}
    bad = plan.dead_letters_id
    behind_bad = set() if bad is None else set(plan.stage(plan.nodes[bad]))
    found = {}
    for name, node in plan.shuffles.items():
        sides = []
        for edge in node.sides:
            edge_id = plan.id_of(edge.node)
            if edge_id in behind_bad:
                raise PlanError(
                    "dead letters cannot be divided by key: they also come from the sinks, behind all verbs",
                    job=plan.job_name,
                    plugin=name,
                    hint="write them to a sink, and read them from there in another job",
                )
            sides.append(frozenset(root_id for root_id, stage in stages.items() if edge_id in stage))
        found[name] = tuple(sides)
    return found


def idle_timeouts_us(plan: Plan) -> Mapping[str, int]:
    """Return per source id how long a queue of it may be silent before it is not waited for; without: for ever."""
    timeouts: dict[str, int] = {}
    for source_id, source in plan.sources.items():
        stage = plan.stage(source).values()
        found = [node.spec.idle_timeout_us for node in stage if isinstance(node, OperatorNode)]
        known = [each for each in found if each is not None]
        if known:
            timeouts[source_id] = min(known)
    return timeouts


def tick_seconds(plan: Plan) -> float | None:
    """Return the interval at which shards need a tick without data: the shortest that an operator asks for; None: never."""
    specs = [node.spec for node in plan.of_kind(OperatorNode).values()]
    asked = [spec.tick_seconds for spec in specs if isinstance(spec, StatefulSpec)]
    return min((each for each in asked if each is not None), default=None)
