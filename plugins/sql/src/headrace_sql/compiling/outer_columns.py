"""Columns of the query around that a subquery names."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.scope import MEANT, OUTSIDE, Relation, knows, resolve, standing_for


def outer_keys(
    context: Context, outside: Sequence[exp.Expr], own: Relation, outer: Relation
) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """Return both sides of the correlated equalities: the subquery's and the outer query's. Raises ExpressionError."""
    inner: list[exp.Expr] = []
    keys: list[exp.Expr] = []
    for each in outside:
        if not isinstance(each, exp.EQ):
            raise context.error(each, "a subquery can use columns of the outer query only in equalities")
        sides = [each.left, each.right]
        if names_outer(each.left, own, outer):
            sides.reverse()
        if names_outer(sides[0], own, outer) or any(_is_inside(own, c) for c in sides[1].find_all(exp.Column)):
            raise context.error(
                each, "one side of this equality must belong to the subquery, the other one to the outer query"
            )
        inner.append(sides[0])
        keys.append(of_outer(context, sides[1], outer))
    return inner, keys


def names_outer(node: exp.Expr, own: Relation, outer: Relation) -> bool:
    """Return whether an expression of a subquery names columns of the query around it."""
    if node.find(exp.Query) is not None:
        return False
    return any(not _is_inside(own, column) and knows(outer, column) for column in node.find_all(exp.Column))


def _is_inside(own: Relation, column: exp.Column) -> bool:
    return OUTSIDE not in column.meta and knows(own, column)


def of_outer(context: Context, node: exp.Expr, outer: Relation) -> exp.Expr:
    """Return an expression whose columns are those of the query around, whatever their names mean inside."""

    def meant(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column):
            return part
        if MEANT in part.meta:
            return standing_for(part.meta[MEANT], part)
        column, fields = resolve(outer, part, context.text)
        made: exp.Expr = standing_for(column, part)
        for each in fields:
            made = exp.Dot(this=made, expression=each.copy())
        return made

    return node.transform(meant)
