"""Scalar subqueries of a SELECT as columns of its rows."""

from __future__ import annotations

from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.expression_parts import aggregates_in
from headrace_sql.binding.scope import Relation
from headrace_sql.compiling.from_items import windowed
from headrace_sql.compiling.predicates import as_scalars, has_predicates
from headrace_sql.compiling.quantified import quantified_in
from headrace_sql.compiling.scalars import scalars_in, with_scalars
from headrace_sql.compiling.whole_rows import without_predicates
from headrace_sql.reading.nodes import with_parts


def with_subqueries(
    context: Context, node: exp.Select, relation: Relation, conditions: list[exp.Expr]
) -> tuple[Relation, exp.Select, list[exp.Expr]]:
    """Make columns of the scalar subqueries in WHERE, in SELECT, and where rows are grouped in the arguments of aggregates."""
    node = node.copy()
    conditions = [without_predicates(context, each) for each in conditions]
    node.set("expressions", [without_predicates(context, each) for each in node.expressions])
    if node.args.get("having") is not None:
        node.set("having", without_predicates(context, node.args["having"]))
    items: list[exp.Expr] = list(node.expressions)
    grouped = node.args.get("group") is not None or context.has_aggregates(node)
    if grouped:
        having = [node.args["having"]] if node.args.get("having") is not None else []
        calls = [call for each in (*items, *having) for call in aggregates_in(each, context.catalog.functions)]
        items = [call for call in calls if call.find(exp.Query) is not None]
    conditions = [
        as_scalars(context, each, relation, only_truth=True)
        if has_predicates(each) and not _is_predicate(each)
        else _with_plain_operand(context, each, relation)
        for each in conditions
    ]
    changed = [as_scalars(context, each, relation) if has_predicates(each) else each for each in items]
    if not any(scalars_in(each) for each in (*conditions, *changed)):
        return relation, node, conditions
    if relation.ranking is not None:
        # The rank is bounded first: the other conditions are applied to the rows of the Top-N.
        plain = [each for each in conditions if not scalars_in(each)]
        relation, conditions = context.where(relation, plain), [each for each in conditions if scalars_in(each)]
    relation = windowed(context, node, relation)
    relation, made, _ = with_scalars(context, relation, [*conditions, *changed], relation)
    if not items:
        return relation, node, made
    replaced = {id(each): part for each, part in zip(items, made[len(conditions) :], strict=True)}
    copy = node.copy()
    copy.set("expressions", [with_parts(each, replaced) for each in node.expressions])
    if grouped and node.args.get("having") is not None:
        copy.set("having", with_parts(node.args["having"], replaced))
    return relation, copy, made[: len(conditions)]


def _is_predicate(node: exp.Expr) -> bool:
    """Return whether a condition is one predicate with a subquery, or the negation of one: these become joins."""
    while isinstance(node, exp.Not | exp.Paren):
        node = node.this
    is_in = isinstance(node, exp.In) and node.args.get("query") is not None
    return is_in or isinstance(node, exp.Exists) or quantified_in(node) is not None


def _with_plain_operand(context: Context, condition: exp.Expr, relation: Relation) -> exp.Expr:
    """Return a predicate with a subquery whose compared value holds only scalar subqueries: ``CASE WHEN a IN (SELECT …) … END IN (…)``."""
    node = condition
    while isinstance(node, exp.Not | exp.Paren):
        node = node.this
    compared = node.args.get("this")
    if isinstance(node, exp.Exists) or not isinstance(compared, exp.Expr) or not has_predicates(compared):
        return condition
    return with_parts(condition, {id(compared): as_scalars(context, compared, relation)})
