"""What headrace-rules offers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.interfaces.hookspecs import hookimpl

if TYPE_CHECKING:
    from headrace.interfaces.backend import JobReport
    from headrace.interfaces.operator import OperatorSpec
    from headrace.plan.graph import Plan

#: If conditions have fewer texts than this, polars evaluates them as fast as a scan could.
PATTERNS_MIN = 8


@hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {"rules": "headrace_rules.verb:Rules"}


@hookimpl
def headrace_metrics() -> Mapping[str, str]:
    return {"rule.hits": "headrace_rules.figures:RULE_HITS"}


@hookimpl
def headrace_optimize(plan: Plan) -> Plan | None:
    from headrace.plan.graph import OperatorNode

    # Only a plan with rules, or with enough texts in its conditions, is worth importing the optimizer for.
    specs = [node.spec for node in plan.of_kind(OperatorNode).values()]
    texts = sum(_texts(spec) for spec in specs if spec.name == "where")
    if not any(spec.name == "rules" for spec in specs) and texts < PATTERNS_MIN:
        return None
    from headrace_rules.optimizer import optimized

    return optimized(plan)


def _texts(spec: OperatorSpec) -> int:
    """Return how many texts a condition compares with."""
    from headrace_columnar.verbs.selection import Where

    return str(spec.predicate).count("'") // 2 if isinstance(spec, Where) else 0


@hookimpl
def headrace_job_started(job: str, backend: str) -> None:
    # Spark's workers call gc.freeze() themselves. If ``verb`` is not imported, this process has no rules.
    if backend == "light" and "headrace_rules.verb" in sys.modules:
        from headrace.foundation.spared_objects import spare_the_collector

        spare_the_collector(job)


@hookimpl
def headrace_job_stopped(job: str, report: JobReport) -> None:
    if "headrace_rules.verb" in sys.modules:
        from headrace.foundation.spared_objects import use_the_collector_again

        use_the_collector_again(job)
