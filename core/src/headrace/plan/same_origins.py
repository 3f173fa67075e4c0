"""Sources of one job that give the same records: each is read and decoded once."""

from __future__ import annotations

from typing import Any

from headrace.plan.graph import Node, Plan, SourceNode


def same_origins(plan: Plan, *, labels: bool = True) -> dict[Node, Node]:
    """Return the sources that give the same as an earlier source of the plan, with that source.

    ``labels``: whether they must have the same label, too.
    """
    found: dict[Node, Node] = {}
    kept: list[SourceNode] = []
    for node in plan.sources.values():
        same = next((other for other in kept if _origin(other, labels) == _origin(node, labels)), None)
        if same is None or _origin(node, labels) is None:
            kept.append(node)
        else:
            found[node] = same
    return found


def _origin(node: SourceNode, labels: bool) -> tuple[Any, ...] | None:
    """Return everything that determines the records of a source; None for a source that is not made from options alone."""
    settings = node.source.settings
    if settings is None or node.schema is None or node.body_schema is None:
        return None
    codec = None if node.codec is None else (type(node.codec), node.codec.settings)
    return (
        node.label if labels else "", type(node.source), settings, node.source.start, node.format, codec, dict(node.schema),
        node.body_schema.json_columns, dict(node.metadata), node.changes,
    )  # fmt: skip
