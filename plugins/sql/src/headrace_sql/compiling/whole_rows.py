"""Subqueries that aggregate all of their rows: without GROUP BY they have one row in SQL, also where there is nothing to aggregate.

The aggregates of a stream have no row before the first row has come. So such a subquery gives its aggregates alone; the query around
joins them, and calculates with them: a COUNT that is not there is 0, any other aggregate is NULL. HAVING is asked there too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.expression_parts import aggregates_in, conjuncts
from headrace_sql.binding.functions import BARE_CALLS
from headrace_sql.binding.scope import MEANT, Column, knows, standing_for
from headrace_sql.compiling.ordering import row_bounds
from headrace_sql.compiling.quantified import quantified_in
from headrace_sql.reading.nodes import with_parts

_COUNTS = ("COUNT", "APPROX_COUNT_DISTINCT")


@dataclass(frozen=True)
class WholeRow:
    """A subquery that aggregates all of its rows, in two parts."""

    #: Gives the aggregates alone.
    query: exp.Select
    calls: Sequence[exp.Expr]
    #: The select list of the subquery, with the aggregates as they are written.
    value: exp.Expr

    def with_columns(self, columns: Sequence[Column], around: Mapping[int, exp.Expr]) -> exp.Expr:
        """Return the value with columns in place of the aggregates, which may be without a row.

        ``around`` are the parts that name columns of the query around, by id, as they are meant there.
        """
        made = {id(call): _without_rows(call, column) for call, column in zip(self.calls, columns, strict=True)}
        return exp.paren(with_parts(self.value, {**around, **made}), copy=False)


def _without_rows(call: exp.Expr, column: Column) -> exp.Expr:
    value = standing_for(column, call)
    name = (call.this if isinstance(call, exp.Filter) else call).name.upper()
    return exp.Anonymous(this="COALESCE", expressions=[value, exp.Literal.number(0)]) if name in _COUNTS else value


def whole_row(context: Context, query: exp.Expr) -> WholeRow | None:
    """Return the parts of a subquery of one column that aggregates all of its rows; None for another subquery."""
    if len(query.expressions) != 1 or not is_whole(context, query):
        return None
    assert isinstance(query, exp.Select)
    item = query.expressions[0]
    value = item.this if isinstance(item, exp.Alias) else item
    having = query.args.get("having")
    if having is not None:
        value = exp.Case(ifs=[exp.If(this=having.this.copy(), true=value.copy())])
    calls = aggregates_in(value, context.catalog.functions)
    made = query.copy()
    for clause in ("having", "order", "limit", "offset", "distinct"):
        made.set(clause, None)
    made.set("expressions", [_named(call, f"__whole_{index}") for index, call in enumerate(calls)])
    _check_columns(context, query, value)
    return WholeRow(made, calls, value)


def _named(node: exp.Expr, name: str) -> exp.Expr:
    return exp.Alias(this=node.copy(), alias=exp.to_identifier(name))


def is_whole(context: Context, query: exp.Expr) -> bool:
    """Return whether a query aggregates all of its rows to one. Raises ExpressionError for OVER above these aggregates."""
    if not isinstance(query, exp.Select) or query.args.get("group") is not None:
        return False
    if not context.has_aggregates(query) or any(each.is_star for each in query.expressions):
        return False
    for each in query.expressions:
        window = each.find(exp.Window)
        if window is not None:
            raise context.error(window, "OVER cannot be used with aggregates in a subquery without GROUP BY")
    distinct = query.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        return False
    count, skipped = row_bounds(context, query)
    return (count is None or count > 0) and not skipped


def _check_columns(context: Context, query: exp.Select, value: exp.Expr) -> None:
    """Raise ExpressionError for a column of the subquery's own beside the aggregates."""
    plain = _beside_aggregates(context, value)
    if not plain or query.args.get("from_") is None:
        return
    conditions = conjuncts(query.args["where"].this if query.args.get("where") is not None else None)
    own, _ = context.from_clause(query, conditions)
    for column in plain:
        if MEANT not in column.meta and knows(own, column):
            raise context.error(
                column, f"column {column.name!r} is neither grouped by nor in an aggregate",
                f"write MAX({column.name})",
            )  # fmt: skip


def _beside_aggregates(context: Context, node: exp.Expr) -> list[exp.Column]:
    """Return the columns of an expression outside of its aggregates and subqueries."""
    inside = {id(call) for call in aggregates_in(node, context.catalog.functions)}
    walked = node.walk(prune=lambda part: id(part) in inside or isinstance(part, exp.Query))
    return [part for part in walked if isinstance(part, exp.Column) and id(part) not in inside]


def names_around(context: Context, whole: WholeRow) -> list[exp.Column]:
    """Return the columns beside the aggregates: they are of the query around."""
    found = _beside_aggregates(context, whole.value)
    return [each for each in found if MEANT not in each.meta and each.name.upper() not in BARE_CALLS]


def without_predicates(context: Context, node: exp.Expr) -> exp.Expr:
    """Return an expression whose IN, EXISTS, ANY and ALL over such subqueries are comparisons with their one row."""
    if isinstance(node, exp.Query):
        return node
    if isinstance(node, exp.Exists):
        query = node.this.this if isinstance(node.this, exp.Subquery) else node.this
        return _exists(query) if is_whole(context, query) else node
    if isinstance(node, exp.In) and isinstance(node.this, exp.Tuple) and node.args.get("query") is not None:
        return _row_in(context, node)
    quantified = quantified_in(node)
    if quantified is not None:
        query = quantified.query
        if len(query.expressions) != 1 or not is_whole(context, query):
            return node
        compared = quantified.operator(this=quantified.this.copy(), expression=exp.Subquery(this=query.copy()))
        if query.args.get("having") is None:
            return exp.paren(compared, copy=False)
        default: exp.Expr = exp.true() if quantified.every else exp.false()
        return exp.Case(ifs=[exp.If(this=_exists(query), true=compared)], default=default)
    replaced = {
        id(each): made
        for each in node.iter_expressions()
        if (made := without_predicates(context, each)) is not each
    }  # fmt: skip
    return with_parts(node, replaced) if replaced else node


def _exists(query: exp.Expr) -> exp.Expr:
    """Return whether the subquery has its row: it has one unless HAVING says no."""
    if query.args.get("having") is None:
        return exp.true()
    made = query.copy()
    made.set("expressions", [exp.Literal.number(1)])
    return exp.paren(exp.not_(exp.Is(this=exp.Subquery(this=made), expression=exp.Null()), copy=False), copy=False)


def _row_in(context: Context, node: exp.In) -> exp.Expr:
    """``(a, b) IN (SELECT MAX(x), COUNT(*) …)``."""
    found = node.args["query"]
    query = found.this if isinstance(found, exp.Subquery) else found
    values = node.this.expressions
    if not is_whole(context, query) or len(query.expressions) != len(values):
        return node
    equal = []
    for value, item in zip(values, query.expressions, strict=True):
        made = query.copy()
        made.set("expressions", [item.copy()])
        equal.append(exp.EQ(this=value.copy(), expression=exp.Subquery(this=made)))
    return exp.paren(exp.and_(*equal, copy=False), copy=False)


__all__ = ["WholeRow", "is_whole", "names_around", "whole_row", "without_predicates"]
