"""Scalar subqueries: ``(SELECT MAX(v) FROM t)`` as a value in SELECT, WHERE and HAVING.

Each becomes a column of the rows around it, by a LEFT JOIN with the subquery's one row (or, where conditions in it name columns
of the query around, with the row of their values). As in Flink, the rows are kept, and returned again when the value changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.expression_parts import aggregates_in, conjuncts
from headrace_sql.binding.scope import Column, Relation, knows, standing_for, unused_name
from headrace_sql.binding.trees import physical, text_of
from headrace_sql.compiling.join_sides import joined_sides
from headrace_sql.compiling.ordering import row_bounds
from headrace_sql.compiling.outer_columns import names_outer, of_outer, outer_keys
from headrace_sql.compiling.predicates import as_scalars
from headrace_sql.compiling.sides import Sides, sides_of
from headrace_sql.compiling.whole_rows import names_around, whole_row, without_predicates
from headrace_sql.operators.single_value import SingleValue
from headrace_sql.reading.nodes import with_parts

_HINT = "aggregate it without GROUP BY, as in (SELECT MAX(x) FROM t), or end it with ORDER BY … LIMIT 1"


def scalars_in(node: exp.Expr) -> list[exp.Subquery]:
    """Return the scalar subqueries of an expression, outermost first: not those of IN and EXISTS."""
    if isinstance(node, exp.Subquery):
        return [node]
    if isinstance(node, exp.Query | exp.Exists):
        return []
    found: list[exp.Subquery] = []
    for key, value in node.args.items():
        if isinstance(node, exp.In) and key == "query":
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, exp.Expr):
                found += scalars_in(each)
    return found


def with_scalars(
    context: Context, relation: Relation, nodes: Sequence[exp.Expr], outer: Relation | None = None
) -> tuple[Relation, list[exp.Expr], list[Column]]:
    """Return the relation with a column for each scalar subquery, the expressions that name those columns, and the columns.

    ``outer`` is what subqueries may name columns of, when that is not the relation: None for nothing.
    """
    made: list[exp.Expr] = []
    columns: list[Column] = []
    for node in nodes:
        found = scalars_in(node)
        if not found:
            made.append(node)
            continue
        replaced: dict[int, exp.Expr] = {}
        for each in found:
            relation, added, value = _attached(context, relation, each, outer)
            columns += added
            replaced[id(each)] = value
        made.append(with_parts(node, replaced))
    return relation, made, columns


def _attached(
    context: Context, relation: Relation, node: exp.Subquery, outer: Relation | None
) -> tuple[Relation, list[Column], exp.Expr]:
    """Return the relation with the value of one subquery, the columns added, and the expression of the value."""
    query = node.unnest()
    whole = whole_row(context, query)
    asked = query if whole is None else whole.query
    found: Relation | None = None
    keys: list[exp.Expr] = []
    if outer is not None and isinstance(asked, exp.Select):
        found, keys = _by_outer_values(context, asked, outer)
    if found is None:
        found = context.query(asked) if whole is not None else _one_row(context, node, query)
    relation, columns = _beside(context, relation, found, keys, node)
    if whole is None:
        return relation, columns, standing_for(columns[0], node)
    around: dict[int, exp.Expr] = {}
    for each in names_around(context, whole):
        if outer is None or not knows(outer, each):
            raise context.error(each, f"unknown column {each.name!r}")
        around[id(each)] = of_outer(context, each, outer)
    value = whole.with_columns(columns, around)
    if value.find(exp.Query) is None:
        return relation, columns, value

    known = replace(relation, columns=(*(() if outer is None else outer.columns), *columns))
    value = as_scalars(context, without_predicates(context, value), known)
    relation, (value,), more = with_scalars(context, relation, [value], known)
    return relation, [*columns, *more], value


def _beside(
    context: Context, relation: Relation, found: Relation, keys: Sequence[exp.Expr], node: exp.Subquery
) -> tuple[Relation, list[Column]]:
    """Return the relation with the values of a subquery as columns, by its keys, which are its last columns."""
    count = len(found.columns) - len(keys)
    name = unused_name("__scalar", [*relation.schema, *(c.physical for c in relation.columns)])
    names = [name, *(f"{name}_{index}" for index in range(1, count))]
    texts = {each: text_of(physical(c.physical)) for each, c in zip(names, found.columns, strict=False)}
    texts |= {f"{name}_key_{index}": text_of(physical(c.physical)) for index, c in enumerate(found.columns[count:])}
    if not keys:
        texts[f"{name}_one"] = "1"
        relation = replace(relation, stream=relation.stream.with_columns(__one="1"))
        relation = replace(relation, columns=(*relation.columns, Column("__one", "__one", hidden=True)))
    right = Relation(found.stream.select(**texts), tuple(Column(each, each, hidden=True) for each in texts))
    sides = sides_of(relation, right, "")
    pairs = keys or [standing_for(relation.columns[-1])]
    on: list[exp.Expr] = [
        exp.EQ(this=mine, expression=standing_for(column))
        for mine, column in zip(pairs, sides.right.columns[count:], strict=True)
    ]
    columns = relation.columns if keys else relation.columns[:-1]
    both = Sides(sides.left, sides.right, sides.both)
    result = joined_sides(context, both, on, "left", node)
    kept = [*(c.physical for c in columns if c.physical in relation.schema), *names]
    stream = result.stream.select(*dict.fromkeys(text_of(physical(each)) for each in kept))
    after = {c.physical: c for c in result.columns}
    plain = tuple(replace(c, time=after[c.physical].time) if c.physical in after else c for c in columns)
    added = [Column(each, each, hidden=True) for each in names]
    return replace(relation, stream=stream, columns=(*plain, *added), base=None), added


def _one_row(context: Context, node: exp.Subquery, query: exp.Expr) -> Relation:
    """Return the relation of a subquery that has one row at most. Raises ExpressionError for another."""
    found = context.settled(query, context.query(query))
    if len(found.columns) != 1:
        raise context.error(node, f"a subquery in an expression must return one column, not {len(found.columns)}")
    single = False
    if isinstance(query, exp.Select):
        group = query.args.get("group")
        aggregates = any(aggregates_in(each, context.catalog.functions) for each in query.expressions)
        single = (aggregates and group is None) or row_bounds(context, query)[0] == 1
    if single:
        return found
    alias = exp.TableAlias(this=exp.to_identifier("__subquery"), columns=[exp.to_identifier("__value")])
    around = exp.Select(
        expressions=[exp.column(exp.to_identifier("__value"))],
        from_=exp.From(this=exp.Subquery(this=query.copy(), alias=alias)),
    )
    return _single(context, around, query)


def _by_outer_values(context: Context, query: exp.Select, outer: Relation) -> tuple[Relation | None, list[exp.Expr]]:
    """Return the values of a correlated subquery by its keys, and the outer expressions they equal; None if it is not correlated.

    ``(SELECT SUM(v) FROM t WHERE t.k = o.k AND …)`` becomes ``SELECT SUM(v), k FROM t WHERE … GROUP BY k``.
    """
    if query.args.get("from_") is None or query.args.get("where") is None:
        return None, []

    conditions = conjuncts(query.args["where"].this)
    own, rest = context.from_clause(query, list(conditions))
    del rest
    outside = [each for each in conditions if names_outer(each, own, outer)]
    if not outside:
        return None, []
    if query.args.get("group") is not None or query.args.get("limit") is not None:
        raise context.error(query, "this subquery uses columns of the outer query, which is not supported here", _HINT)
    is_aggregate = any(aggregates_in(each, context.catalog.functions) for each in query.expressions)
    if not is_aggregate and len(query.expressions) != 1:
        raise context.error(query, f"a subquery in an expression must return one column, not {len(query.expressions)}")
    inner, keys = outer_keys(context, outside, own, outer)
    made = query.copy()
    left = [each.copy() for each in conditions if not any(each is one for one in outside)]
    made.set("where", exp.Where(this=exp.and_(*left, copy=False)) if left else None)
    made.set("group", exp.Group(expressions=[each.copy() for each in inner]))
    for index, each in enumerate(inner):
        made.append("expressions", exp.Alias(this=each.copy(), alias=exp.to_identifier(f"__key_of_{index}")))
    return (context.query(made) if is_aggregate else _single(context, made, query)), keys


def _single(context: Context, query: exp.Select, original: exp.Expr) -> Relation:
    """Return the one value of a subquery without aggregates (per key, where it has keys): several rows end the job."""
    item = query.expressions[0]
    value = exp.Anonymous(this="FIRST_VALUE", expressions=[item.this if isinstance(item, exp.Alias) else item])
    count = exp.Anonymous(this="COUNT", expressions=[exp.Star()])
    made = query.copy()
    columns = [exp.Alias(this=value, alias=exp.to_identifier("__single_value")), *query.expressions[1:]]
    made.set("expressions", [*columns, exp.Alias(this=count, alias=exp.to_identifier("__single_rows"))])
    found = context.query(made)
    stream = found.stream.apply(SingleValue(found.columns[-1].physical, original.sql(dialect="flink")))
    return replace(found, stream=stream, columns=found.columns[:-1])
