"""What headrace-stateful offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {
        "watermark": "headrace_stateful.keys.watermark:WatermarkSpec",
        "window_aggregate": "headrace_stateful.windows.window_aggregate:WindowAggregate",
        "window_reduce": "headrace_stateful.windows.window_reduce:WindowReduce",
        "aggregate": "headrace_stateful.aggregates.aggregate:Aggregate",
        "reduce": "headrace_stateful.aggregates.reduce:Reduce",
        "normalize_changes": "headrace_stateful.aggregates.normalize_changes:NormalizeChanges",
        "distinct": "headrace_stateful.aggregates.distinct:Distinct",
        "top_n": "headrace_stateful.aggregates.top_n:TopN",
        "deduplicate": "headrace_stateful.aggregates.top_n:Deduplicate",
        "join": "headrace_stateful.joins.join:Join",
        "process": "headrace_stateful.aggregates.process:Process",
    }
