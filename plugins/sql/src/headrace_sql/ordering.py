"""ORDER BY: what it sorts by, and ORDER BY … LIMIT behind a query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace_sql.expressions import physical, text_of
from headrace_sql.scope import Column, Relation, standing_for, unused_name

if TYPE_CHECKING:
    from headrace_sql.query import QueryCompiler


def ordered_terms(terms: Iterable[exp.Expr]) -> list[tuple[exp.Expr, bool]]:
    """Return (expression, whether it descends) of the terms of ORDER BY.

    NULL is the least value. NULLS FIRST and LAST, where they say otherwise, become a term of their own.
    """
    made: list[tuple[exp.Expr, bool]] = []
    for term in terms:
        descending, first = bool(term.args.get("desc")), bool(term.args.get("nulls_first"))
        if first == descending:
            unknown = exp.Is(this=term.this.copy(), expression=exp.Null())
            places = [exp.Literal.number(int(not first)), exp.Literal.number(int(first))]
            made.append((exp.Case(ifs=[exp.If(this=unknown, true=places[0])], default=places[1]), False))
        made.append((term.this, descending))
    return made


def with_order_columns(compiler: QueryCompiler, node: exp.Select, relation: Relation) -> tuple[exp.Select, int]:
    """Add to what a SELECT lists the expressions that only its ORDER BY … LIMIT names. Returns how many there are."""
    if node.args.get("order") is None or node.args.get("limit") is None:
        return node, 0
    named = {each.alias_or_name.lower() for each in node.expressions}
    every = any(each.is_star for each in node.expressions)
    added: list[exp.Expr] = []
    copy = node.copy()
    for term in copy.args["order"].expressions:
        columns = list(term.this.find_all(exp.Column))
        known = [(each.name.lower() in named and not each.table) or (every and not each.table) for each in columns]
        if all(known) or not all(relation.find(each.parts[-1].name) for each in columns):
            continue
        name = f"__order_by_{len(added)}"
        added.append(exp.Alias(this=term.this.copy(), alias=exp.to_identifier(name)))
        term.set("this", exp.column(exp.to_identifier(name, quoted=True)))
    copy.set("expressions", [*copy.expressions, *added])
    return (copy, len(added)) if added else (node, 0)


def limited(compiler: QueryCompiler, node: exp.Select, relation: Relation, hidden: int = 0) -> Relation:
    """Return the first rows of a query by its ORDER BY; the last ``hidden`` columns are left out then.

    ORDER BY alone may sort by the time attribute only. Raises ExpressionError.
    """
    order, limit = node.args.get("order"), node.args.get("limit")
    if order is None and limit is None:
        return relation
    if limit is None:
        assert order is not None
        first = order.expressions[0]
        found = relation.find(first.this.name) if isinstance(first.this, exp.Column) else []
        if found and found[0].time is not None and not first.args.get("desc"):
            return relation
        raise compiler.error(
            order, "ORDER BY sorts a stream by its time attribute only, ascending", "add LIMIT for a Top-N"
        )
    if order is None:
        raise compiler.error(limit, "LIMIT needs ORDER BY", "which rows would these be?")
    count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
    if not isinstance(count, exp.Literal) or not count.name.isdigit() or int(count.name) < 1:
        raise compiler.error(limit, "LIMIT takes a whole number from 1", "LIMIT 10")
    translator = compiler.translator(relation)
    stream, terms = relation.stream, []
    for index, (term, descending) in enumerate(ordered_terms(order.expressions)):
        name = unused_name(f"__order_{index}", relation.schema)
        stream = stream.with_columns(**{name: translator.sql(_meant(compiler, relation, term))})
        terms.append(f'"{name}" {"desc" if descending else "asc"}')
    stream = stream.key_by().top_n(int(count.name), by=", ".join(terms))
    columns = relation.columns[: len(relation.columns) - hidden]
    kept = dict.fromkeys(c.physical for c in columns if c.time != "processing")
    return replace(relation, stream=stream.select(*(text_of(physical(each)) for each in kept)), columns=columns)


def _meant(compiler: QueryCompiler, relation: Relation, term: exp.Expr) -> exp.Expr:
    """Return what a term sorts by: a whole number is the place of a column."""
    if not isinstance(term, exp.Literal) or term.is_string:
        return term
    shown: list[Column] = [each for each in relation.columns if not each.hidden]
    if not term.name.isdigit() or not 1 <= int(term.name) <= len(shown):
        raise compiler.error(term, f"ORDER BY {term.name}: there is no such column", f"1 to {len(shown)}")
    return standing_for(shown[int(term.name) - 1], term)
