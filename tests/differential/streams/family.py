"""Streaming jobs as families of cases: what headrace gives is compared with what the naive interpreter says.

The same job is run in one of several ways: in batches of 1, 7 or 1,000 rows, with several shards, stopped and resumed, ended by a fault
and resumed. The interpreter knows nothing of these, so its answer holds for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.differential.choices import Choices
from tests.differential.families import Family
from tests.differential.streams import resuming, running
from tests.differential.streams.generator import make_plan
from tests.differential.streams.interpreter import Outcome, interpret
from tests.differential.streams.plan import Plan
from tests.differential.streams.sql_generator import make_sql_plan


@dataclass(frozen=True)
class StreamCase:
    """A plan, written in a dialect (``dsl`` or ``sql``), and how it is run."""

    plan: Plan
    dialect: str
    way: str = "once"
    batch: int = 1000
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = [f"  {each.table} {each.queue}: {_shown(each.row)}" for each in self.plan.arrivals]
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        text = running.text_of(self.plan, self.dialect)
        return "\n".join(
            [text, "arrivals (table, queue, row):", *rows, f"run {self.way} in batches of {self.batch} {options}"]
        )


def _shown(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in row.items())


def _case(choices: Choices, dialect: str) -> StreamCase:
    plan = make_plan(choices) if dialect == "dsl" else make_sql_plan(choices)
    way = choices.weighted([(12, "once"), (2, "stopped"), (3, "ended")])
    batch = choices.weighted([(5, 1000), (4, 7), (2, 1)])
    options: dict[str, Any] = {}
    if choices.chance(30):
        options["shards"] = choices.pick([2, 5])
    if way == "stopped":
        options["after"] = choices.integer(0, len(plan.arrivals))
    if way == "ended":
        options |= {"place": choices.pick(resuming.PLACES), "count": choices.integer(1, 8)}
    return StreamCase(plan, dialect, way, batch, options)


def run(case: StreamCase, outcome: Outcome) -> running.Result:
    """Run a case. With several shards only where the right result does not depend on their number."""
    options = dict(case.options)
    if not outcome.any_shards:
        options.pop("shards", None)
    making = running.job_of if case.dialect == "dsl" else running.sql_job_of
    call = {"once": running.run, "stopped": resuming.run_stopped, "ended": resuming.run_ended}[case.way]
    return call(case.plan, batch=case.batch, making=making, **options)


def check(case: StreamCase) -> str | None:
    """Return what is wrong with a case, or None."""
    outcome = interpret(case.plan, sql=case.dialect == "sql")
    found = run(case, outcome)
    told = list(found.faults)
    if not outcome.fragile:
        told += running.differences(outcome.rows, found.rows)
        if outcome.dead != found.dead:
            told.append(f"{found.dead} dead letters, {outcome.dead} expected")
    return "\n".join(["differs from the interpreter:", *told]) if told else None


FAMILIES = [
    Family("streams", lambda choices: _case(choices, "dsl"), check, str, weight=5),
    Family("streams_sql", lambda choices: _case(choices, "sql"), check, str, weight=4),
]
