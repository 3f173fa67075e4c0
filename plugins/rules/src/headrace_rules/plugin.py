"""What headrace-rules offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.hookspecs import hookimpl

if TYPE_CHECKING:
    from headrace.plan import Plan


@hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {"rules": "headrace_rules.verb:Rules"}


@hookimpl
def headrace_optimize(plan: Plan) -> Plan | None:
    from headrace.plan import OperatorNode

    # Only a plan with conditions is worth importing the optimizer for.
    if not any(node.spec.name in ("rules", "where") for node in plan.of_kind(OperatorNode).values()):
        return None
    from headrace_rules.optimizer import optimized

    return optimized(plan)
