"""UNION, INTERSECT, EXCEPT and DISTINCT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.jobs.keyed import shuffled
from headrace_columnar.sql_types import common_type
from sqlglot import exp

from headrace_sql.binding.column_values import cast_to, value_of
from headrace_sql.binding.context import Context
from headrace_sql.binding.emitting import state_ttl
from headrace_sql.binding.scope import Column, Relation, is_updating, unused_name
from headrace_sql.binding.trees import physical, text_of
from headrace_sql.compiling.ordering import limited
from headrace_sql.operators.copies import Copies

if TYPE_CHECKING:
    import polars as pl


def set_operation(context: Context, node: exp.SetOperation) -> Relation:
    """Return the relation of UNION [ALL], INTERSECT [ALL] or EXCEPT [ALL], with the ORDER BY … LIMIT behind it."""
    return limited(context, node, _combined(context, node))


def _combined(context: Context, node: exp.SetOperation) -> Relation:
    sides = [context.settled(side, context.query(side)) for side in _operands(node)]
    for right in sides[1:]:
        _check_sides(context, node, sides[0], right)
    every = not node.args.get("distinct", True)
    if isinstance(node, exp.Union):
        made = united(sides)
        return made if every else distinct(made, state_ttl(context.catalog.options))
    how = "and" if isinstance(node, exp.Intersect) else "and not"
    return _counted(sides, how, state_ttl(context.catalog.options), every=every)


def _operands(node: exp.SetOperation) -> list[exp.Expr]:
    """Return the queries of a set operation: two, or those of a whole chain of UNION ALL, which is one union."""
    right: list[exp.Expr] = [node.right]
    left = node.left
    if isinstance(node, exp.Union) and not node.args.get("distinct", True):
        plain = {"this", "expression", "distinct", "by_name", "side", "kind", "on"}
        while (
            isinstance(left, exp.Union)
            and not left.args.get("distinct", True)
            and not any(value for name, value in left.args.items() if name not in plain)
        ):
            right.append(left.right)
            left = left.left
    return [left, *reversed(right)]


def _check_sides(context: Context, node: exp.SetOperation, left: Relation, right: Relation) -> None:
    if len(left.columns) != len(right.columns):
        raise context.error(
            node,
            f"{type(node).__name__.upper()}: one side has {len(left.columns)} columns, the other {len(right.columns)}",
        )
    for mine, other in zip(left.columns, right.columns, strict=True):
        pair = [value_of(side, c)[1] for side, c in ((left, mine), (right, other))]
        if common_type(pair[0], pair[1]) is None:
            raise context.error(
                node, f"column {mine.name!r} has types that cannot be combined: {pair[0]} and {pair[1]}"
            )


def _aligned(
    relations: Sequence[Relation], *, keeps_processing: bool = False
) -> tuple[list[Relation], tuple[Column, ...]]:
    """Return the relations with the columns of the first, by position, in common types.

    ``keeps_processing``: whether a column that is processing time on all sides stays that; else it is the time of the rows.
    """
    first = relations[0]
    names: list[str] = []
    kinds: list[pl.DataType] = []
    columns: list[Column] = []
    chosen: list[int] = []
    for index, column in enumerate(first.columns):
        times = {each.columns[index].time for each in relations}
        time = next(iter(times)) if len(times) == 1 else None
        name = unused_name(column.name, [c.physical for c in columns])
        if time == "processing" and keeps_processing:
            columns.append(Column(column.name, name, None, time))
            continue
        kind = value_of(first, column)[1]
        for other in relations[1:]:
            found = common_type(kind, value_of(other, other.columns[index])[1])
            kind = kind if found is None else found
        names.append(name)
        kinds.append(kind)
        chosen.append(index)
        columns.append(Column(column.name, name, None, None if time == "processing" else time))
    made = []
    for each in relations:
        texts = cast_to(each, [each.columns[index] for index in chosen], kinds, names)
        texts = texts or {"__row": "1"}
        same = list(each.schema) == list(texts) and all(texts[name] == text_of(physical(name)) for name in texts)
        stream = each.stream if same else each.stream.select(**texts)
        made.append(Relation(stream, tuple(columns)))
    return made, tuple(columns)


def united(relations: Sequence[Relation]) -> Relation:
    """Return UNION ALL of relations."""
    aligned, columns = _aligned(relations, keeps_processing=True)
    first, *others = (each.stream for each in aligned)
    if any(is_updating(each) for each in aligned):
        first, *others = (each.stream for each in _all_changing(aligned))
    return Relation(first.union(*others), columns)


def _all_changing(relations: Sequence[Relation]) -> Sequence[Relation]:
    return relations


def distinct(relation: Relation, options: Mapping[str, str]) -> Relation:
    """Return each row once. ``options`` are those of the operator: how long it remembers."""
    if any(c.time == "processing" for c in relation.columns):
        (relation,), _ = _aligned([relation])
    columns = [c for c in relation.columns if c.physical in relation.schema]
    names = list(dict.fromkeys(c.physical for c in columns))
    stream = relation.stream
    if set(names) != set(relation.schema):
        stream = stream.select(*[text_of(physical(name)) for name in names])
    if not is_updating(relation):
        return Relation(
            shuffled(stream, tuple(names)).operator("distinct", tuple(names), **options),
            tuple(columns),
            unique=(tuple(names),),
        )
    made = shuffled(stream, tuple(names)).operator("aggregate", tuple(names), {"__rows": "count(*)"}, **options)
    return Relation(made.select(*[text_of(physical(name)) for name in names]), tuple(columns))


def _counted(sides: Sequence[Relation], how: str, options: Mapping[str, str], *, every: bool) -> Relation:
    """INTERSECT and EXCEPT: count each row's appearances on both sides. NULL equals NULL here.

    With ``every`` (ALL) a row comes as often as on both sides, or as often as it is more often on the left.
    """
    aligned, columns = _aligned(sides)
    names = [column.physical for column in columns]
    marked = []
    for index, each in enumerate(aligned):
        stream = each.stream.with_columns(__left="1" if index == 0 else "0", __right="0" if index == 0 else "1")
        marked.append(stream)
    stream = marked[0].union(marked[1])
    counts = {"__in_left": 'sum("__left")', "__in_right": 'sum("__right")'}
    made = shuffled(stream, tuple(names)).operator("aggregate", tuple(names), counts, **options)
    if every:
        left, right = '"__in_left"', '"__in_right"'
        count = f"CASE WHEN {left} < {right} THEN {left} ELSE {right} END" if how == "and" else f"{left} - {right}"
        copied = made.select(*[text_of(physical(name)) for name in names], __copies_of=count).apply(
            Copies("__copies_of")
        )
        return Relation(copied, columns)
    condition = '"__in_left" > 0 AND "__in_right" ' + ("> 0" if how == "and" else "= 0")
    return Relation(made.where(condition).select(*[text_of(physical(name)) for name in names]), columns)
