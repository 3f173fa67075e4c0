"""Joins: regular ones, those within a time bound, lookups of dimension tables, temporal joins, table functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.expression_parts import conjuncts, own_columns
from headrace_sql.binding.scope import Column, Relation, knows, resolve, standing_for, unused_name
from headrace_sql.binding.trees import physical, text_of
from headrace_sql.compiling.correlate import correlated
from headrace_sql.compiling.from_items import from_item, pruned, windowed
from headrace_sql.compiling.join_sides import joined_sides
from headrace_sql.compiling.lateral import lateral
from headrace_sql.compiling.sides import Sides, replace_sides, sides_of, touches
from headrace_sql.compiling.temporal import temporal


def joined(
    context: Context,
    node: exp.Select,
    left: Relation,
    join: exp.Join,
    conditions: list[exp.Expr],
    *,
    pushes: bool,
) -> tuple[Relation, list[exp.Expr]]:
    """Return the relation of a join, and the conditions of WHERE that it has not used up.

    ``pushes``: conditions may be asked in the join or before it. Otherwise all of them are left for behind the joins, too.
    """
    item = join.this
    if join.args.get("match_condition") or (join.args.get("method") or "").upper() not in ("", "NATURAL"):
        raise context.error(item, "this kind of JOIN is not supported", "write ON a.x = b.x")
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if kind not in ("", "INNER", "CROSS", "OUTER"):
        raise context.error(item, f"{kind} JOIN is not supported", "use IN or EXISTS in WHERE")
    if isinstance(item, exp.Lateral | exp.Unnest):
        left, conditions = _bounded(context, left, conditions, pushes=pushes)
        left = _numbered(context, left)
        if isinstance(item, exp.Lateral) and isinstance(item.this, exp.Subquery):
            return lateral(context, left, join), conditions

        return correlated(context, left, join), conditions
    on = conjuncts(join.args.get("on"))
    version = item.args.get("version") if isinstance(item, exp.Table) else None
    is_using = bool(join.args.get("using") or join.args.get("method"))
    if is_using and version is not None:
        raise context.error(item, "FOR SYSTEM_TIME AS OF needs a condition in ON, not USING", "write ON a.x = b.x")
    how = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}[side]
    if how in ("inner", "left"):
        left, conditions = _bounded(context, left, conditions, pushes=pushes)
    if version is not None:
        left = _numbered(context, left)
        return temporal(context, left, item, version, on, how), conditions
    right = pruned(context, node, windowed(context, item, from_item(context, item)))
    if how in ("inner", "right"):
        right, conditions = _bounded(context, right, conditions, pushes=pushes)
    left, right = (_numbered(context, each) for each in (left, right))
    sides = sides_of(left, right, item.alias_or_name)
    on = [each for each in on if not (isinstance(each, exp.Boolean) and each.this)]
    pairs = _same_names(context, sides, join) if is_using else []
    on += [exp.EQ(this=standing_for(mine, item), expression=standing_for(other, item)) for mine, other in pairs]
    used: list[exp.Expr] = []
    if how == "inner" and pushes:
        used = [
            each for each in conditions if each.find(exp.Select) is None and touches(context, sides, each) == "both"
        ]
        on = [*on, *used]
    if pushes:
        moved: list[exp.Expr] = []
        sides, moved = _pushed(context, sides, [each for each in conditions if each not in used], how)
        used += moved
    left_conditions = [each for each in conditions if not any(each is one for one in used)]
    first = next(iter(node.args.get("joins") or ()), None)
    is_first = first is not None and first.this.alias_or_name == item.alias_or_name
    names = node.args["from_"].this.alias_or_name if is_first else None, item.alias_or_name
    made = joined_sides(context, sides, on, how, item, names=names)
    return (_with_one_of_each(made, pairs, how) if pairs else made), left_conditions


#: Comparisons: NULL when a value is NULL.
_COMPARISONS = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)


def _bounded(
    context: Context, side: Relation, conditions: list[exp.Expr], *, pushes: bool
) -> tuple[Relation, list[exp.Expr]]:
    """Make the Top-N of a side whose ROW_NUMBER() a condition of WHERE bounds: it comes before the join.

    Without ``pushes`` the conditions are asked behind an outer join again, where rows that they left out here may have made
    rows without a partner. So they must not be true of NULLs: comparisons of a column only.
    """
    if side.ranking is None:
        return side, conditions
    name = side.ranking.name
    mine = [each for each in conditions if _is_of(context, side, each) and (pushes or _is_untrue_of_null(each))]
    if not any(column.name == name for each in mine for column in own_columns(each)):
        return side, conditions
    if not pushes:
        return context.where(side, [each.copy() for each in mine]), conditions
    return context.where(side, mine), [each for each in conditions if not any(each is one for one in mine)]


def _is_untrue_of_null(condition: exp.Expr) -> bool:
    """Return whether a condition is a comparison of a column: where the column is NULL it is not true."""
    condition = condition.unnest()
    return isinstance(condition, _COMPARISONS) and any(
        isinstance(each.unnest(), exp.Column) for each in condition.iter_expressions()
    )


def _numbered(context: Context, side: Relation) -> Relation:
    ranking = side.ranking
    return side if ranking is None or not ranking.by_time else context.settled(exp.Select(), side)


def _is_of(context: Context, side: Relation, node: exp.Expr) -> bool:
    """Return whether a condition names columns of one side only."""
    columns = own_columns(node)
    return node.find(exp.Select) is None and bool(columns) and all(knows(side, each) for each in columns)


def _same_names(context: Context, sides: Sides, join: exp.Join) -> list[tuple[Column, Column]]:
    """Return the pairs of columns that ``USING (a, b)`` or NATURAL makes equal. Raises ExpressionError."""
    using = join.args.get("using")
    if using is None:
        right = {column.name for column in sides.right.columns if not column.hidden}
        names = [column.name for column in sides.left.columns if column.name in right and not column.hidden]
        if not names:
            raise context.error(
                join.this, "NATURAL JOIN: the sides have no column name in common", "write ON a.x = b.x"
            )
        using = [exp.column(exp.to_identifier(name, quoted=True)) for name in dict.fromkeys(names)]
    pairs = []
    for each in using:
        name = each if isinstance(each, exp.Column) else exp.column(each)
        pairs.append((resolve(sides.left, name, context.text)[0], resolve(sides.right, name, context.text)[0]))
    return pairs


def _with_one_of_each(relation: Relation, pairs: Sequence[tuple[Column, Column]], how: str) -> Relation:
    """Make one column of each pair, before all others: the one that is not NULL."""
    columns = list(relation.columns)
    stream, shown = relation.stream, []
    for mine, other in pairs:
        places = [next(i for i, c in enumerate(columns) if c.physical == each.physical) for each in (mine, other)]
        left, right = (columns[place] for place in places)
        if how == "full":
            name = unused_name(f"__using_{left.name}", relation.schema)
            both = [text_of(physical(each.physical)) for each in (left, right)]
            stream = stream.with_columns(**{name: f"coalesce({both[0]}, {both[1]})"})
            shown.append(Column(left.name, name))
        else:
            kept = right if how == "right" else left
            shown.append(replace(kept, name=left.name, table=None, hidden=False))
        for place in places:
            columns[place] = replace(columns[place], hidden=True)
    return replace(relation, stream=stream, columns=(*shown, *columns))


def _pushed(context: Context, sides: Sides, conditions: Sequence[exp.Expr], how: str) -> tuple[Sides, list[exp.Expr]]:
    """Let conditions of WHERE on one side filter before the join, where that keeps the result."""
    moved: list[exp.Expr] = []
    left, right = sides.left, sides.right
    for each in conditions:
        if each.find(exp.Select) is not None:
            continue
        where = touches(context, sides, each)
        if where == "left" and how in ("inner", "left") and left.ranking is None:
            left = context.where(left, [each])
            moved.append(each)
        elif where == "right" and how == "inner" and right.ranking is None:
            right = context.where(right, [each])
            moved.append(each)
    return replace_sides(sides, left, right), moved
