"""Names for Spark's UI: which nodes of a job each stage of a micro-batch runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.plan.graph import DeadLettersNode, Plan, ShuffleNode, SinkNode

#: The longest name of a stage. What is cut off is counted.
_LENGTH_MAX = 80


def stage_names(plan: Plan, levels: Sequence[Sequence[str]], *, cuts_ranges: bool = False) -> list[str]:
    """Return a text per stage of a micro-batch, in the order in which Spark runs them: the ids of its nodes.

    ``levels``: the ids of the shuffles per keyed stage. The first stage reads the sources, the last one writes to all sinks.
    ``cuts_ranges``: a job without keyed stages has a separate stage for the sinks.
    """
    stages = [_nodes_of(plan, plan.sources)]
    stages += [_nodes_of(plan, names) for names in levels]
    if cuts_ranges and not levels:
        stages.append([])
    stages[-1] += plan.sinks
    return [_joined(names) for names in stages]


def source_name(plan: Plan, source_id: str) -> str:
    """Return the same for the stage that takes the rows of one source as far as the next shuffles."""
    return _joined(_nodes_of(plan, [source_id]))


def query_name(job: str, token: str, names: Iterable[str]) -> str:
    """Return the name of a query. Spark shows it with each job, stage and SQL execution. No other query has it."""
    return f"{job} {token}: {' → '.join(f'[{name}]' for name in names)}"


def _nodes_of(plan: Plan, roots: Iterable[str]) -> list[str]:
    """Return the nodes from some roots to the next shuffles, in the order of the plan."""
    own = set(roots)
    found = {name for root in own for name in plan.stage(plan.nodes[root])}
    return [
        name
        for name, node in plan.nodes.items()
        if name in own or (name in found and not isinstance(node, ShuffleNode | SinkNode | DeadLettersNode))
    ]


def _joined(names: Sequence[str]) -> str:
    text = ", ".join(names)
    if len(text) <= _LENGTH_MAX:
        return text
    kept = 1
    while kept < len(names) and len(", ".join(names[: kept + 1])) <= _LENGTH_MAX:
        kept += 1
    more = f" and {len(names) - kept} more" if kept < len(names) else ""
    return ", ".join(names[:kept])[:_LENGTH_MAX] + more
