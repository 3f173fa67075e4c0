"""FOR SYSTEM_TIME AS OF: lookups of dimension tables in processing time, versions of a table in event time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.keyed import joined
from headrace.plan import OperatorNode, ShuffleNode, SourceNode, UnionNode
from headrace.schema import Schema
from sqlglot import exp

from headrace_sql.expressions import text_of
from headrace_sql.joins import replace_sides, residual, sides_of, split_condition, touches
from headrace_sql.lookup import Lookup
from headrace_sql.query import is_updating
from headrace_sql.scope import Relation, resolve
from headrace_sql.sources import named_table
from headrace_sql.temporal_join import TemporalJoin

if TYPE_CHECKING:
    from headrace_sql.query import QueryCompiler


def temporal(
    compiler: QueryCompiler, left: Relation, item: exp.Table, version: exp.Version, on: list[exp.Expr], how: str
) -> Relation:
    """Return the relation of ``JOIN t FOR SYSTEM_TIME AS OF moment AS x ON …``."""
    if how not in ("inner", "left"):
        raise compiler.error(item, "FOR SYSTEM_TIME AS OF goes with INNER and LEFT JOIN only")
    if not on:
        raise compiler.error(item, "FOR SYSTEM_TIME AS OF needs a condition in ON")
    moment = version.expression
    time, column = _moment(compiler, left, moment)
    right = named_table(compiler, item).named(item.alias_or_name)
    if time == "processing":
        return _looked_up(compiler, left, right, item, on, how)
    return _versioned(compiler, left, right, item, on, how, column)


def _moment(compiler: QueryCompiler, left: Relation, node: exp.Expr) -> tuple[str, str]:
    if isinstance(node, exp.Anonymous) and node.name.upper() == "PROCTIME":
        return "processing", ""
    if isinstance(node, exp.Column):
        column, fields = resolve(left, node, compiler.text)
        if column.time is not None and not fields:
            return column.time, column.physical
    raise compiler.error(node, "FOR SYSTEM_TIME AS OF takes a time attribute of the left table, or PROCTIME()")


def _looked_up(
    compiler: QueryCompiler, left: Relation, right: Relation, item: exp.Table, on: list[exp.Expr], how: str
) -> Relation:
    _check_readable(compiler, right, item)
    sides = sides_of(left, right, item.alias_or_name)
    own = [each for each in on if touches(compiler, sides, each) == "right"]
    sides = replace_sides(sides, sides.left, compiler.where(sides.right, own))
    sides = split_condition(compiler, sides, [each for each in on if each not in own])
    condition = residual(compiler, sides)
    schema = Schema(sides.right.schema)
    spec = Lookup(
        sides.right.stream._edge, schema, tuple(sides.keys), how, condition, functions=compiler.catalog.functions
    )
    return Relation(sides.left.stream.apply(spec), (*sides.left.columns, *sides.right.columns))


def _check_readable(compiler: QueryCompiler, right: Relation, item: exp.Table) -> None:
    """Raise unless the table can be read as a whole: it comes from its source through stateless operators."""
    edges: list[Any] = [right.stream._edge]
    while edges:
        node = edges.pop().node
        if isinstance(node, ShuffleNode) or not isinstance(node, SourceNode | OperatorNode | UnionNode):
            raise compiler.error(item, f"{item.name!r} is aggregated or joined: only a plain table can be looked up")
        edges += node.inputs


def _versioned(
    compiler: QueryCompiler, left: Relation, right: Relation, item: exp.Table, on: list[exp.Expr], how: str, time: str
) -> Relation:
    table = compiler.catalog.tables.get(right.base or "")
    if right.version_stream is not None:
        right = replace(right, stream=right.version_stream)
    elif table is None or not table.primary_key:
        raise compiler.error(
            item,
            f"{item.name!r} has no versions",
            "give it a PRIMARY KEY and a WATERMARK, or a view with ROW_NUMBER() … ORDER BY t DESC … = 1",
        )
    event = [c for c in right.columns if c.time == "event"]
    if not event or is_updating(right) or is_updating(left):
        raise compiler.error(
            item, f"{item.name!r} needs an event-time column, and rows that are only added, on both sides"
        )
    right = replace(right, version_key=(), version_stream=None)
    sides = split_condition(compiler, sides_of(left, right, item.alias_or_name), on)
    if not sides.keys:
        raise compiler.error(item, "FOR SYSTEM_TIME AS OF needs an equality on the version's key in ON")
    condition = residual(compiler, sides)
    right_time = next(c.physical for c in sides.right.columns if c.time == "event")
    spec = TemporalJoin(
        Schema(sides.left.schema), Schema(sides.right.schema), tuple(sides.keys), (time, right_time), how, condition,
        functions=compiler.catalog.functions,
    )  # fmt: skip
    stream = joined(sides.left.stream, sides.right.stream, sides.keys, spec, "temporal_join")
    plain = tuple(replace(c, time=None) for c in sides.right.columns)
    return Relation(stream, (*sides.left.columns, *plain))


__all__ = ["temporal", "text_of"]
