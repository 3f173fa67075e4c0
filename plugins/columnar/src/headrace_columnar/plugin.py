"""What headrace-columnar offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.interfaces.hookspecs import hookimpl

if TYPE_CHECKING:
    from headrace.plan.graph import Plan


@hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {
        "where": "headrace_columnar.verbs.selection:Where",
        "filter": "headrace_columnar.verbs.selection:Filter",
        "split": "headrace_columnar.verbs.selection:Split",
        "select": "headrace_columnar.verbs.projection:Select",
        "with_columns": "headrace_columnar.verbs.projection:WithColumns",
        "drop": "headrace_columnar.verbs.projection:Drop",
        "rename": "headrace_columnar.verbs.projection:Rename",
        "map": "headrace_columnar.verbs.row_functions:Map",
        "flat_map": "headrace_columnar.verbs.row_functions:FlatMap",
        "for_each": "headrace_columnar.verbs.row_functions:ForEach",
        "map_batches": "headrace_columnar.verbs.batch_functions:MapBatches",
        "script": "headrace_columnar.verbs.script:Script",
    }


# Optimizers run in the order of registration, those with ``tryfirst`` last: others look at whole plans.
@hookimpl(tryfirst=True)
def headrace_optimize(plan: Plan) -> Plan | None:
    from headrace_columnar.pruning import pruned

    return pruned(plan)
