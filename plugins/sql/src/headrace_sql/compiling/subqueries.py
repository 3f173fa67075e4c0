"""IN (SELECT …), EXISTS (SELECT …) and comparisons with ANY and ALL in WHERE, as semi and anti joins."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.emitting import state_ttl
from headrace_sql.binding.expression_parts import conjuncts
from headrace_sql.binding.scope import MEANT, Column, Relation, knows, resolve
from headrace_sql.compiling.from_items import windowed
from headrace_sql.compiling.join_sides import joined_streams, residual_trees, split_condition, with_one_watermark
from headrace_sql.compiling.outer_columns import names_outer, outer_keys
from headrace_sql.compiling.quantified import Quantified, quantified_in
from headrace_sql.compiling.sides import Sides, sides_of
from headrace_sql.compiling.window_join import in_windows, window_join

_OUTER, _INNER = "__outer", "__inner"


def filtered(context: Context, relation: Relation, condition: exp.Expr) -> Relation:
    """Keep the rows that a condition with a subquery lets through."""
    negated = False
    while isinstance(condition, exp.Not | exp.Paren):
        negated ^= isinstance(condition, exp.Not)
        condition = condition.this
    quantified = quantified_in(condition)
    if quantified is not None:
        return _compared(context, relation, quantified.negation() if negated else quantified)
    if isinstance(condition, exp.Exists):
        return _exists(context, relation, condition, negated=negated)
    if isinstance(condition, exp.In) and condition.args.get("query") is not None and not negated:
        query = condition.args["query"]
        return _tuple_in(context, relation, condition.this, query.this if isinstance(query, exp.Subquery) else query)
    raise context.error(
        condition,
        "this subquery is not supported here",
        "use x IN (SELECT …) or EXISTS (SELECT …), combined with other conditions by AND",
    )


def _compared(context: Context, relation: Relation, node: Quantified) -> Relation:
    """Keep the rows for which a comparison is true with one value of the subquery, or with all."""
    found, value_name, correlated = _inner(context, relation, node.query, as_value=True)
    sides = sides_of(_marked(relation, _OUTER), _marked(found, _INNER), _INNER)
    this = _qualified(context, node.this, None, relation)
    value = exp.column(exp.to_identifier(value_name), table=_INNER)
    node = replace(node, this=this)
    if not node.every:
        made = _joined(context, sides, [node.compared(value), *correlated], "semi")
        return _as_outside(relation, made)
    # x <> ALL (…), which is NOT IN: a row stays only when no comparison is false or unknown.
    sides = split_condition(context, sides, correlated)
    maybe = exp.Or(
        this=exp.Or(this=node.negation().compared(value), expression=exp.Is(this=this.copy(), expression=exp.Null())),
        expression=exp.Is(this=value.copy(), expression=exp.Null()),
    )
    sides.rest = [*sides.rest, maybe]
    return _as_outside(relation, _made(context, sides, "anti"))


def _tuple_in(context: Context, relation: Relation, values: exp.Tuple, query: exp.Expr) -> Relation:
    """``(a, b) IN (SELECT x, y …)``."""
    found = context.query(query)
    if len(found.columns) != len(values.expressions):
        raise context.error(
            query, f"the subquery of IN gives {len(found.columns)} columns, not {len(values.expressions)}"
        )
    names = [column.physical for column in found.columns]
    sides = sides_of(_marked(relation, _OUTER), _marked(found, _INNER), _INNER)
    equal: list[exp.Expr] = [
        exp.EQ(
            this=_qualified(context, value, None, relation),
            expression=exp.column(exp.to_identifier(name), table=_INNER),
        )
        for value, name in zip(values.expressions, names, strict=True)
    ]
    return _as_outside(relation, _joined(context, sides, equal, "semi"))


def _exists(context: Context, relation: Relation, node: exp.Exists, *, negated: bool) -> Relation:
    query = node.this.this if isinstance(node.this, exp.Subquery) else node.this
    found, _, correlated = _inner(context, relation, query, as_value=False)
    sides = sides_of(_marked(relation, _OUTER), _marked(found, _INNER), _INNER)
    return _as_outside(relation, _joined(context, sides, correlated, "anti" if negated else "semi"))


def _marked(relation: Relation, table: str) -> Relation:
    """Return the relation with its physical names as the only names of its columns."""
    real = [c for c in relation.columns if c.physical in relation.schema]
    return replace(relation, columns=tuple(replace(c, name=c.physical, table=table) for c in real))


def _qualified(context: Context, node: exp.Expr, inner: Relation | None, outer: Relation) -> exp.Expr:
    """Return an expression whose columns say which query they are of. The inner one comes first, as SQL says."""

    def renamed(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column):
            return part
        for relation, table in ((inner, _INNER), (outer, _OUTER)):
            if relation is None or not knows(relation, part):
                continue
            column, fields = resolve(relation, part, context.text)
            if column.time == "processing":
                raise context.error(
                    part, f"a subquery cannot be compared by processing time ({part.name!r})",
                    "use a JOIN that limits the difference of the processing times of both sides",
                )  # fmt: skip
            made: exp.Expr = exp.column(exp.to_identifier(column.physical), table=table)
            for each in fields:
                made = exp.Dot(this=made, expression=each.copy())
            return made
        raise context.error(part, f"unknown column {part.name!r}")

    return node.transform(renamed)


def _joined(context: Context, sides: Sides, on: list[exp.Expr], how: str) -> Relation:
    return _made(context, split_condition(context, sides, on), how)


def _as_outside(relation: Relation, made: Relation) -> Relation:
    """Return the output of a semi or anti join, with the names that its columns had before."""
    times = {column.physical: column.time for column in made.columns}
    columns = (replace(c, time=times.get(c.physical, c.time)) for c in relation.columns)
    return replace(made, columns=tuple(columns))


def _made(context: Context, sides: Sides, how: str) -> Relation:
    in_window = window_join(sides)
    if in_window is not None:
        made = in_windows(sides, in_window, how, residual_trees(context, sides))
        extra = [name for name in made.schema if name.startswith("__left_key_")]
        return replace(made, stream=made.stream.drop(*extra)) if extra else made
    sides = with_one_watermark(sides)
    stream = joined_streams(context, sides, how, state_ttl(context.catalog.options))
    extra = [name for name in stream.schema or {} if name.startswith("__left_key_")]
    if extra:
        stream = stream.drop(*extra)
    return Relation(stream, sides.left.columns)


def _inner(
    context: Context, outer: Relation, query: exp.Expr, *, as_value: bool
) -> tuple[Relation, str, list[exp.Expr]]:
    """Return the subquery's relation, its value's column, and the conditions in it that name columns of the query around."""
    if isinstance(query, exp.Select) and not query.args.get("group") and query.args.get("where"):
        conditions = conjuncts(query.args["where"].this)
        own, rest = context.from_clause(query, conditions)
        own = windowed(context, query, own)
        inner: list[exp.Expr] = []
        correlated: list[exp.Expr] = []
        for each in rest:
            names = list(each.find_all(exp.Column))
            is_own = each.find(exp.Select) is not None or all(knows(own, c) for c in names)
            (inner if is_own else correlated).append(each)
        if correlated:
            made = context.where(own, inner)
            if not as_value:
                return made, "", [_qualified(context, each, made, outer) for each in correlated]
            item = query.expressions[0]
            text = context.translator(made).sql(item.this if isinstance(item, exp.Alias) else item)
            made = replace(
                made,
                stream=made.stream.with_columns(__value=text),
                columns=(*made.columns, Column("__value", "__value")),
            )
            return made, "__value", [_qualified(context, each, made, outer) for each in correlated]
    grouped = _grouped_inner(context, outer, query, as_value=as_value)
    if grouped is not None:
        return grouped
    made = context.query(query)
    if as_value and len(made.columns) != 1:
        raise context.error(query, f"the subquery of IN gives {len(made.columns)} columns, not one")
    return made, made.columns[0].physical, []


def _grouped_inner(
    context: Context, outer: Relation, query: exp.Expr, *, as_value: bool
) -> tuple[Relation, str, list[exp.Expr]] | None:
    """The same for a subquery with GROUP BY: per value of what its equalities compare with the query around it."""

    if not isinstance(query, exp.Select) or not query.args.get("group") or not query.args.get("where"):
        return None
    conditions = conjuncts(query.args["where"].this)
    own, _ = context.from_clause(query, list(conditions))
    outside = [each for each in conditions if names_outer(each, own, outer)]
    if not outside:
        return None
    inner, keys = outer_keys(context, outside, own, outer)
    rest = [each.copy() for each in conditions if not any(each is one for one in outside)]
    made = query.copy()
    made.set("where", exp.Where(this=exp.and_(*rest, copy=False)) if rest else None)
    group = made.args["group"]
    group.set("expressions", [*group.expressions, *(each.copy() for each in inner)])
    named = [exp.Alias(this=each.copy(), alias=exp.to_identifier(f"__key_{i}")) for i, each in enumerate(inner)]
    made.set("expressions", [*(made.expressions if as_value else []), *named])
    found = context.query(made)
    columns = found.columns[len(found.columns) - len(keys) :]
    equal: list[exp.Expr] = [
        exp.EQ(this=_outside(key), expression=exp.column(exp.to_identifier(column.physical), table=_INNER))
        for key, column in zip(keys, columns, strict=True)
    ]
    return found, found.columns[0].physical if as_value else "", equal


def _outside(node: exp.Expr) -> exp.Expr:
    """Return an expression of the query around under the names that its columns have in the join."""

    def renamed(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column) and MEANT in part.meta:
            return exp.column(exp.to_identifier(part.meta[MEANT].physical), table=_OUTER)
        return part

    return node.transform(renamed)
