"""IN (SELECT …) and EXISTS (SELECT …) in WHERE, as semi and anti joins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace_sql.emitting import state_ttl
from headrace_sql.joins import Sides, residual, sides_of, split_condition
from headrace_sql.query import conjuncts
from headrace_sql.scope import Column, Relation, resolve
from headrace_sql.sources import from_clause

if TYPE_CHECKING:
    from headrace_sql.query import QueryCompiler


_OUTER, _INNER = "__outer", "__inner"


def filtered(compiler: QueryCompiler, relation: Relation, condition: exp.Expr) -> Relation:
    """Keep the rows that a condition with a subquery lets through."""
    negated = False
    while isinstance(condition, exp.Not | exp.Paren):
        negated ^= isinstance(condition, exp.Not)
        condition = condition.this
    if isinstance(condition, exp.In) and condition.args.get("query") is not None:
        return _in(compiler, relation, condition, negated=negated)
    if isinstance(condition, exp.Exists):
        return _exists(compiler, relation, condition, negated=negated)
    raise compiler.error(
        condition,
        "this subquery is not supported here",
        "use x IN (SELECT …) or EXISTS (SELECT …), joined to others by AND",
    )


def _in(compiler: QueryCompiler, relation: Relation, node: exp.In, *, negated: bool) -> Relation:
    query = node.args["query"]
    inner = query.this if isinstance(query, exp.Subquery) else query
    if isinstance(node.this, exp.Tuple) and not negated:
        return _tuple_in(compiler, relation, node.this, inner)
    found, value_name, correlated = _inner(compiler, relation, inner, as_value=True)
    sides = sides_of(_marked(relation, _OUTER), _marked(found, _INNER), _INNER)
    this = _qualified(compiler, node.this, None, relation)
    value = exp.column(exp.to_identifier(value_name), table=_INNER)
    equal = exp.EQ(this=this, expression=value)
    if not negated:
        made = _joined(compiler, sides, [equal, *correlated], "semi")
        return replace(made, columns=relation.columns)
    # x NOT IN (…): a row stays only when no comparison is true or unknown.
    sides = split_condition(compiler, sides, correlated)
    maybe = exp.Or(
        this=exp.Or(this=equal, expression=exp.Is(this=this.copy(), expression=exp.Null())),
        expression=exp.Is(this=value.copy(), expression=exp.Null()),
    )
    sides.rest = [*sides.rest, maybe]
    return replace(_made(compiler, sides, "anti"), columns=relation.columns)


def _tuple_in(compiler: QueryCompiler, relation: Relation, values: exp.Tuple, query: exp.Expr) -> Relation:
    """``(a, b) IN (SELECT x, y …)``."""
    found = compiler.query(query)
    if len(found.columns) != len(values.expressions):
        raise compiler.error(
            query, f"the subquery of IN gives {len(found.columns)} columns, not {len(values.expressions)}"
        )
    names = [column.physical for column in found.columns]
    sides = sides_of(_marked(relation, _OUTER), _marked(found, _INNER), _INNER)
    equal: list[exp.Expr] = [
        exp.EQ(
            this=_qualified(compiler, value, None, relation),
            expression=exp.column(exp.to_identifier(name), table=_INNER),
        )
        for value, name in zip(values.expressions, names, strict=True)
    ]
    return replace(_joined(compiler, sides, equal, "semi"), columns=relation.columns)


def _exists(compiler: QueryCompiler, relation: Relation, node: exp.Exists, *, negated: bool) -> Relation:
    query = node.this.this if isinstance(node.this, exp.Subquery) else node.this
    found, _, correlated = _inner(compiler, relation, query, as_value=False)
    sides = sides_of(_marked(relation, _OUTER), _marked(found, _INNER), _INNER)
    made = _joined(compiler, sides, correlated, "anti" if negated else "semi")
    return replace(made, columns=relation.columns)


def _marked(relation: Relation, table: str) -> Relation:
    """Return the relation with its physical names as the only names of its columns."""
    real = [c for c in relation.columns if c.physical in relation.schema]
    return replace(relation, columns=tuple(replace(c, name=c.physical, table=table) for c in real))


def _qualified(compiler: QueryCompiler, node: exp.Expr, inner: Relation | None, outer: Relation) -> exp.Expr:
    """Return an expression whose columns say which query they are of. The inner one comes first, as SQL says."""

    def renamed(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column):
            return part
        for relation, table in ((inner, _INNER), (outer, _OUTER)):
            if relation is None or not knows(relation, part):
                continue
            column, fields = resolve(relation, part, compiler.text)
            made: exp.Expr = exp.column(exp.to_identifier(column.physical), table=table)
            for each in fields:
                made = exp.Dot(this=made, expression=each.copy())
            return made
        raise compiler.error(part, f"unknown column {part.name!r}")

    return node.transform(renamed)


def knows(relation: Relation, node: exp.Column) -> bool:
    """Return whether a relation has the column that a name means."""
    parts = [part.name for part in node.parts]
    return bool(len(parts) > 1 and relation.find(parts[1], parts[0])) or bool(relation.find(parts[0]))


def _joined(compiler: QueryCompiler, sides: Sides, on: list[exp.Expr], how: str) -> Relation:
    return _made(compiler, split_condition(compiler, sides, on), how)


def _made(compiler: QueryCompiler, sides: Sides, how: str) -> Relation:
    condition = residual(compiler, sides)
    ttl = state_ttl(compiler.catalog.options)
    stream = sides.left.stream.join(
        sides.right.stream,
        sides.keys,
        how=how,
        where=condition,
        suffix="__other",
        **ttl,
    )
    extra = [name for name in stream.schema or {} if name.startswith("__left_key_")]
    if extra:
        stream = stream.drop(*extra)
    return Relation(stream, sides.left.columns)


def _inner(
    compiler: QueryCompiler, outer: Relation, query: exp.Expr, *, as_value: bool
) -> tuple[Relation, str, list[exp.Expr]]:
    """Return the subquery's relation, its value's column, and the conditions in it that name columns of the query around."""
    if isinstance(query, exp.Select) and not query.args.get("group") and query.args.get("where"):
        conditions = conjuncts(query.args["where"].this)
        own, rest = from_clause(compiler, query, conditions)
        inner: list[exp.Expr] = []
        correlated: list[exp.Expr] = []
        for each in rest:
            names = list(each.find_all(exp.Column))
            is_own = each.find(exp.Select) is not None or all(knows(own, c) for c in names)
            (inner if is_own else correlated).append(each)
        if correlated:
            made = compiler.where(own, inner)
            if not as_value:
                return made, "", [_qualified(compiler, each, made, outer) for each in correlated]
            item = query.expressions[0]
            text = compiler.translator(made).sql(item.this if isinstance(item, exp.Alias) else item)
            made = replace(
                made,
                stream=made.stream.with_columns(__value=text),
                columns=(*made.columns, Column("__value", "__value")),
            )
            return made, "__value", [_qualified(compiler, each, made, outer) for each in correlated]
    made = compiler.query(query)
    if as_value and len(made.columns) != 1:
        raise compiler.error(query, f"the subquery of IN gives {len(made.columns)} columns, not one")
    return made, made.columns[0].physical, []
