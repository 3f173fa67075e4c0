"""ORDER BY: its terms, and ORDER BY … LIMIT at the end of a query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.jobs.keyed import shuffled
from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.emitting import state_ttl
from headrace_sql.binding.scope import Column, Relation, is_updating, standing_for, unused_name
from headrace_sql.binding.trees import physical, text_of
from headrace_sql.compiling.constants import whole_number
from headrace_sql.operators.first_rows import FirstRows
from headrace_sql.operators.over_aggregate import OverAggregate
from headrace_sql.operators.over_functions import OverCall
from headrace_sql.operators.rows_at_end import RowsAtEnd
from headrace_sql.reading.options import AT_END, choice

#: Key of a SELECT's meta for the columns for each of whose values ORDER BY … LIMIT holds: of LATERAL (SELECT …).
PARTITION = "headrace_partition"


def ordered_terms(terms: Iterable[exp.Expr]) -> list[tuple[exp.Expr, bool]]:
    """Return (expression, whether it descends) of the terms of ORDER BY.

    NULL is the least value. NULLS FIRST and LAST become a separate term if they say otherwise.
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


def with_order_columns(context: Context, node: exp.Select, relation: Relation) -> tuple[exp.Select, int]:
    """Add the expressions that only ORDER BY uses to the list of a SELECT. Returns their number."""
    if node.args.get("order") is None:
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
        if node.args.get("distinct") is not None:
            raise context.error(
                term, "ORDER BY of SELECT DISTINCT uses an expression that is not in SELECT", "add it to SELECT"
            )
        name = f"__order_by_{len(added)}"
        added.append(exp.Alias(this=term.this.copy(), alias=exp.to_identifier(name)))
        term.set("this", exp.column(exp.to_identifier(name, quoted=True)))
    copy.set("expressions", [*copy.expressions, *added])
    return (copy, len(added)) if added else (node, 0)


def with_grouped_order(context: Context, node: exp.Select) -> tuple[exp.Select, int]:
    """The same for a query with GROUP BY, whose ORDER BY may hold aggregates and keys that SELECT does not list."""
    if node.args.get("order") is None:
        return node, 0
    names = {each.alias_or_name.lower() for each in node.expressions}
    added: list[exp.Expr] = []
    copy = node.copy()
    for term in copy.args["order"].expressions:
        this = term.this
        is_shown = isinstance(this, exp.Column) and not this.table and this.name.lower() in names
        if is_shown or isinstance(this, exp.Literal):
            continue
        name = f"__order_by_{len(added)}"
        added.append(exp.Alias(this=this.copy(), alias=exp.to_identifier(name)))
        term.set("this", exp.column(exp.to_identifier(name, quoted=True)))
    copy.set("expressions", [*copy.expressions, *added])
    return (copy, len(added)) if added else (node, 0)


def limited(context: Context, node: exp.Query, relation: Relation, hidden: int = 0) -> Relation:
    """Return the first rows of a query by its ORDER BY; the last ``hidden`` columns are left out then.

    ORDER BY alone may sort by the time attribute only. Raises ExpressionError.
    """
    order, limit = node.args.get("order"), node.args.get("limit")
    if order is None and limit is None and node.args.get("offset") is None:
        return relation
    if limit is None and node.args.get("offset") is not None:
        raise context.error(
            node.args["offset"],
            "OFFSET without LIMIT would store every row forever",
            "add LIMIT 10, or FETCH FIRST 10 ROWS ONLY",
        )
    columns = relation.columns[: len(relation.columns) - hidden]
    if limit is None:
        assert order is not None
        return replace(_by_time(context, order, relation), columns=columns)
    count, skipped = _number(context, limit, "LIMIT"), _number(context, node.args.get("offset"), "OFFSET")
    if count == 0:
        return replace(relation, stream=relation.stream.where("1 = 0"), columns=columns)
    partition = tuple(relation.find(name)[0].physical for name in node.meta.get(PARTITION) or ())
    if order is None and partition:
        raise context.error(
            limit, "LIMIT needs ORDER BY here", "without an order it is not defined which rows are returned"
        )
    if order is None:
        return _first_come(context, limit, relation, count, skipped)
    translator = context.translator(relation)
    stream, terms = relation.stream, []
    for index, (term, descending) in enumerate(ordered_terms(order.expressions)):
        name = unused_name(f"__order_{index}", relation.schema)
        stream = stream.with_columns(**{name: translator.sql(_meant(context, relation, term))})
        terms.append(f'"{name}" {"desc" if descending else "asc"}')
    place = unused_name("__place", stream.schema or {}) if skipped else None
    ttl = state_ttl(context.catalog.options)
    options = {**ttl, "rank": place} if place is not None else {**ttl}
    stream = shuffled(stream, partition).operator("top_n", partition, count + skipped, by=", ".join(terms), **options)
    if place is not None:
        stream = stream.where(f'"{place}" > {skipped}')
    kept = dict.fromkeys(c.physical for c in columns if c.time != "processing")
    return replace(relation, stream=stream.select(*(text_of(physical(each)) for each in kept)), columns=columns)


def _by_time(context: Context, order: exp.Order, relation: Relation) -> Relation:
    """Return the rows in the order of their event time: each is given when the watermark has passed it."""

    first = order.expressions[0]
    meant = _meant(context, relation, first.this)
    found = relation.find(meant.name) if isinstance(meant, exp.Column) else []
    if not found or found[0].time is None or first.args.get("desc"):
        if choice(context.catalog.options, AT_END) == "TRUE":
            return _at_end(context, order, relation)
        raise context.error(
            order, "ORDER BY of a stream must begin with its time attribute, ascending", "add LIMIT for a Top-N"
        )
    if found[0].time == "processing":
        if len(order.expressions) > 1:
            raise context.error(order.expressions[1], "in processing time, rows are ordered by their arrival")
        return relation  # rows come in this order
    if is_updating(relation):
        raise context.error(order, "ORDER BY needs rows that are only added, and its input changes", "add LIMIT")
    translator = context.translator(relation)
    made: dict[str, str] = {}
    further: list[tuple[str, bool]] = []
    for term, descending in ordered_terms(order.expressions[1:]):
        made[name := unused_name(f"__order_{len(made)}", relation.schema)] = translator.sql(
            _meant(context, relation, term)
        )
        further.append((name, descending))
    count = unused_name("__order_count", relation.schema)
    of_this_row = OverCall("COUNT", None, "ROWS", 0)
    source = relation.stream.with_columns(**made) if made else relation.stream
    spec = OverAggregate((), found[0].physical, {count: of_this_row}, further=further)
    stream = shuffled(source, ()).apply(spec).drop(count, *made)
    return replace(relation, stream=stream, base=None, version_key=(), version_stream=None)


def _at_end(context: Context, order: exp.Order, relation: Relation) -> Relation:
    """Return the rows in an order of any columns: they are given when the input ends, as Flink's tests have it."""
    translator = context.translator(relation)
    made: dict[str, str] = {}
    by: list[tuple[str, bool]] = []
    for term, descending in ordered_terms(order.expressions):
        made[name := unused_name(f"__order_{len(made)}", relation.schema)] = translator.sql(
            _meant(context, relation, term)
        )
        by.append((name, descending))
    stream = shuffled(relation.stream.with_columns(**made), ()).apply(RowsAtEnd(by)).drop(*made)
    return replace(relation, stream=stream, base=None, version_key=(), version_stream=None)


def row_bounds(context: Context, node: exp.Query) -> tuple[int | None, int]:
    """Return how many rows LIMIT or FETCH lets through, None without them, and how many OFFSET skips."""
    limit = node.args.get("limit")
    count = None if limit is None else _number(context, limit, "LIMIT")
    return count, _number(context, node.args.get("offset"), "OFFSET")


def _number(context: Context, node: exp.Expr | None, word: str) -> int:
    """Return the number of rows of LIMIT, FETCH or OFFSET. Raises ExpressionError if it is not a whole number."""
    if node is None:
        return 0
    count = node.args.get("count") if isinstance(node, exp.Fetch) else node.expression
    if isinstance(node, exp.Fetch) and count is None:
        return 1  # FETCH FIRST ROW ONLY
    if count is None:
        raise context.error(node, f"{word} takes a whole number", f"{word} 10")
    return whole_number(context, count, word)


def _first_come(context: Context, limit: exp.Expr, relation: Relation, count: int, skipped: int) -> Relation:
    """Return the rows that come first: LIMIT without ORDER BY."""

    if is_updating(relation):
        raise context.error(
            limit,
            "LIMIT needs ORDER BY where results change",
            "without an order it is not defined which rows are returned",
        )
    stream = shuffled(relation.stream, ()).apply(FirstRows(count, skipped))
    return replace(relation, stream=stream, base=None, version_key=(), version_stream=None)


def _meant(context: Context, relation: Relation, term: exp.Expr) -> exp.Expr:
    """Return the sort expression of a term: a whole number is the place of a column."""
    if not isinstance(term, exp.Literal) or term.is_string:
        return term
    shown: list[Column] = [each for each in relation.columns if not each.hidden]
    if not term.name.isdigit() or not 1 <= int(term.name) <= len(shown):
        raise context.error(term, f"ORDER BY {term.name}: there is no such column", f"1 to {len(shown)}")
    return standing_for(shown[int(term.name) - 1], term)
