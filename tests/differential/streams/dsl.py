"""Plans as jobs of the Python DSL: as text that a person can read and run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from tests.differential.streams.expressions import aggregate_sql, sql
from tests.differential.streams.plan import (
    Counted,
    Distinct,
    Emit,
    FlatMap,
    Grouped,
    IntervalJoin,
    Join,
    Late,
    Node,
    Plan,
    Select,
    Source,
    Split,
    TopN,
    Union,
    Where,
    Window,
    Windowed,
    WindowJoin,
)  # fmt: skip


def text_of(plan: Plan) -> str:
    """Return lines of Python that make a stream per node, and ``outputs``: streams by name.

    They expect ``hr``, ``table`` (a function of a table's name that begins its stream), ``copies`` and ``counted``.
    """
    names: dict[int, str] = {}
    lines = []
    for node in plan.nodes():
        names[id(node)] = f"s{len(names)}"
        lines.append(f"{names[id(node)]} = {_line(node, names)}")
    outputs = ", ".join(f"{name!r}: {names[id(node)]}" for name, node in plan.outputs.items())
    return "\n".join([*lines, f"outputs = {{{outputs}}}", ""])


def _line(node: Node, names: Mapping[int, str]) -> str:
    inputs = [names[id(each)] for each in node.inputs]
    one = inputs[0] if inputs else ""
    if isinstance(node, Source):
        return f'table({node.table.name!r}).watermark("ts", delay={_length(node.table.delay)})'
    if isinstance(node, Where):
        return f"{one}.where({sql(node.condition)!r})"
    if isinstance(node, Select):
        plain = [name for name, each in node.expressions.items() if each == ("column", name)]
        made = {name: sql(each) for name, each in node.expressions.items() if each != ("column", name)}
        return f"{one}.select({_arguments(plain, made)})"
    if isinstance(node, Split):
        conditions = {f"b{at}": sql(each) for at, each in enumerate(node.conditions)}
        branch = "rest" if node.branch == len(node.conditions) else f"b{node.branch}"
        return f"{one}.split({_arguments([], conditions)}).{branch}"
    if isinstance(node, FlatMap):
        return f"{one}.flat_map(copies({node.column!r}), schema=with_copy({one}))"
    if isinstance(node, Union):
        return f"{one}.union({', '.join(inputs[1:])})"
    if isinstance(node, Late):
        return f"{one}.late()"
    if isinstance(node, Join):
        return _join(node, *inputs)
    return _keyed(node, one)


def _keyed(node: Node, one: str) -> str:
    assert isinstance(node, Grouped | Windowed | TopN | Distinct | Counted)
    keyed = f"{one}.key_by({_arguments(node.keys, {})})"
    if isinstance(node, Windowed):
        emit = "" if node.emit is None else f", emit={_emit(node.emit)}"
        aggregates = {name: aggregate_sql(what) for name, what in node.aggregates.items()}
        begin = keyed if node.keys else one
        return f"{begin}.window({window_text(node.window)}{emit}).agg({_arguments([], aggregates)})"
    if isinstance(node, Grouped):
        return f"{keyed}.agg({_arguments([], {name: aggregate_sql(what) for name, what in node.aggregates.items()})})"
    if isinstance(node, TopN):
        order = ", ".join(f"{name} desc" if descending else name for name, descending in node.order)
        return f"{keyed}.top_n({node.n}, by={order!r}{'' if node.rank is None else f', rank={node.rank!r}'})"
    if isinstance(node, Distinct):
        return f"{keyed}.distinct()"
    return f"counted({one}, {node.keys!r}, {node.on!r}, {_length(node.span)})"


def _join(node: Join, left: str, right: str) -> str:
    renamed = {new: old for old, new in node.renamed.items()}
    pairs = {one: node.renamed[other] for one, other in node.pairs}
    options = [f"how={node.how!r}"]
    if isinstance(node, IntervalJoin):
        options.append(f"within=({_length(node.low)}, {_length(node.high)})")
    if isinstance(node, WindowJoin):
        options.append(f"window={window_text(node.window)}")
    if isinstance(node, IntervalJoin | WindowJoin):
        options.append(f"time={(node.time[0], node.renamed[node.time[1]])!r}")
    if node.where is not None:
        options.append(f"where={sql(node.where)!r}")
    return f"{left}.join({right}.select({_arguments([], renamed)}), {pairs or ()!r}, {', '.join(options)})"


def window_text(window: Window) -> str:
    """Return a window as the DSL has it."""
    if window.kind == "session":
        return f"hr.session({_length(window.size)}, on={window.on!r})"
    lengths = _length(window.size) if window.kind == "tumbling" else f"{_length(window.size)}, {_length(window.every)}"
    offset = f", offset={_length(window.offset)}" if window.offset else ""
    return f"hr.{window.kind}({lengths}, on={window.on!r}{offset})"


def _emit(emit: Emit) -> str:
    given = {"before": emit.before, "after": emit.after, "until": emit.until or None}
    return "hr.emit(" + ", ".join(f"{name}={_length(each)}" for name, each in given.items() if each is not None) + ")"


def _length(length: timedelta) -> str:
    whole, rest = divmod(length, timedelta(milliseconds=1))
    return (
        f"timedelta(microseconds={length // timedelta(microseconds=1)})" if rest else f"timedelta(milliseconds={whole})"
    )


def _arguments(plain: object, named: Mapping[str, str]) -> str:
    assert isinstance(plain, list | tuple)
    return ", ".join([*(repr(each) for each in plain), *(f"{name}={each!r}" for name, each in named.items())])
