"""IN, EXISTS and comparisons with ANY and ALL of subqueries where they stand inside of expressions: below OR, in CASE, in SELECT.

Each becomes an expression over scalar subqueries that count: ``x IN (SELECT v FROM t)`` is true when ``(SELECT COUNT(*) FROM t WHERE
v = x)`` is more than 0. Those that WHERE joins by AND are joins (``subqueries``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.expression_parts import aggregates_in, own_columns
from headrace_sql.binding.scope import OUTSIDE, Column, Relation, knows, resolve, standing_for, unused_name
from headrace_sql.compiling.quantified import Quantified, quantified_in
from headrace_sql.reading.nodes import with_parts

_VALUE = "__value_of_subquery"
#: With which of the values a comparison with all of them is true; for = and <> with the least and the greatest.
_BOUNDS: dict[type[exp.Expr], list[str]] = {exp.GT: ["MAX"], exp.GTE: ["MAX"], exp.LT: ["MIN"], exp.LTE: ["MIN"]}


def of_groups(
    context: Context, made: Relation, nodes: Sequence[exp.Expr], sql: Callable[[exp.Expr], str]
) -> tuple[Relation, list[exp.Expr]]:
    """Return expressions of groups whose predicates with subqueries are scalar subqueries, and the relation with what they compare.

    ``sql`` translates an expression over the groups.
    """
    results: list[exp.Expr] = []
    for node in nodes:
        if not has_predicates(node):
            results.append(node)
            continue
        replaced: dict[int, exp.Expr] = {}
        for each in node.walk(prune=lambda part: isinstance(part, exp.Query)):
            quantified = quantified_in(each)
            if quantified is not None:
                name = unused_name("__compared", made.schema)
                column = Column(name, name, hidden=True)
                made = replace(
                    made,
                    stream=made.stream.with_columns(**{name: sql(quantified.this)}),
                    columns=(*made.columns, column),
                )
                replaced[id(quantified.this)] = standing_for(column, quantified.this)
        results.append(as_scalars(context, with_parts(node, replaced), made))
    return made, results


def as_scalars(context: Context, node: exp.Expr, relation: Relation, *, only_truth: bool = False) -> exp.Expr:
    """Return an expression whose predicates with subqueries are expressions over scalar subqueries.

    ``only_truth``: whether it makes no difference if the result is FALSE or NULL, as for WHERE.
    """
    quantified = quantified_in(node)
    if quantified is not None:
        return _quantified(context, quantified, relation, only_truth=only_truth)
    if isinstance(node, exp.Exists):
        query = node.this.this if isinstance(node.this, exp.Subquery) else node.this
        return _more_than_none(_count(context, query, [], named=False))
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        raise context.error(node, "(a, b) IN (SELECT …) can be combined with other conditions only by AND, in WHERE")
    if isinstance(node, exp.Query):
        return node
    keeps = only_truth and isinstance(node, exp.And | exp.Or | exp.Paren)
    made = node.copy()
    for key, value in node.args.items():
        if isinstance(value, list):
            made.set(key, [_part(context, each, relation, only_truth=keeps) for each in value])
        elif isinstance(value, exp.Expr):
            made.set(key, as_scalars(context, value, relation, only_truth=keeps))
    return made


def _part(context: Context, node: object, relation: Relation, *, only_truth: bool) -> object:
    return as_scalars(context, node, relation, only_truth=only_truth) if isinstance(node, exp.Expr) else node


def has_predicates(node: exp.Expr) -> bool:
    """Return whether an expression has an IN, EXISTS, ANY or ALL with a subquery."""
    return any(
        isinstance(each, exp.Exists) or quantified_in(each) is not None or (isinstance(each, exp.In) and bool(each.args.get("query")))
        for each in node.walk(prune=lambda part: isinstance(part, exp.Subquery | exp.Query))
    )  # fmt: skip


def _quantified(context: Context, node: Quantified, relation: Relation, *, only_truth: bool) -> exp.Expr:
    this = _meant(context, node.this, relation)
    if node.operator is exp.EQ and not node.every:
        found = _more_than_none(_count(context, node.query, [("=", this)]))
        if only_truth:
            return found
        total = _more_than_none(_count(context, node.query, []))
        unknown = _or(_is_null(this), _more_than_none(_count(context, node.query, [("null", None)])))
        return _case([(found, exp.true()), (exp.and_(total, exp.paren(unknown)), exp.Null())], exp.false())
    if not node.every:  # x > ANY (…) is NOT (x <= ALL (…))
        return exp.not_(exp.paren(_every(context, node.negation(), this)))
    if node.operator is exp.NEQ:
        inner = Quantified(exp.EQ, node.this, node.query, every=False)
        return exp.not_(exp.paren(_quantified(context, inner, relation, only_truth=False)))
    return _every(context, node, this)


def _every(context: Context, node: Quantified, this: exp.Expr) -> exp.Expr:
    """``x > ALL (…)``: true where there is no value, false where one is not less, unknown where one is NULL."""
    operator: type[exp.Expr] = node.operator
    names = _BOUNDS.get(operator, ["MIN", "MAX"])
    bounds = [_aggregated(context, node.query, name) for name in names]
    holds = exp.and_(*(node.operator(this=this.copy(), expression=bound) for bound in bounds), copy=False)
    total = exp.not_(_more_than_none(_count(context, node.query, [])))
    unknown = _more_than_none(_count(context, node.query, [("null", None)]))
    refuted = exp.not_(exp.paren(holds.copy()))
    return _case([(total, exp.true()), (refuted, exp.false()), (unknown, exp.Null())], holds)


def _meant(context: Context, node: exp.Expr, relation: Relation) -> exp.Expr:
    """Return an expression whose columns keep their meaning inside of a subquery."""

    def fixed(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column) or not knows(relation, part):
            return part
        column, fields = resolve(relation, part, context.text)
        made: exp.Expr = standing_for(column, part)
        made.meta[OUTSIDE] = True
        for each in fields:
            made = exp.Dot(this=made, expression=each.copy())
        return made

    return node.transform(fixed)


def _selectable(context: Context, query: exp.Expr, *, compared: bool = False) -> exp.Select:
    """Return the query as one to which conditions can be added: itself, or one around it.

    ``compared``: its value is compared with one of the query around. A constant then becomes a column.
    """
    if isinstance(query, exp.Select) and not (compared and any(not own_columns(each) for each in query.expressions)):
        plain = not any(query.args.get(key) for key in ("group", "having", "distinct", "limit", "offset", "match"))
        functions = context.catalog.functions
        if plain and not any(aggregates_in(each, functions) or each.find(exp.Window) for each in query.expressions):
            return query.copy()
    alias = exp.TableAlias(this=exp.to_identifier("__subquery"), columns=[exp.to_identifier(_VALUE)])
    column = exp.column(exp.to_identifier(_VALUE))
    around = exp.Subquery(this=query.copy(), alias=alias)
    return exp.Select(expressions=[column], from_=exp.From(this=around))


def _count(
    context: Context, query: exp.Expr, conditions: Sequence[tuple[str, exp.Expr | None]], *, named: bool = True
) -> exp.Expr:
    """Return ``(SELECT COUNT(*) FROM … WHERE …)`` over the rows of a query, with conditions on its value."""
    if not named and isinstance(query, exp.Select):
        query = query.copy()
        if not any(query.args.get(key) for key in ("group", "having", "distinct")):
            query.set("expressions", [exp.Alias(this=exp.Literal.number(1), alias=exp.to_identifier(_VALUE))])
    made = _selectable(context, query, compared=any(other is not None for _, other in conditions))
    if named and len(made.expressions) != 1:
        raise context.error(query, f"the subquery of IN gives {len(made.expressions)} columns, not one")
    item = made.expressions[0]
    value = item.this if isinstance(item, exp.Alias) else item
    for kind, other in conditions:
        test = (
            _is_null(value) if other is None or kind == "null" else exp.EQ(this=value.copy(), expression=other.copy())
        )
        made = made.where(test, copy=False)
    made.set("expressions", [exp.Anonymous(this="COUNT", expressions=[exp.Star()])])
    return exp.Subquery(this=made)


def _aggregated(context: Context, query: exp.Expr, name: str) -> exp.Expr:
    made = _selectable(context, query)
    item = made.expressions[0]
    made.set(
        "expressions", [exp.Anonymous(this=name, expressions=[item.this if isinstance(item, exp.Alias) else item])]
    )
    return exp.Subquery(this=made)


def _more_than_none(count: exp.Expr) -> exp.Expr:
    known = exp.Anonymous(this="COALESCE", expressions=[count, exp.Literal.number(0)])
    return exp.GT(this=known, expression=exp.Literal.number(0))


def _is_null(node: exp.Expr) -> exp.Expr:
    return exp.Is(this=node.copy(), expression=exp.Null())


def _or(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.Or(this=left, expression=right)


def _case(whens: Sequence[tuple[exp.Expr, exp.Expr]], default: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=when, true=value) for when, value in whens], default=default)
