"""OVER in SELECT: ROW_NUMBER() for a Top-N, and aggregates over the rows before each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import polars as pl
from headrace.interfaces.functions import AggregateFunction
from headrace.jobs.keyed import shuffled
from headrace_columnar.sql_types import common_type
from sqlglot import exp

from headrace_sql.binding.context import Context, Listed
from headrace_sql.binding.emitting import state_ttl
from headrace_sql.binding.expression_parts import names_columns
from headrace_sql.binding.expressions import Translator
from headrace_sql.binding.intervals import interval_us
from headrace_sql.binding.scope import Column, Ranking, Relation, Time, is_updating, resolve, unused_name
from headrace_sql.binding.trees import physical, text_of
from headrace_sql.compiling.constants import constant, whole_number
from headrace_sql.compiling.ordering import ordered_terms
from headrace_sql.operators.over_aggregate import OverAggregate
from headrace_sql.operators.over_changing import OverChanging
from headrace_sql.operators.over_functions import OverCall


def with_over(context: Context, relation: Relation, listed: Sequence[Listed]) -> Relation:
    """Return the output of a SELECT with OVER for each row."""
    relation = context.settled(listed[0][1], relation)
    windows = [window for each in listed for window in each[1].find_all(exp.Window)]
    numbered = [
        each for each in listed if isinstance(each[1], exp.Window) and each[1].this.name.upper() == "ROW_NUMBER"
    ]
    if len(windows) == len(numbered) == 1:
        return _ranking(context, relation, listed, numbered)
    return _aggregates(context, relation, listed)


def _ranking(context: Context, relation: Relation, listed: Sequence[Listed], ranks: Sequence[Listed]) -> Relation:
    name, window, _ = ranks[0]
    assert isinstance(window, exp.Window)
    others = [each for each in listed if each is not ranks[0]]
    given_relation = relation
    relation, partition, order = _partition_and_order(context, relation, window)
    projected = context.selected(relation, others, context.translator(relation))
    # The columns of the order may be missing in what SELECT gives: they are kept until the rank is bounded.
    stream, kept = relation.stream, {}
    texts: dict[str, str] = {}

    given = context.translator(relation)
    for (_, node, column), made_column in zip(others, projected.columns, strict=True):
        if made_column.time == "processing":
            continue
        texts[made_column.physical] = text_of(physical(column.physical)) if column is not None else given.sql(node)
    for wanted in (*partition, *(term[0] for term in order)):
        if wanted in kept or not wanted:
            continue
        text = text_of(physical(wanted))
        found = next((known for known, one in texts.items() if one == text), None)
        if found is None:
            found = unused_name(wanted, texts)
            texts[found] = text
        kept[wanted] = found
    rank_name = name or "EXPR$0"
    target = unused_name(rank_name, texts)
    ranking = Ranking(
        "ROW_NUMBER",
        tuple(kept[each] for each in partition),
        tuple((kept.get(c, c), down, time) for c, down, time in order),
        rank_name,
        # Of a view that is read twice all rows are numbered once.
        cache(lambda: _aggregates(context, given_relation, listed)),
        by_time=_is_by_time(relation, order),
    )
    columns = list(projected.columns)
    columns.insert(listed.index(ranks[0]), Column(rank_name, target))
    return Relation(stream.select(**texts), tuple(columns), ranking=ranking)


def _partition_and_order(
    context: Context, relation: Relation, window: exp.Window
) -> tuple[Relation, tuple[str, ...], tuple[tuple[str, bool, Time | None], ...]]:
    """Return the physical columns of PARTITION BY and ORDER BY; expressions become columns."""
    translator = context.translator(relation)
    computed: dict[str, str] = {}

    def column_of(node: exp.Expr) -> tuple[str, Time | None]:
        if isinstance(node, exp.Column):
            found, fields = resolve(relation, node, context.text)
            if not fields:
                return ("", "processing") if found.time == "processing" else (found.physical, found.time)
        if isinstance(node, exp.Anonymous) and node.name.upper() == "PROCTIME":
            return "", "processing"
        name = unused_name(f"__over_{len(computed)}", relation.schema)
        computed[name] = translator.sql(node)
        return name, None

    partitions = [(each, *column_of(each)) for each in window.args.get("partition_by") or ()]
    for node, _, time in partitions:
        if time == "processing":
            raise context.error(
                node, "each partition by processing time would have only one row", "use ORDER BY instead"
            )
    partition = tuple(name for _, name, _ in partitions)
    order = window.args.get("order")
    ordered = ordered_terms(order.expressions) if order is not None else ()
    terms = tuple(_first(column_of(each), descending) for each, descending in ordered)
    if computed:
        relation = replace(relation, stream=relation.stream.with_columns(**computed))
    return relation, partition, terms


def _first(column: tuple[str, Time | None], descending: bool) -> tuple[str, bool, Time | None]:
    return column[0], descending, column[1]


def _is_by_time(relation: Relation, order: Sequence[tuple[str, bool, Time | None]]) -> bool:
    """Return whether rows are ordered by time and never change: then the results of each row are returned once."""
    return len(order) == 1 and order[0][2] is not None and not order[0][1] and not is_updating(relation)


def _aggregates(context: Context, relation: Relation, listed: Sequence[Listed]) -> Relation:
    """Return OVER aggregates: those of the same partition and order are computed together, others one after the other."""
    windows: dict[str, list[exp.Window]] = {}
    for each in listed:
        for window in each[1].find_all(exp.Window):
            windows.setdefault(_shape(window), []).append(window)
    replaced: dict[str, str] = {}
    inputs: dict[str, str] = {}
    for group in windows.values():
        relation = _with_results(context, relation, group, replaced, inputs)
    return context.selected(relation, listed, context.translator(relation, replaced))


def _with_results(
    context: Context,
    relation: Relation,
    windows: Sequence[exp.Window],
    replaced: dict[str, str],
    inputs: dict[str, str],
) -> Relation:
    """Return the relation with a column for each of these windows, which have one partition and order.

    In the order of a time attribute rows are given once. In any other, and over rows that change, the result changes.
    ``replaced`` gets the column of each window, ``inputs`` the expressions of arguments.
    """
    first = windows[0]
    relation, partition, order = _partition_and_order(context, relation, first)
    by_time = _is_by_time(relation, order)
    if not by_time and any(time == "processing" for _, _, time in order):
        raise context.error(
            first, "OVER in the order of a processing time is ascending, and needs rows that are only added",
            "order by a column of the rows",
        )  # fmt: skip
    given, known = context.translator(relation), len(inputs)
    calls: dict[str, OverCall] = {}
    for window in windows:
        key = given.key_of(window)
        if key in replaced:
            continue
        name = unused_name(f"__over_result_{len(replaced)}", relation.schema)
        calls[name] = _call(context, given, window, inputs, by_time=by_time)
        replaced[key] = name
    new = dict(list(inputs.items())[known:])
    stream = relation.stream.with_columns(**new) if new else relation.stream
    spec: OverAggregate | OverChanging
    if by_time:
        spec = OverAggregate(partition, None if order[0][2] == "processing" else order[0][0], calls)
    else:
        terms = tuple((column, down) for column, down, _ in order)
        spec = OverChanging(partition, terms, calls, **state_ttl(context.catalog.options))
    return replace(relation, stream=shuffled(stream, partition).apply(spec), base=None)


def _shape(window: exp.Window) -> str:
    parts = [each.sql(dialect="flink") for each in window.args.get("partition_by") or ()]
    return "|".join([*parts, window.args["order"].sql(dialect="flink") if window.args.get("order") else ""])


def _call(
    context: Context, given: Translator, window: exp.Window, inputs: dict[str, str], *, by_time: bool
) -> OverCall:
    call = window.this
    condition = None
    if isinstance(call, exp.Filter):
        condition, call = call.expression.this, call.this
    function = call.name.upper()
    arguments = list(call.expressions)
    kind, preceding = _frame(context, window, by_time=by_time)
    user = context.catalog.functions.get(call.name.lower())
    if (
        isinstance(user, AggregateFunction)
        and condition is None
        and arguments
        and not isinstance(arguments[0], exp.Distinct)
    ):
        names = tuple(f"__over_input_{len(inputs) + place}" for place in range(len(arguments)))
        inputs |= {name: given.sql(each) for name, each in zip(names, arguments, strict=True)}
        return OverCall(user.name, None, kind, preceding, user=user, arguments=names)
    if function in OverCall.AHEAD and by_time:
        raise context.error(
            call,
            f"{function} in the order of time would have to wait for later rows",
            "order by another column, or use LAG",
        )
    if function not in OverCall.FUNCTIONS:
        raise context.error(
            call, f"{function} is not supported with OVER", f"supported: {', '.join(OverCall.FUNCTIONS)}"
        )
    if function in (*OverCall.RANKS, "LAG", "LEAD") and window.args.get("order") is None:
        raise context.error(window, f"{function} needs ORDER BY")
    is_distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
    if is_distinct:
        arguments = list(arguments[0].expressions)
    argument = None
    if function == "NTILE" and arguments:
        distance = whole_number(context, arguments[0], "the number of parts of NTILE")
        if distance < 1 or len(arguments) > 1:
            raise context.error(call, "NTILE takes one number, 1 or more")
        return OverCall(function, None, "ROWS", None, distance)
    if arguments and not isinstance(arguments[0], exp.Star):
        argument = f"__over_input_{len(inputs)}"
        inputs[argument] = given.sql(arguments[0])
    elif function == "NTILE" or function not in ("COUNT", *OverCall.RANKS):
        raise context.error(call, f"{function} needs an argument")
    if condition is not None:
        # The argument is not a column of its own: it is not evaluated for rows that the condition leaves out.
        value = inputs.pop(argument) if argument else "1"
        argument = argument or f"__over_input_{len(inputs)}"
        inputs[argument] = f"CASE WHEN {given.sql(condition)} THEN {value} END"
    if len(arguments) > {"LAG": 3, "LEAD": 3, "LISTAGG": 2}.get(function, 1):
        raise context.error(call, f"{function} with OVER takes fewer arguments")
    distance, default = 1, None
    if function in ("LAG", "LEAD"):
        kind = kind if by_time else "ROWS"
        distance, default = _lag(context, given, arguments)
    elif function == "LISTAGG" and len(arguments) > 1:
        default = constant(context, arguments[1], "the separator of LISTAGG", pl.String())
    return OverCall(function, argument, kind, preceding, distance, is_distinct, default)


def _lag(context: Context, given: Translator, arguments: list[exp.Expr]) -> tuple[int, Any]:
    """Return how many rows LAG looks back, and its value if there is no such row: a value of the argument's type."""
    distance = whole_number(context, arguments[1], "the distance of LAG") if len(arguments) > 1 else 1
    if len(arguments) < 3:
        return distance, None
    kind = given.type_of(arguments[0])
    own = context.without_columns().type_of(arguments[2]) if not names_columns(arguments[2]) else kind
    if common_type(kind, own) is None:
        raise context.error(
            arguments[2], "the default value of LAG has another type than the column", "CAST one of them"
        )
    return distance, constant(context, arguments[2], "the default of LAG", kind)


def _frame(context: Context, window: exp.Window, *, by_time: bool) -> tuple[str, int | None]:
    """Return ("ROWS" or "RANGE", rows or microseconds before the row; None: all)."""
    spec = window.args.get("spec")
    if spec is None:
        return "RANGE", None
    kind = str(spec.args["kind"]).upper()
    end = spec.args.get("end")
    if end is not None and str(getattr(end, "name", end)).upper() != "CURRENT ROW":
        raise context.error(window, "an OVER window must end with the current row")
    start = spec.args["start"]
    if isinstance(start, str):
        if start.upper() == "UNBOUNDED":
            return kind, None
        if start.upper() == "CURRENT ROW":
            return kind, 0
        raise context.error(window, f"{start} is not supported as the start of an OVER window")
    if not by_time and (kind == "RANGE" or start.find(exp.Interval) is not None):
        raise context.error(
            window, "RANGE with a length needs an ascending time attribute and rows that are only added",
            "ROWS BETWEEN n PRECEDING AND CURRENT ROW, or RANGE UNBOUNDED PRECEDING",
        )  # fmt: skip
    if isinstance(start, exp.Interval):
        return "RANGE", interval_us(start, context.text, "RANGE")
    if kind == "RANGE" or start.find(exp.Interval) is not None:
        return "RANGE", interval_us(start, context.text, "RANGE")
    return kind, whole_number(context, start, "the number of rows of an OVER window")
