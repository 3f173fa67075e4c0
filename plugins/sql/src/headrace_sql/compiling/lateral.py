"""``FROM u, LATERAL (SELECT … FROM t WHERE t.k = u.k) AS x``: a derived table that names columns of the tables before it.

It becomes a join. Where the query aggregates, or takes the first rows or different rows, it does so for each value that its
conditions compare with the tables before it: these conditions must be equalities then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headrace.foundation.errors import ExpressionError
from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.expression_parts import aggregates_in, conjuncts
from headrace_sql.binding.expressions import part_key
from headrace_sql.binding.scope import Column, Relation, knows, standing_for, unused_name
from headrace_sql.compiling.join_sides import joined_sides
from headrace_sql.compiling.ordering import PARTITION
from headrace_sql.compiling.outer_columns import names_outer, of_outer, outer_keys
from headrace_sql.compiling.sides import sides_of


@dataclass
class _Carried:
    """Expressions of the derived table that its join needs beside what its SELECT lists, and the place of each."""

    items: list[exp.Expr] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def place_of(self, key: str, node: exp.Expr) -> int:
        if key not in self.places:
            self.places[key] = len(self.items)
            self.items.append(node)
        return self.places[key]


def lateral(context: Context, left: Relation, join: exp.Join) -> Relation:
    """Return the relation of a join with ``LATERAL (SELECT …)``. Raises ExpressionError."""
    try:
        return _lateral(context, left, join)
    except ExpressionError as error:
        if any(f"unknown table or column {table!r}" in error.message for table in left.tables()):
            error.hint = "only WHERE and SELECT of LATERAL (SELECT …) itself name columns of the tables before it"
        raise


def _lateral(context: Context, left: Relation, join: exp.Join) -> Relation:
    item = join.this
    side = (join.side or "").upper()
    if side in ("RIGHT", "FULL"):
        raise context.error(item, "LATERAL (SELECT …) can be joined by INNER, CROSS or LEFT JOIN")
    query = item.this.unnest()
    if not isinstance(query, exp.Select):
        raise context.error(
            item, "LATERAL takes a SELECT", "write UNION and other set operations in a derived table inside the SELECT"
        )
    if query.args.get("from_") is None:
        raise context.error(
            query, "a SELECT without FROM has no rows to read", "write the expression in the outer SELECT"
        )
    conditions = conjuncts(query.args["where"].this if query.args.get("where") else None)
    own, _ = context.from_clause(query, list(conditions))
    outside = [each for each in conditions if names_outer(each, own, left)]
    inside = [each for each in conditions if not any(each is one for one in outside)]
    late = {index for index, each in enumerate(query.expressions) if names_outer(each, own, left)}
    carried, pairs = _Carried(), list[exp.Expr]()
    if _collects(context, query):
        if late:
            raise context.error(
                query, "LATERAL (SELECT …) with aggregates, DISTINCT or LIMIT can use columns of the outer query only in WHERE",
                "compute with them in the outer SELECT",
            )  # fmt: skip
        inner, pairs = outer_keys(context, outside, own, left)
        carried.items = inner
    places = [_carry(context, each, own, carried) for each in (outside if not pairs else [])]
    late_places = {index: _carry(context, query.expressions[index], own, carried) for index in late}
    made = _query_with(query, inside, carried, late, grouped=bool(pairs))
    found = context.query(made)
    return _joined(context, left, join, query, found, _Plan(carried, pairs, outside, places, late_places, own))


@dataclass(frozen=True)
class _Plan:
    carried: _Carried
    #: Outer expressions that equal the first carried items.
    pairs: Sequence[exp.Expr]
    outside: Sequence[exp.Expr]
    places: Sequence[dict[str, int]]
    #: Items of SELECT that name outer columns: computed behind the join.
    late: dict[int, dict[str, int]]
    own: Relation


def _collects(context: Context, query: exp.Select) -> bool:
    """Return whether a query makes its rows of several: then it does so per value of the columns around it."""
    if any(query.args.get(key) for key in ("group", "having", "distinct", "limit", "order", "offset")):
        return True
    return any(aggregates_in(each, context.catalog.functions) or each.find(exp.Window) for each in query.expressions)


def _carry(context: Context, node: exp.Expr, own: Relation, carried: _Carried) -> dict[str, int]:
    """Let the derived table's columns in an expression be carried; returns where each is."""
    made = {}
    for column in node.find_all(exp.Column):
        if knows(own, column):
            key = part_key(own, column, context.text)
            made[key] = carried.place_of(key, column)
    return made


def _query_with(
    query: exp.Select, inside: Sequence[exp.Expr], carried: _Carried, late: set[int], *, grouped: bool
) -> exp.Select:
    """Return the derived table without its outer conditions, with the columns that they need at the end of its SELECT."""
    made = query.copy()
    made.set("where", exp.Where(this=exp.and_(*(each.copy() for each in inside), copy=False)) if inside else None)
    made.set("expressions", [each.copy() for index, each in enumerate(query.expressions) if index not in late])
    names = [f"__lateral_{index}" for index in range(len(carried.items))]
    is_windowed = any(each.find(exp.Window) for each in query.expressions)
    has_group = query.args.get("group") is not None or query.args.get("having") is not None
    if grouped and not is_windowed and (has_group or not (query.args.get("limit") or query.args.get("distinct"))):
        group = made.args.get("group") or exp.Group(expressions=[])
        group.set("expressions", [*group.expressions, *(each.copy() for each in carried.items)])
        made.set("group", group)
    if grouped and query.args.get("limit") is not None:
        made.meta[PARTITION] = names
    for window in made.find_all(exp.Window) if grouped else ():
        window.set("partition_by", [*(window.args.get("partition_by") or ()), *(each.copy() for each in carried.items)])
    for name, each in zip(names, carried.items, strict=True):
        made.append("expressions", exp.Alias(this=each.copy(), alias=exp.to_identifier(name)))
    return made


def _joined(
    context: Context, left: Relation, join: exp.Join, query: exp.Select, found: Relation, plan: _Plan
) -> Relation:
    item = join.this
    alias = item.args.get("alias")
    table = alias.name if alias is not None else None
    names = [each.name for each in (alias.args.get("columns") or ())] if alias is not None else []
    count = len(plan.carried.items)
    cut = len(found.columns) - count
    hidden = tuple(replace(each, hidden=True, table=None) for each in found.columns[cut:])
    given = replace(found, columns=found.columns[:cut])
    if names and len(names) != cut + len(plan.late):
        raise context.error(item, f"{len(names)} names for {cut + len(plan.late)} columns")
    early = [name for index, name in enumerate(names) if index not in plan.late]
    right = given.named(table, early)
    right = replace(right, columns=(*right.columns, *hidden))
    sides = sides_of(left, right, table or "lateral")
    columns = sides.right.columns[cut:]
    on = [each for each in conjuncts(join.args.get("on")) if not (isinstance(each, exp.Boolean) and each.this)]
    for mine, other in zip(plan.pairs, columns, strict=False):
        on.append(exp.EQ(this=mine, expression=standing_for(other)))
    for each, places in zip(plan.outside, plan.places, strict=False):
        on.append(_of_both(context, each, plan.own, left, {key: columns[place] for key, place in places.items()}))
    how = "left" if (join.side or "").upper() == "LEFT" else "inner"
    made = joined_sides(context, sides, on, how, item)
    shown = list(made.columns[: len(left.columns) + cut])
    if not plan.late:
        return replace(made, columns=tuple(shown))
    if how == "left":
        raise context.error(
            item,
            "LEFT JOIN LATERAL (SELECT …) can use columns of the outer query only in WHERE",
            "compute with them in the outer SELECT",
        )
    return _with_late(context, made, left, query, plan, (shown, list(columns), names, table))


def _with_late(
    context: Context, made: Relation, left: Relation, query: exp.Select, plan: _Plan,
    shape: tuple[list[Column], list[Column], list[str], str | None],
) -> Relation:  # fmt: skip
    """Compute the items that name columns of both sides."""
    shown, columns, names, table = shape
    stream = made.stream
    for index in sorted(plan.late):
        item = query.expressions[index]
        node = item.this if isinstance(item, exp.Alias) else item
        meant = {key: columns[place] for key, place in plan.late[index].items()}
        name = names[index] if names else item.alias_or_name or f"EXPR${index}"
        target = unused_name(name, stream.schema or {})
        text = context.translator(replace(made, stream=stream)).sql(_of_both(context, node, plan.own, left, meant))
        stream = stream.with_columns(**{target: text})
        shown.insert(len(left.columns) + index, Column(name, target, table))
    return replace(made, stream=stream, columns=tuple(shown))


def _of_both(context: Context, node: exp.Expr, own: Relation, outer: Relation, meant: dict[str, Column]) -> exp.Expr:
    """Return an expression whose columns are those of the join, the derived table's names first."""

    def fixed(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column) or not knows(own, part):
            return part
        return standing_for(meant[part_key(own, part, context.text)], part)

    return of_outer(context, node.transform(fixed), outer)


__all__ = ["lateral"]
