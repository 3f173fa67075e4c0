"""What headrace-stateful offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {
        "watermark": "headrace_stateful.watermark:WatermarkSpec",
        "window_aggregate": "headrace_stateful.window_aggregate:WindowAggregate",
        "window_reduce": "headrace_stateful.window_reduce:WindowReduce",
        "aggregate": "headrace_stateful.aggregate:Aggregate",
        "reduce": "headrace_stateful.reduce:Reduce",
        "distinct": "headrace_stateful.distinct:Distinct",
        "top_n": "headrace_stateful.top_n:TopN",
        "deduplicate": "headrace_stateful.top_n:Deduplicate",
        "join": "headrace_stateful.join:Join",
        "process": "headrace_stateful.process:Process",
    }
