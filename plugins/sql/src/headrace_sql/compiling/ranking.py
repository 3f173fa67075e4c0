"""ROW_NUMBER() in a derived table with a condition on it: Top-N, deduplication, versioned views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from headrace.jobs.keyed import shuffled
from sqlglot import exp
from sqlglot.helper import ensure_list

from headrace_sql.binding.context import Context
from headrace_sql.binding.emitting import state_ttl
from headrace_sql.binding.expression_parts import names_columns
from headrace_sql.binding.scope import Column, Ranking, Relation, is_updating
from headrace_sql.binding.trees import physical, text_of
from headrace_sql.compiling.constants import constant
from headrace_sql.compiling.grouping import attached_window
from headrace_sql.operators.window_top_n import WindowTopN


def ranked(context: Context, relation: Relation, conditions: Sequence[exp.Expr]) -> tuple[Relation, list[exp.Expr]]:
    """Return the relation with its Top-N, and the conditions that are left. Without a bound all rows are numbered."""
    ranking = relation.ranking
    assert ranking is not None
    bound, left = None, []
    for condition in conditions:
        found = _bound(context, ranking.name, condition)
        if found is None:
            left.append(condition)
        elif isinstance(_bare(condition), exp.EQ) and found > 1:
            # The second, say: the Top-2 and of it those in the second place.
            left.append(condition)
            bound = found if bound is None else min(bound, found)
        else:
            bound = found if bound is None else min(bound, found)
    if bound is None:
        return context.settled(context.around or exp.Select(), relation), list(conditions)
    rest = tuple(column for column in relation.columns if column.name != ranking.name)
    names = [column for column in relation.columns if column.name == ranking.name]
    base = replace(relation, columns=rest, ranking=None, base=None)
    time = ranking.order[0][2] if len(ranking.order) == 1 else None
    bounds = [each for each in conditions if not any(each is one for one in left)]
    used = _rank_is_used(context, ranking.name, bounds) or any(
        column.name == ranking.name for each in left for column in each.find_all(exp.Column)
    )
    window = attached_window(base, list(ranking.partition))
    if window is not None and not is_updating(base):
        return _in_window(base, ranking, window, bound, names[0] if used else None, relation), left
    if bound == 1 and time is not None and not is_updating(base) and ranking.function == "ROW_NUMBER":
        made = _deduplicated(base, ranking.partition, ranking.order[0], time, state_ttl(context.catalog.options))
        if not is_updating(made):
            made = replace(made, unique=(ranking.partition,))
        if ranking.order[0][1] and time == "event":
            made = replace(made, version_key=ranking.partition, version_stream=base.stream)
        if used:
            stream = made.stream.with_columns(**{names[0].physical: "1"})
            return replace(made, stream=stream, columns=relation.columns), left
        return made, left
    terms = [f"{text_of(physical(name))} {'desc' if down else 'asc'}" for name, down, _ in ranking.order]
    latest = False
    if any(time == "processing" for _, _, time in ranking.order):
        if len(ranking.order) > 1 or is_updating(base):
            raise context.error(
                None, "in processing time, rows are ordered by their arrival, if they are only added",
                "ORDER BY a column of the rows",
            )  # fmt: skip
        terms, latest = [], ranking.order[0][1]
    keys = ranking.partition
    stream = shuffled(base.stream, keys).operator(
        "top_n",
        keys,
        bound,
        by=", ".join(terms) if terms else (),
        keep="last" if latest else "first",
        rank=names[0].physical if used else None,
        **state_ttl(context.catalog.options),
    )
    return replace(base, stream=stream, columns=relation.columns if used else rest), left


def _in_window(
    base: Relation, ranking: Ranking, end: Column, bound: int, rank: Column | None, whole: Relation
) -> Relation:
    """Return a Top-N of windows: its rows come once, when their window closes."""
    order = tuple((name, down) for name, down, _ in ranking.order)
    latest = bound == 1 and len(order) == 1 and order[0][1] and ranking.order[0][2] is not None
    spec = WindowTopN(
        ranking.partition, end.physical, bound, order, rank=None if rank is None else rank.physical, latest=latest
    )
    stream = shuffled(base.stream, ranking.partition).apply(spec)
    columns = whole.columns if rank is not None else base.columns
    # Times of the rows lie behind the watermark now; that of the window is just reached.
    plain = tuple(c if c.window == "time" or c.time != "event" else replace(c, time=None) for c in columns)
    return replace(base, stream=stream, columns=plain, unique=(ranking.partition,) if bound == 1 else ())


#: The clauses of a SELECT and of its joins in which columns are read.
_READING = ("expressions", "where", "group", "having", "order", "windows", "on", "using")


def _rank_is_used(context: Context, name: str, conditions: Sequence[exp.Expr]) -> bool:
    """Return whether the query around reads the rank in a clause, beside bounding it by these conditions."""
    node = context.around
    if node is None:
        return True
    inside = {id(each) for condition in conditions for each in condition.walk()}
    owners = [node, *(node.args.get("joins") or ())]
    parts = [part for owner in owners for clause in _READING for part in ensure_list(owner.args.get(clause))]
    items = [each for part in parts for each in part.walk()]
    return any(
        (isinstance(each, exp.Star) and not isinstance(each.parent, exp.Anonymous))
        or (isinstance(each, exp.Identifier) and each.name == name)
        for each in items
        if id(each) not in inside
    )


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _bound(context: Context, name: str, condition: exp.Expr) -> int | None:
    """Return the greatest rank that a condition lets through, or None when it is about something else."""
    condition = _bare(condition)
    if not isinstance(condition, exp.LTE | exp.LT | exp.EQ | exp.GTE | exp.GT):
        return None
    left, right = _bare(condition.left), _bare(condition.right)
    turned = isinstance(right, exp.Column) and right.name == name
    column, limit = (right, left) if turned else (left, right)
    if not (isinstance(column, exp.Column) and column.name == name) or names_columns(limit):
        return None
    number: float | None = constant(context, limit, f"the bound of {name}")
    if number is None or isinstance(number, str | bool):
        return None
    if isinstance(condition, exp.EQ):
        return int(number) if number >= 1 and number == int(number) else None
    less = isinstance(condition, exp.GTE | exp.GT) if turned else isinstance(condition, exp.LTE | exp.LT)
    if not less:
        return None
    return math.ceil(number) - 1 if isinstance(condition, exp.LT | exp.GT) else math.floor(number)


def _first_by_time(relation: Relation, keys: tuple[str, ...], time: str, ttl: dict[str, str]) -> Relation:
    """Keep the first row of each key in event time: it comes when the watermark has passed it, and never changes.

    As in Flink, late rows are dropped.
    """
    by_time = WindowTopN((*keys, time), time, 1, (), by_time=True)
    waited = shuffled(relation.stream, keys).apply(by_time)
    return replace(relation, stream=shuffled(waited, keys).operator("distinct", keys, **ttl))


def _deduplicated(
    relation: Relation, keys: tuple[str, ...], order: tuple[str, bool, str | None], time: str, ttl: dict[str, str]
) -> Relation:
    """Keep the first or last row of each key by a time attribute. Of equal times the later arrival is the last."""
    name, last, _ = order
    stream = shuffled(relation.stream, keys)
    if time == "processing" and not last:
        return replace(relation, stream=stream.operator("distinct", keys, **ttl))
    if not last:
        return _first_by_time(relation, keys, name, ttl)
    options = {} if time == "processing" else {"by": f"{text_of(physical(name))} {'desc' if last else 'asc'}"}
    made = stream.operator("top_n", keys, 1, keep="last" if last else "first", **options, **ttl)
    return replace(relation, stream=made)
