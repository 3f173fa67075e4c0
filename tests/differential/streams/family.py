"""Streaming jobs as families of cases: what headrace gives is compared with what the naive interpreter says.

The same job is run in one of several ways: in batches of 1, 7 or 1,000 rows, with several shards, stopped and resumed, ended by a fault
and resumed. The interpreter knows nothing of these, so its answer holds for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.differential.choices import Choices
from tests.differential.families import Family
from tests.differential.rewriting import first_key, other_key
from tests.differential.streams import on_spark, resuming, running
from tests.differential.streams.generator import make_plan
from tests.differential.streams.interpreter import Outcome, interpret
from tests.differential.streams.plan import (
    Distinct,
    Grouped,
    IntervalJoin,
    Join,
    Plan,
    Row,
    Select,
    Source,
    TopN,
    Union,
    Where,
)
from tests.differential.streams.sql_generator import make_sql_plan


@dataclass(frozen=True)
class StreamCase:
    """A plan, written in a dialect (``dsl`` or ``sql``), and how it is run."""

    plan: Plan
    dialect: str
    way: str = "once"
    #: Whether headrace runs it with other keys, and the keys of the results are brought back.
    other_keys: bool = False
    batch: int = 1000
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = []
        for number, each in enumerate(self.plan.arrivals):
            rows += ["  nothing comes for long"] if number in self.plan.silences else []
            rows.append(f"  {each.table} {each.queue}: {_shown(each.row)}")
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        options += " with other keys (rewriting.other_key)" if self.other_keys else ""
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
    if plan.arrivals and choices.chance(25):
        plan = replace(
            plan, silences=frozenset(choices.integer(0, len(plan.arrivals) - 1) for _ in range(choices.integer(1, 3)))
        )
    other_keys = any("key" in table.columns.values() for table in plan.tables)
    if dialect == "sql" and _in_both_languages(plan) and choices.chance(40):
        dialect = "dsl"  # the same tree, in the other language
    return StreamCase(plan, dialect, way, other_keys, batch, options)


def _in_both_languages(plan: Plan) -> bool:
    """Whether a plan of SQL holds only what the verbs of the DSL mean too."""
    both = {Source, Where, Select, Union, Grouped, TopN, Distinct, Join, IntervalJoin}
    aggregates = [each for node in plan.of_type(Grouped) for each in node.aggregates.values()]
    return all(type(node) in both for node in plan.nodes()) and not any(
        each.function in ("first_value", "last_value") for each in aggregates
    )


def _mapped(row: Row, columns: Mapping[str, str], key: Callable[[Any], Any]) -> Row:
    return {name: key(value) if columns.get(name) in ("key", "text key") else value for name, value in row.items()}


def run(case: StreamCase, outcome: Outcome) -> running.Result:
    """Run a case. With several shards only where the right result does not depend on their number."""
    options = dict(case.options)
    if not outcome.any_shards:
        options.pop("shards", None)
    making = running.job_of if case.dialect == "dsl" else running.sql_job_of
    ways: dict[str, Callable[..., running.Result]] = {
        "once": running.run, "stopped": resuming.run_stopped, "ended": resuming.run_ended,
    }  # fmt: skip
    call = ways[case.way]
    if not case.other_keys:
        return call(case.plan, batch=case.batch, making=making, **options)
    columns = {table.name: table.columns for table in case.plan.tables}
    arrivals = tuple(
        replace(each, row=_mapped(each.row, columns[each.table], other_key)) for each in case.plan.arrivals
    )
    found = call(replace(case.plan, arrivals=arrivals), batch=case.batch, making=making, **options)
    rows = {
        name: [_mapped(row, case.plan.outputs[name].columns, _first_key) for row in given] for name, given in found.rows.items()
    }  # fmt: skip
    return replace(found, rows=rows)


def _first_key(key: Any) -> Any:
    return int(first_key(key)) if isinstance(key, int) else first_key(key)


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


def check_on_spark(case: StreamCase) -> str | None:
    """Return what is wrong with a case on Spark, or None. Of the way of running batches and shards count."""
    sql = case.dialect == "sql"
    plan, outcome = on_spark.comparable(replace(case.plan, silences=frozenset()), sql=sql)
    shards = case.options.get("shards", 1) if outcome is not None and outcome.any_shards else 1
    found = on_spark.run(plan, case.dialect, batch=case.batch, shards=shards)
    told = list(found.faults)
    if outcome is not None:
        told += running.differences(outcome.rows, found.rows)
        if outcome.dead != found.dead:
            told.append(f"{found.dead} dead letters, {outcome.dead} expected")
    rows = [] if plan is case.plan else ["it is run with these arrivals:", *map(str, plan.arrivals)]
    return "\n".join([*rows, "on Spark it differs from the interpreter:", *told]) if told else None


FAMILIES = [
    Family("streams", lambda choices: _case(choices, "dsl"), check, str, weight=5, check_on_spark=check_on_spark),
    Family("streams_sql", lambda choices: _case(choices, "sql"), check, str, weight=4, check_on_spark=check_on_spark),
]
