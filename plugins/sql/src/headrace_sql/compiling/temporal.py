"""FOR SYSTEM_TIME AS OF: lookups of dimension tables in processing time, versions of a table in event time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from headrace.flow.schema import Schema
from headrace.jobs.keyed import joined, shuffled
from headrace.plan.graph import OperatorNode, ShuffleNode, SourceNode, UnionNode
from headrace_dimension.lookup_join import LookupJoin
from sqlglot import exp

from headrace_sql.binding import connectors
from headrace_sql.binding.context import Context
from headrace_sql.binding.scope import Column, Relation, is_updating, resolve
from headrace_sql.binding.trees import physical, text_of
from headrace_sql.compiling.from_items import named_table
from headrace_sql.compiling.join_sides import residual, split_condition
from headrace_sql.compiling.sides import Sides, replace_sides, sides_of, touches
from headrace_sql.operators.looked_up_rows import FOUND, TAG, LookedUpRows, TagRows
from headrace_sql.operators.lookup import Lookup
from headrace_sql.operators.temporal_join import TemporalJoin


def temporal(
    context: Context, left: Relation, item: exp.Table, version: exp.Version, on: list[exp.Expr], how: str
) -> Relation:
    """Return the relation of ``JOIN t FOR SYSTEM_TIME AS OF moment AS x ON …``."""
    if how not in ("inner", "left"):
        raise context.error(item, "FOR SYSTEM_TIME AS OF is supported only for INNER JOIN and LEFT JOIN")
    if not on:
        raise context.error(item, "FOR SYSTEM_TIME AS OF needs a condition in ON")
    moment = version.expression
    time, column = _moment(context, left, moment)
    right = named_table(context, item).named(item.alias_or_name)
    if time == "processing":
        return _looked_up(context, left, right, item, on, how)
    return _versioned(context, left, right, item, on, how, column)


def _moment(context: Context, left: Relation, node: exp.Expr) -> tuple[str, str]:
    if isinstance(node, exp.Anonymous) and node.name.upper() == "PROCTIME":
        return "processing", ""
    if isinstance(node, exp.Column):
        column, fields = resolve(left, node, context.text)
        if column.time is not None and not fields:
            return column.time, column.physical
    raise context.error(node, "FOR SYSTEM_TIME AS OF needs a time attribute of the left table, or PROCTIME()")


def _looked_up(
    context: Context, left: Relation, right: Relation, item: exp.Table, on: list[exp.Expr], how: str
) -> Relation:
    one_source = _check_readable(context, right, item)
    sides = sides_of(left, right, item.alias_or_name)
    own = [each for each in on if touches(context, sides, each) == "right"]
    sides = replace_sides(sides, sides.left, context.where(sides.right, own))
    sides = split_condition(context, sides, [each for each in on if each not in own])
    condition = residual(context, sides)
    changing = is_updating(left)
    if changing:
        sides = _told_apart(sides)
    refresh = connectors.refresh_of(context.catalog.tables.get(right.base or ""))
    if sides.keys and condition is None and one_source:
        made = _joined_with_table(sides, "left" if changing else how, refresh)
        return _remembered(context, right, sides, made, how) if changing else made
    if refresh is not None:
        context.catalog.notices.append(
            f"table {item.name!r} is read once: only a table of one source, joined by equalities alone, is read anew"
        )
    schema = Schema(sides.right.schema)
    spec = Lookup(
        sides.right.stream.edge, schema, tuple(sides.keys), "left" if changing else how, condition,
        functions=context.catalog.functions,
    )  # fmt: skip
    made = Relation(sides.left.stream.apply(spec), (*sides.left.columns, *sides.right.columns))
    return _remembered(context, right, sides, made, how) if changing else made


def _told_apart(sides: Sides) -> Sides:
    """Return sides whose rows say which row of the left it is, and whether there was one of the right."""
    tag, found = Column(TAG, TAG, hidden=True), Column(FOUND, FOUND, hidden=True)
    left = replace(sides.left, stream=sides.left.stream.apply(TagRows()), columns=(*sides.left.columns, tag))
    right = sides.right.stream.with_columns(**{FOUND: "1"})
    return replace_sides(sides, left, replace(sides.right, stream=right, columns=(*sides.right.columns, found)))


def _remembered(context: Context, right: Relation, sides: Sides, made: Relation, how: str) -> Relation:
    """Return the lookup for rows that change: a result is retracted as it was returned, even if the table has changed since."""
    keys = tuple(dict.fromkeys(left for left, _ in sides.keys))
    left = [name for name in sides.left.schema if name != TAG]
    table = context.catalog.tables.get(right.base or "")
    by = {name for _, name in sides.keys}
    unique = table is not None and bool(table.primary_key) and set(table.primary_key) <= by
    spec = LookedUpRows(keys, left, inner=how == "inner", unique=unique)
    columns = tuple(each for each in made.columns if each.physical not in (TAG, FOUND))
    return replace(made, stream=shuffled(made.stream, keys).apply(spec), columns=columns)


def _joined_with_table(sides: Sides, how: str, refresh: timedelta | None) -> Relation:
    """Return a lookup by equal columns: of a table that processes on one machine share, and that may be read again."""
    keys = {f"__lookup_{index}": pair for index, pair in enumerate(sides.keys)}
    # The columns that are looked up do not come out of the join; for a row without partner they are NULL in SQL.
    table = sides.right.stream.with_columns(**{name: text_of(physical(right)) for name, (_, right) in keys.items()})
    on = {left: name for name, (left, _) in keys.items()}
    left, right = sides.left, sides.right
    if len(on) < len(keys):  # one column of the left side equals several of the right one
        copies = {f"__probe_{index}": text_of(physical(pair[0])) for index, pair in enumerate(sides.keys)}
        left = replace(left, stream=left.stream.with_columns(**copies))
        on = dict(zip(copies, keys, strict=True))
    spec = LookupJoin(table, on, how="left" if how == "left" else "inner", refresh=refresh)
    stream = left.stream.apply(spec)
    columns = (*sides.left.columns, *right.columns)
    kept = dict.fromkeys(c.physical for c in columns if c.physical in sides.left.schema or c.physical in right.schema)
    return Relation(stream.select(*(text_of(physical(name)) for name in kept)), columns)


def _check_readable(context: Context, right: Relation, item: exp.Table) -> bool:
    """Raise unless the table can be read as a whole: it comes from its source through stateless operators.

    Returns whether that is one source.
    """
    edges: list[Any] = [right.stream.edge]
    one_source = True
    while edges:
        node = edges.pop().node
        if isinstance(node, ShuffleNode) or not isinstance(node, SourceNode | OperatorNode | UnionNode):
            raise context.error(
                item, f"{item.name!r} is the result of an aggregation or join, and only a plain table can be looked up"
            )
        one_source &= not isinstance(node, UnionNode)
        edges += node.inputs
    return one_source


def _versioned(
    context: Context, left: Relation, right: Relation, item: exp.Table, on: list[exp.Expr], how: str, time: str
) -> Relation:
    table = context.catalog.tables.get(right.base or "")
    if right.version_stream is not None:
        right = replace(right, stream=right.version_stream)
    elif table is None or not table.primary_key:
        raise context.error(
            item,
            f"{item.name!r} has no versions",
            "give it a PRIMARY KEY and a WATERMARK, or a view with ROW_NUMBER() … ORDER BY t DESC … = 1",
        )
    event = [c for c in right.columns if c.time == "event"]
    if not event or is_updating(right) or is_updating(left):
        raise context.error(
            item, f"{item.name!r} needs an event-time column, and rows that are only added, on both sides"
        )
    right = replace(right, version_key=(), version_stream=None)
    sides = split_condition(context, sides_of(left, right, item.alias_or_name), on)
    if not sides.keys:
        raise context.error(item, "FOR SYSTEM_TIME AS OF needs an equality on the version's key in ON")
    condition = residual(context, sides)
    right_time = next(c.physical for c in sides.right.columns if c.time == "event")
    # A version of which the condition does not hold is none: of an outer join its columns are NULL.
    after, condition = (condition, None) if how == "left" else (None, condition)
    spec = TemporalJoin(
        Schema(sides.left.schema), Schema(sides.right.schema), tuple(sides.keys), (time, right_time), how, condition,
        functions=context.catalog.functions,
    )  # fmt: skip
    stream = joined(sides.left.stream, sides.right.stream, sides.keys, spec, "temporal_join")
    if after is not None:
        own = {name: f"CASE WHEN {after} THEN {text_of(physical(name))} END" for name in sides.right.schema}
        stream = stream.with_columns(**own)
    plain = tuple(replace(c, time=None) for c in sides.right.columns)
    return Relation(stream, (*sides.left.columns, *plain))
