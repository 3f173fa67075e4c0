"""The two sides of a join, with names that do not meet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.foundation.errors import ExpressionError
from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.expression_parts import own_columns
from headrace_sql.binding.scope import OUTSIDE, Relation, resolve, unused_name


@dataclass
class Sides:
    """The two relations of a join, with distinct names of columns, and properties of the condition."""

    left: Relation
    right: Relation
    both: Relation
    keys: list[tuple[str, str]] = field(default_factory=list)
    rest: list[exp.Expr] = field(default_factory=list)
    #: Whether only one side has its own watermark: it waits for the other side to end.
    has_one_watermark: bool = False


def sides_of(left: Relation, right: Relation, alias: str) -> Sides:
    """Return two relations whose physical columns are called differently."""
    taken = set(left.schema)
    names = {}
    for name in right.schema:
        target = name if name not in taken else unused_name(f"{alias or 'right'}__{name}", taken)
        taken.add(target)
        names[name] = target
    renamed = {old: new for old, new in names.items() if old != new}
    stream = right.stream.rename(renamed) if renamed else right.stream
    columns = tuple(replace(c, physical=names.get(c.physical, c.physical)) for c in right.columns)
    right = replace(right, stream=stream, columns=columns)
    both = Relation(left.stream, (*left.columns, *right.columns))
    return Sides(left, right, both)


def touches(context: Context, sides: Sides, node: exp.Expr) -> str:
    """Return which sides an expression reads: "left", "right", "both", "none", or "other" for columns of neither side."""
    left = {column.physical for column in sides.left.columns}
    found = set()
    for column in own_columns(node):
        if OUTSIDE in column.meta:
            return "other"
        try:
            meant, _ = resolve(sides.both, column, context.text)
        except ExpressionError:
            return "other"  # of the query around, or wrong: whoever compiles it says so
        found.add("left" if meant.physical in left and meant in sides.left.columns else "right")
    return found.pop() if len(found) == 1 else "both" if found else "none"


def replace_sides(sides: Sides, left: Relation, right: Relation) -> Sides:
    return Sides(left, right, Relation(left.stream, (*left.columns, *right.columns)), sides.keys, sides.rest)
