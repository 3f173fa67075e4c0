"""Columns of files that a job does not use are not read."""

from __future__ import annotations

from dataclasses import replace

from headrace.plan.graph import Node, Plan, rebuilt

from headrace_dimension.columnar_files import ColumnarFileSource


def without_unread(plan: Plan) -> Plan | None:
    """Return the plan with sources of files that read only what is used; None when that is everything. Called before a job starts."""
    needed = plan.decode_columns()
    changes: dict[Node, Node] = {}
    for source_id, node in plan.sources.items():
        source = node.source
        if isinstance(source, ColumnarFileSource) and node.schema is not None:
            every = list(source.schema())
            columns = [name for name in every if name in needed[source_id]] or every[:1]
            if len(columns) < len(every):
                changes[node] = replace(node, source=source.only(columns))
    return rebuilt(plan, changes) if changes else None
