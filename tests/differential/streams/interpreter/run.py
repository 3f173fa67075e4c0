"""Runs a plan: rows arrive one after the other, and go through all verbs before the next one comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tests.differential.streams.interpreter.joins import IntervalJoined, TemporalJoined, WindowJoined
from tests.differential.streams.interpreter.machine import FirstOfKey, Operator, Passing, Reading, Timed
from tests.differential.streams.interpreter.ordered import CountedRows, FirstInTime, MatchedRows, OverRows
from tests.differential.streams.interpreter.tables import table_of
from tests.differential.streams.interpreter.windows import WindowAggregates, WindowRanks
from tests.differential.streams.plan import (
    Counted,
    Distinct,
    FirstByTime,
    FlatMap,
    IntervalJoin,
    Late,
    Match,
    Node,
    Over,
    Plan,
    Row,
    Select,
    Source,
    Split,
    TemporalJoin,
    Union,
    Where,
    Windowed,
    WindowJoin,
    WindowTopN,
)  # fmt: skip

_MORE = timedelta(milliseconds=1)


@dataclass
class Outcome:
    """What must come out: rows by output, in the end. ``late``: how many rows came too late, by the number of their verb.

    ``fragile``: the right result depends on which of several ways through the job is quicker, or on the order of results of one moment,
    so there is more than one.
    ``any_shards``: it is the same for any number of shards.
    """

    rows: Mapping[str, list[Row]]
    late: Mapping[int, int]
    dead: int
    fragile: bool
    any_shards: bool


def interpret(plan: Plan, *, sql: bool = False, flink: bool = False) -> Outcome:
    """Return what a plan must give. ``sql``: with the watermarks and aggregates of Flink's SQL.

    ``flink``: what PyFlink gives, also where docs/sql.md says that headrace does not.
    """
    outcome, tied = _interpreted(plan, sql=sql, flink=flink, ties_reversed=False)
    if tied and _order_matters(plan.nodes()):
        other, _ = _interpreted(plan, sql=sql, flink=flink, ties_reversed=True)
        same = {name: sorted(map(repr, rows)) for name, rows in outcome.rows.items()} == {
            name: sorted(map(repr, rows)) for name, rows in other.rows.items()
        }
        outcome.fragile |= not same
    return outcome


def _interpreted(plan: Plan, *, sql: bool, flink: bool, ties_reversed: bool) -> tuple[Outcome, bool]:
    """Return the outcome, and whether results of sessions came in an order that could be another one."""
    nodes = plan.nodes()
    operators: dict[int, Operator] = {}
    for node in nodes:
        operator = _operator_of(node, sql=sql, flink=flink, ties_reversed=ties_reversed)
        if operator is None or any(id(each) not in operators for each in node.inputs if not isinstance(node, Late)):
            continue  # its results change: they are computed in the end
        operators[id(node)] = operator
        for side, each in enumerate(node.inputs):
            operators[id(each)].consumers.append((operator, side if not isinstance(node, Union) else 0))
    sources = [operators[id(node)] for node in nodes if isinstance(node, Source)]
    _run(plan, sources, [operators[id(node)] for node in nodes if id(node) in operators])
    moved = {at: operator.given for at, operator in operators.items()}
    for node in nodes:
        if isinstance(node, Late):
            timed = operators[id(node.input)]
            assert isinstance(timed, Timed)
            moved[id(node)] = timed.late
    made: dict[int, list[Row]] = {}
    rows = {name: table_of(node, moved, made, sql=sql) for name, node in plan.outputs.items()}
    timed_ones = [(at, operators.get(id(node))) for at, node in enumerate(nodes)]
    late = {at: len(each.late) for at, each in timed_ones if isinstance(each, Timed)}
    dead = sum(len(each.dead) for _, each in timed_ones if isinstance(each, Timed))
    shown = {
        name: [{column: row[column] for column in plan.outputs[name].columns} for row in found]
        for name, found in rows.items()
    }
    fragile = any(each.fragile for _, each in timed_ones if isinstance(each, Timed))
    behind = any(each.behind or (each.late and each.behind_others) for _, each in timed_ones if isinstance(each, Timed))
    tied = any(each.tied for _, each in timed_ones if isinstance(each, WindowAggregates))
    return Outcome(shown, late, dead, fragile, not behind and not _order_matters(nodes)), tied


#: Aggregates that depend on the order of rows.
_IN_ORDER = {"first", "last", "first_value", "last_value", "collect", "collect_set", "array_agg", "listagg"}


def _order_matters(nodes: list[Node]) -> bool:
    """Whether a verb that remembers takes rows of another one in their order."""
    remembering: set[int] = set()
    for node in nodes:
        behind = any(id(each) in remembering for each in node.inputs)
        calls = [*getattr(node, "aggregates", {}).values(), *getattr(node, "calls", {}).values()]
        ordered = any(each.function in _IN_ORDER for each in calls)
        if behind and (ordered or isinstance(node, Counted | FirstByTime | Match | Over | Distinct)):
            return True
        if behind or not isinstance(node, Source | Where | Select | Split | FlatMap | Union):
            remembering.add(id(node))
    return False


def _run(plan: Plan, sources: list[Any], operators: list[Operator]) -> None:
    for source in sources:
        for queue in range(source.node.table.queues):
            source.pass_root((source.node, queue))
    for number, arrival in enumerate(plan.arrivals):
        for source in sources if number in plan.silences else ():
            for queue in range(source.node.table.queues):
                source.pass_silent((source.node, queue))
        for source in sources:
            if source.node.table.name == arrival.table:
                source.arrive(arrival.queue, dict(arrival.row))
    for operator in operators:
        operator.close()


def _operator_of(node: Node, *, sql: bool, flink: bool, ties_reversed: bool) -> Operator | None:
    """Return the verb at work; None for what is computed in the end."""
    if isinstance(node, Source):
        return Reading(node, _MORE if sql else timedelta())
    if isinstance(node, Where | Select | Split | FlatMap | Union):
        return Passing(node)
    if isinstance(node, Windowed):
        return WindowAggregates(node, sql=sql, ties_reversed=ties_reversed)
    if isinstance(node, WindowTopN):
        return WindowRanks(node)
    if isinstance(node, TemporalJoin):
        return TemporalJoined(node, flink=flink)
    kinds: dict[type[Node], Any] = {
        IntervalJoin: IntervalJoined, WindowJoin: WindowJoined, Over: OverRows, FirstByTime: FirstInTime,
        Counted: CountedRows, Distinct: FirstOfKey, Match: MatchedRows,
    }  # fmt: skip
    found = kinds.get(type(node))
    return None if found is None else found(node)
