"""Parts of an expression: conditions that AND joins, columns, aggregates."""

from __future__ import annotations

from typing import Any

from headrace.interfaces.functions import AggregateFunction
from sqlglot import exp

from headrace_sql.reading import nodes


def names_columns(node: exp.Expr) -> bool:
    """Return whether an expression holds columns or queries: then it is no constant."""
    return any(isinstance(each, exp.Column | exp.Query | exp.Window | exp.Star) for each in node.walk())


AGGREGATES = frozenset({
    "COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LISTAGG", "STDDEV_POP", "STDDEV_SAMP", "STDDEV",
    "VAR_POP", "VAR_SAMP", "VARIANCE", "COLLECT", "ARRAY_AGG", "CONCAT_AGG", "ANY_VALUE", "APPROX_COUNT_DISTINCT", "STRING_AGG",
    "PERCENTILE",
})  # fmt: skip


#: What may stand between OVER and the function that it is of.
AROUND_CALL = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """Return the parts of a condition that AND joins."""
    if node is None:
        return []
    while isinstance(node, exp.Paren) and not isinstance(node.this, exp.Or):
        node = node.this
    if isinstance(node, exp.And):
        return [*conjuncts(node.left), *conjuncts(node.right)]
    if isinstance(node, exp.Between):
        low, high = node.args["low"], node.args["high"]
        return [exp.GTE(this=node.this, expression=low), exp.LTE(this=node.this.copy(), expression=high)]
    return [node]


def own_columns(node: exp.Expr) -> list[exp.Column]:
    """Return the columns that an expression names."""
    return [each for each in node.find_all(exp.Column) if not isinstance(each.this, exp.Star)]


def is_aggregate(node: exp.Expr, functions: Any) -> bool:
    """Return whether a node is the call of an aggregate function, built in or the user's."""

    if isinstance(node, exp.Filter):
        return is_aggregate(node.this, functions)
    if isinstance(node, nodes.JsonCall):
        return node.is_aggregate
    if not isinstance(node, exp.Anonymous):
        return False
    name = node.name
    return name.upper() in AGGREGATES or isinstance(functions.get(name.lower()), AggregateFunction)


def given_to_over(window: exp.Window) -> list[exp.Expr]:
    """Return what OVER looks at: arguments and FILTER of its function, partition and order. There aggregates are those of the groups."""
    call, given = window.this, []
    while isinstance(call, AROUND_CALL):
        given += [each for each in call.iter_expressions() if each is not call.this]
        call = call.this
    order = window.args.get("order")
    return [
        *given,
        *call.iter_expressions(),
        *(window.args.get("partition_by") or ()),
        *(order.expressions if order else ()),
    ]


def aggregates_in(node: exp.Expr, functions: Any) -> list[exp.Expr]:
    """Return the calls of aggregate functions in an expression, outermost first, but none in subqueries or behind OVER."""
    if isinstance(node, exp.Window | exp.Select | exp.Subquery):
        return []
    if is_aggregate(node, functions):
        return [node]
    found: list[exp.Expr] = []
    for child in node.iter_expressions():
        found += aggregates_in(child, functions)
    return found
