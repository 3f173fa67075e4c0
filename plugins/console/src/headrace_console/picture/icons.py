"""Small pictures for kinds of nodes and well-known verbs: strokes on a field of 16 by 16."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.plan.explain import NodeDescription

_ICONS: Mapping[str, str] = {
    # an arrow that leaves a tray
    "source": "M2.5 9.5v3a1 1 0 0 0 1 1h9a1 1 0 0 0 1-1v-3M8 2.5v7M5 6.5l3 3 3-3",
    # a drum
    "sink": "M2.5 4a5.5 2 0 0 0 11 0a5.5 2 0 0 0-11 0v8a5.5 2 0 0 0 11 0V4M2.5 8a5.5 2 0 0 0 11 0",
    # a terminal
    "print": "M2 3.5h12v9H2zM4.5 6.5l2 1.7-2 1.7M8.5 10h3",
    # a funnel
    "filter": "M2 3h12L9.5 8.5v5l-3-1.6V8.5z",
    # columns, one of them marked
    "columns": "M2.5 2.5h11v11h-11zM6.2 2.5v11M9.8 2.5v11M6.2 6h3.6",
    # a plus sign in a column
    "add": "M2.5 2.5h4v11h-4zM11.2 5.5v5M8.7 8h5",
    # a label
    "rename": "M2.5 2.5h5.5l6 6-5.5 5.5-6-6zM5.3 5.3h.01",
    # a function
    "function": "M11.5 3.2c-2-.9-3 .2-3.3 2.1L7 11c-.4 1.9-1.4 2.8-3 2M5.3 7h5",
    # one line becomes many
    "flat_map": "M2 8h3.5M5.5 8l3-4.5H14M5.5 8H14M5.5 8l3 4.5H14",
    # a fork
    "split": "M8 2v3.5M8 5.5L3.5 9v4.5M8 5.5L12.5 9v4.5",
    # lines that join
    "union": "M3.5 2.5V7L8 10.5M12.5 2.5V7L8 10.5M8 10.5v3",
    # lines that cross
    "shuffle": "M2 4h3l6 8h3M2 12h3l6-8h3M12 2l2 2-2 2M12 10l2 2-2 2",
    # a clock
    "clock": "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M8 5v3l2.2 1.6",
    # a sum
    "sum": "M12 3.5H4.5L8.5 8l-4 4.5H12",
    # lines of text
    "script": "M3 3.5h10M3 6.5h6.5M3 9.5h8.5M3 12.5h5",
    # an envelope
    "dead letters": "M2 3.5h12v9H2zM2 4l6 5 6-5",
    # a cog made of dots and a ring
    "operator": "M8 5.2a2.8 2.8 0 1 0 0 5.6a2.8 2.8 0 1 0 0-5.6M8 2v1.6M8 12.4V14M2 8h1.6M12.4 8H14"
    "M3.8 3.8l1.1 1.1M11.1 11.1l1.1 1.1M3.8 12.2l1.1-1.1M11.1 4.9l1.1-1.1",
}
_OF_VERB: Mapping[str, str] = {
    "where": "filter", "filter": "filter", "select": "columns", "drop": "columns", "with_columns": "add",
    "rename": "rename", "map": "function", "map_batches": "function", "for_each": "function", "flat_map": "flat_map",
    "split": "split", "script": "script", "watermark": "clock", "window_aggregate": "clock", "window_reduce": "clock",
    "aggregate": "sum", "reduce": "sum", "top_n": "sum", "join": "union", "distinct": "filter",
}  # fmt: skip


def icon_of(node: NodeDescription) -> str:
    """Return the path of the icon for a node."""
    if node.kind == "operator":
        return _ICONS[_OF_VERB.get(node.what, "operator")]
    if node.kind == "sink" and node.what.startswith("Print"):
        return _ICONS["print"]
    return _ICONS[node.kind]
