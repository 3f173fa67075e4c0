"""Edits of a plan: one verb of it is changed as a person might change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from tests.differential.choices import Choices
from tests.differential.streams.plan import (
    Aggregate,
    Distinct,
    Emit,
    Expression,
    Grouped,
    IntervalJoin,
    Join,
    Match,
    Node,
    Over,
    Plan,
    Select,
    Split,
    TopN,
    Union,
    Where,
    Windowed,
    WindowJoin,
)  # fmt: skip

T = TypeVar("T")
#: What a verb becomes, with a name for it.
Edit = tuple[str, Node]
_SECONDS = timedelta(seconds=2)
_FUNCTIONS = {
    "max": "min", "min": "max", "sum": "max", "count": "max", "first": "last", "last": "first", "first_value": "last_value",
    "last_value": "first_value", "avg": "stddev_samp",
}  # fmt: skip
_OPERATORS = {
    "<": ">", ">": "<", "<=": "<", ">=": ">", "=": "<>", "<>": "=", "and": "or", "or": "and", "+": "-", "-": "+",
}  # fmt: skip


def edited(choices: Choices, plan: Plan) -> tuple[str, Plan] | None:
    """Return the name of an edit and the plan after it; None where no verb of the plan can be edited."""
    found = [(node, edit) for node in plan.nodes() for edit in _edits(choices, node)]
    if not found:
        return None
    node, (name, new) = choices.pick(found)
    return f"{type(node).__name__}: {name}", _with(plan, node, new)


def _with(plan: Plan, old: Node, new: Node) -> Plan:
    """Return the plan with another node in the place of one, and with all that read it made anew."""
    made: dict[int, Node] = {id(old): new}

    def visit(node: Node) -> Node:
        if id(node) not in made:
            given: dict[str, Any] = {
                name: visit(getattr(node, name)) for name in ("input", "left", "right") if hasattr(node, name)
            }
            if isinstance(node, Union):
                given["merged"] = tuple(visit(each) for each in node.merged)
            made[id(node)] = replace(node, **given) if given else node
        return made[id(node)]

    return replace(plan, outputs={name: visit(node) for name, node in plan.outputs.items()})


def _edits(choices: Choices, node: Node) -> Iterator[Edit]:
    kinds: list[tuple[type[Node], Callable[[Choices, Any], Iterator[Edit]]]] = [
        (Where, _of_where), (Select, _of_select), (Split, _of_split), (Windowed, _of_window), (Grouped, _of_aggregates),
        (Windowed, _of_aggregates), (Join, _of_join), (IntervalJoin, _of_bounds), (WindowJoin, _of_joined_window), (TopN, _of_order),
        (Distinct, _of_distinct), (Over, _of_over), (Match, _of_match),
    ]  # fmt: skip
    for kind, edits in kinds:
        if isinstance(node, kind):
            yield from edits(choices, node)


def _other_expression(choices: Choices, expression: Expression) -> Expression:
    """Return an expression with another constant or operator; where it has neither, the same."""
    kind = expression[0]
    if kind == "constant":
        value = expression[1]
        if isinstance(value, bool):
            return ("constant", not value, *expression[2:])
        if isinstance(value, int | str):
            return ("constant", value + "x" if isinstance(value, str) else value + 1, *expression[2:])
        return expression
    if kind in _OPERATORS and choices.chance(40):
        return (_OPERATORS[kind], *expression[1:])
    places = [at for at, part in enumerate(expression) if isinstance(part, tuple)]
    if kind == "column" or not places:
        return expression
    at = choices.pick(places)
    return (*expression[:at], _other_expression(choices, expression[at]), *expression[at + 1 :])


def _exchanged(choices: Choices, named: Mapping[str, T], kinds: Mapping[str, Any]) -> dict[str, T] | None:
    """Return the values with two of the same kind in each other's place."""
    pairs = [(one, other) for one in named for other in named if one < other and kinds.get(one) == kinds.get(other)]
    if not pairs:
        return None
    one, other = choices.pick(pairs)
    return {**named, one: named[other], other: named[one]}


# ------------------------------------------------------------------------------------------------ without memory


def _of_where(choices: Choices, node: Where) -> Iterator[Edit]:
    yield "another condition", replace(node, condition=_other_expression(choices, node.condition))
    yield "dropped", node.input


def _of_select(choices: Choices, node: Select) -> Iterator[Edit]:
    name = choices.pick(list(node.expressions))
    other = _other_expression(choices, node.expressions[name])
    yield "another expression", replace(node, expressions={**node.expressions, name: other})
    if exchanged := _exchanged(choices, node.expressions, node.columns):
        yield "two columns exchanged", replace(node, expressions=exchanged)


def _of_split(choices: Choices, node: Split) -> Iterator[Edit]:
    conditions = tuple(_other_expression(choices, each) for each in node.conditions)
    yield "other conditions", replace(node, conditions=conditions)
    if len(node.conditions) > 1:
        yield "another order", replace(node, conditions=node.conditions[::-1])


# ----------------------------------------------------------------------------------------------------- with memory


def _of_aggregates(choices: Choices, node: Grouped | Windowed) -> Iterator[Edit]:
    name = choices.pick(list(node.aggregates))
    old = node.aggregates[name]

    def one(label: str, **new: Any) -> Edit:
        changed: Mapping[str, Aggregate] = {**node.aggregates, name: replace(old, **new)}
        return label, replace(node, aggregates=changed)

    if old.column is not None:
        if old.function in _FUNCTIONS:
            yield one("another function", function=_FUNCTIONS[old.function])
        yield one("distinct", distinct=not old.distinct)
        kind = node.input.columns.get(old.column)
        others = [each for each, its in node.input.columns.items() if each != old.column and its == kind]
        if others:
            yield one("another column", column=choices.pick(others))
    if old.condition is not None:
        yield one("another FILTER", condition=_other_expression(choices, old.condition))
        yield one("no FILTER", condition=None)
    yield "another order", replace(node, aggregates=dict(list(node.aggregates.items())[::-1]))
    kinds = {each: aggregate.kind for each, aggregate in node.aggregates.items()}
    if exchanged := _exchanged(choices, node.aggregates, kinds):
        yield "two names exchanged", replace(node, aggregates=exchanged)
    if len(node.keys) > 1:
        yield "keys in another order", replace(node, keys=node.keys[::-1])


def _of_window(choices: Choices, node: Windowed) -> Iterator[Edit]:
    window = node.window
    every = window.every * 2 if window.kind == "tumbling" else window.every
    yield "twice the size", replace(node, window=replace(window, size=window.size * 2, every=every))
    kind = {"sliding": "cumulative", "cumulative": "sliding", "tumbling": "session", "session": "tumbling"}[window.kind]
    yield f"from {window.kind} to {kind}", replace(node, window=replace(window, kind=kind))
    if window.kind != "session":
        offset = window.offset + timedelta(milliseconds=300)
        yield "another offset", replace(node, window=replace(window, offset=offset))
    if node.emit is None:
        yield "emit", replace(node, emit=Emit(None, timedelta(), timedelta(seconds=5)))
    else:
        yield "no emit", replace(node, emit=None)
        yield "emit for longer", replace(node, emit=replace(node.emit, until=node.emit.until + _SECONDS))


def _of_join(choices: Choices, node: Join) -> Iterator[Edit]:
    hows = ["semi", "anti"] if node.how in ("semi", "anti") else ["inner", "left", "right", "full"]
    how: Any = choices.pick([each for each in hows if each != node.how])
    yield f"from {node.how} to {how}", replace(node, how=how)
    if node.where is not None:
        yield "another condition", replace(node, where=_other_expression(choices, node.where))
        yield "no condition", replace(node, where=None)
    if len(node.pairs) > 1:
        yield "columns in another order", replace(node, pairs=node.pairs[::-1])
        yield "one column", replace(node, pairs=node.pairs[:1])
    joined = {other for _, other in node.pairs}
    rest = {old: new for old, new in node.renamed.items() if old not in joined}
    if exchanged := _exchanged(choices, rest, node.right.columns):
        yield "two names exchanged", replace(node, renamed={**node.renamed, **exchanged})


def _of_bounds(choices: Choices, node: IntervalJoin) -> Iterator[Edit]:
    yield "earlier", replace(node, low=node.low - _SECONDS)
    yield "later", replace(node, high=node.high + _SECONDS)


def _of_joined_window(choices: Choices, node: WindowJoin) -> Iterator[Edit]:
    window = node.window
    yield "twice the size", replace(node, window=replace(window, size=window.size * 2, every=window.every * 2))


def _of_order(choices: Choices, node: TopN) -> Iterator[Edit]:
    yield "one row more", replace(node, n=node.n + 1)
    if node.n > 1:
        yield "one row fewer", replace(node, n=node.n - 1)
    (column, descending), *rest = node.order
    yield "from the other end", replace(node, order=((column, not descending), *rest))
    if len(node.order) > 1:
        yield "by other columns first", replace(node, order=(*node.order[1:], node.order[0]))


def _of_distinct(choices: Choices, node: Distinct) -> Iterator[Edit]:
    if len(node.keys) > 1:
        yield "fewer keys", replace(node, keys=node.keys[1:])
        yield "keys in another order", replace(node, keys=node.keys[::-1])
    if more := [name for name in node.input.columns if name not in node.keys]:
        yield "more keys", replace(node, keys=(*node.keys, choices.pick(more)))


def _of_over(choices: Choices, node: Over) -> Iterator[Edit]:
    name = choices.pick(list(node.calls))
    old = node.calls[name]

    def one(label: str, **new: Any) -> Edit:
        return label, replace(node, calls={**node.calls, name: replace(old, **new)})

    if old.rows is not None:
        yield one("one row more", rows=old.rows + 1)
    if old.span is not None:
        yield one("twice the time", span=old.span * 2)
    if old.function in _FUNCTIONS and old.column:
        yield one("another function", function=_FUNCTIONS[old.function])
    if old.function in ("lag", "lead"):
        yield one("one row further", distance=old.distance + 1)


def _of_match(choices: Choices, node: Match) -> Iterator[Edit]:
    (variable, least, most), *rest = node.pattern
    yield "more rows", replace(node, pattern=((variable, least, (most or least) + 1), *rest))
    yield "within", replace(node, within=_SECONDS if node.within is None else node.within * 2)
    yield "the next match", replace(node, next_row=not node.next_row)
    if len(node.values) > 1:
        one, other, *_ = node.values
        values = {**node.values, one: node.values[other], other: node.values[one]}
        yield "variables exchanged", replace(node, values=values)
    name = choices.pick(list(node.measures))
    what, variable, column = node.measures[name]
    if what in _FUNCTIONS:
        yield "another measure", replace(node, measures={**node.measures, name: (_FUNCTIONS[what], variable, column)})
