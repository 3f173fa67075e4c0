"""``CURRENT_WATERMARK(ts)`` in SELECT and WHERE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.jobs.keyed import shuffled
from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.scope import Column, Relation, resolve, standing_for, unused_name
from headrace_sql.operators.current_watermark import CurrentWatermark


def _is_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() == "CURRENT_WATERMARK"


def with_watermarks(
    context: Context, node: exp.Select, relation: Relation, conditions: Sequence[exp.Expr]
) -> tuple[Relation, exp.Select, list[exp.Expr]]:
    """Return the query with columns in the place of these calls. Raises ExpressionError for one of another column."""
    if not any(_is_call(each) for part in (*node.expressions, *conditions) for each in part.walk()):
        return relation, node, list(conditions)
    made: dict[str, Column] = {}

    def column_of(part: exp.Expr) -> exp.Expr:
        nonlocal relation
        if not _is_call(part):
            return part
        arguments = part.expressions
        found = (
            resolve(relation, arguments[0], context.text)[0]
            if len(arguments) == 1 and isinstance(arguments[0], exp.Column)
            else None
        )
        if found is None or found.time != "event":
            raise context.error(
                part, "CURRENT_WATERMARK takes an event-time attribute", "declare WATERMARK FOR it in its table"
            )
        if found.physical not in made:
            target = unused_name("__watermark", relation.schema)
            stream = shuffled(relation.stream, ()).apply(CurrentWatermark(found.physical, target))
            made[found.physical] = Column(target, target, hidden=True)
            relation = replace(relation, stream=stream, columns=(*relation.columns, made[found.physical]), base=None)
        return standing_for(made[found.physical], part)

    changed = node.copy()
    changed.set("expressions", [each.transform(column_of) for each in node.expressions])
    kept = [each.transform(column_of) for each in conditions]
    return relation, changed, kept
