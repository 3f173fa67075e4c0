"""QUALIFY: a condition on what OVER gives, after the SELECT."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.emitting import state_ttl
from headrace_sql.binding.expression_parts import aggregates_in, conjuncts, given_to_over
from headrace_sql.binding.scope import Relation
from headrace_sql.compiling.ordering import limited
from headrace_sql.compiling.sets import distinct

_ADDED = "__qualify_"


def qualified(context: Context, node: exp.Select) -> Relation:
    """Return a SELECT with QUALIFY: without it, with the values that its condition needs as further columns; then the rows kept.

    Raises ExpressionError if the condition has nothing to do with OVER.
    """
    inner = node.copy()
    clause = inner.args["qualify"]
    condition = exp.Paren(this=clause.this.copy())  # parts of it are replaced, maybe the whole
    if not condition.find(exp.Window) and not any(each.find(exp.Window) for each in inner.expressions):
        raise context.error(
            clause, "QUALIFY needs a condition on an OVER expression", "use WHERE, or HAVING after GROUP BY"
        )
    for key in ("qualify", "order", "limit", "offset", "distinct"):
        inner.set(key, None)
    _check_names(context, node, inner, condition)
    _with_values(inner, condition, context.catalog.functions)
    node, hidden = _with_order(context, node, inner)
    relation = context.where(context.query(inner), conjuncts(condition))
    # A Top-N may have left out the column of its number.
    relation = replace(relation, columns=tuple(c for c in relation.columns if not c.name.startswith(_ADDED)))
    if node.args.get("distinct") is not None:
        relation = distinct(relation, state_ttl(context.catalog.options))
    return limited(context, node, relation, hidden)


def _with_values(inner: exp.Select, condition: exp.Expr, functions: Any) -> None:
    """Add to a SELECT what a condition uses: windows, aggregates, and columns that it does not select yet."""
    aliases = {each.alias.lower(): each.this for each in inner.expressions if isinstance(each, exp.Alias)}
    given = {each.alias_or_name.lower() for each in inner.expressions}
    gives_all = any(each.is_star for each in inner.expressions)

    def added(part: exp.Expr) -> exp.Column:
        name = f"{_ADDED}{len(inner.expressions)}"
        value = part.copy()
        value.meta.update(part.meta)
        inner.append("expressions", exp.Alias(this=value, alias=exp.to_identifier(name)))
        return exp.column(exp.to_identifier(name, quoted=True))

    for aggregate in aggregates_in(condition, functions):
        aggregate.replace(added(aggregate))
    for window in list(condition.find_all(exp.Window)):
        aggregates = [call for each in given_to_over(window) for call in aggregates_in(each, functions)]
        # What aggregates of the groups are given are columns of the input, as in SELECT.
        of_input = {id(column) for call in aggregates for column in call.find_all(exp.Column)}
        for column in list(window.find_all(exp.Column)):
            if id(column) in of_input:
                continue
            meant = aliases.get(column.name.lower()) if not column.table else None
            if meant is not None:
                column.replace(exp.Paren(this=meant.copy()))
        window.replace(added(window))
    for column in list(condition.find_all(exp.Column)):
        is_given = column.name.startswith(_ADDED) or (not column.table and (gives_all or column.name.lower() in given))
        if not is_given and column.find_ancestor(exp.Query) is None:
            column.replace(added(column))


def _check_names(context: Context, node: exp.Select, inner: exp.Select, condition: exp.Expr) -> None:
    """Raise ExpressionError for a name that SELECT gives to several columns: which one is meant?"""
    parts = [condition, *(node.args["order"].expressions if node.args.get("order") else ())]
    times = Counter(each.alias_or_name.lower() for each in inner.expressions)
    for column in (found for part in parts for found in part.find_all(exp.Column)):
        if not column.table and times[column.name.lower()] > 1 and column.find_ancestor(exp.Query) in (None, node):
            raise context.error(
                column, f"column {column.name!r} is ambiguous", "give the columns of SELECT other names"
            )


def _with_order(context: Context, node: exp.Select, inner: exp.Select) -> tuple[exp.Select, int]:
    """Let a SELECT also give what only its ORDER BY names, as its last columns. Returns how many there are."""
    if node.args.get("order") is None:
        return node, 0
    shown = node.expressions
    aliases = {each.alias.lower(): each.this for each in shown if isinstance(each, exp.Alias)}
    given = {each.alias_or_name.lower() for each in shown}
    gives_all = any(each.is_star for each in shown)
    copy, count = node.copy(), 0
    for term, original in zip(copy.args["order"].expressions, node.args["order"].expressions, strict=True):
        columns = list(term.this.find_all(exp.Column))
        known = [not each.table and (gives_all or each.name.lower() in given) for each in columns]
        if all(known) and not term.find(exp.Window) and not aggregates_in(term.this, context.catalog.functions):
            continue
        if node.args.get("distinct") is not None:
            raise context.error(
                original, "ORDER BY of SELECT DISTINCT uses an expression that is not in SELECT", "add it to SELECT"
            )
        value = exp.Paren(this=term.this.copy())
        for column in list(value.find_all(exp.Column)):
            meant = aliases.get(column.name.lower()) if not column.table else None
            if meant is not None:
                column.replace(exp.Paren(this=meant.copy()))
        name = f"__order_by_{count}"
        inner.append("expressions", exp.Alias(this=value, alias=exp.to_identifier(name)))
        term.set("this", exp.column(exp.to_identifier(name, quoted=True)))
        count += 1
    return copy, count
