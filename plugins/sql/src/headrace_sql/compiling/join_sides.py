"""Joins of two sides: keys, time bounds and the rest of a condition; what operator joins them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.flow.schema import Schema
from headrace.jobs.dsl import Stream
from headrace.jobs.keyed import WATERMARK_VERB, has_watermark
from headrace_columnar.sql_types import common_type
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.context import Context
from headrace_sql.binding.expression_parts import names_columns
from headrace_sql.binding.intervals import interval_length
from headrace_sql.binding.scope import NO_TIMES, Column, Relation, hidden_suffix, is_updating, resolve, unused_name
from headrace_sql.binding.trees import all_of, cast, text_of
from headrace_sql.compiling.sides import Sides, replace_sides, touches
from headrace_sql.compiling.window_join import in_windows, window_join

#: The time columns of a bound in processing time, which has none.
_BY_CLOCK = ("", "")
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}


def split_condition(context: Context, sides: Sides, on: Sequence[exp.Expr]) -> Sides:
    """Find the pairs of equal columns in a join's condition; expressions in them become columns of their side."""
    left, right = sides.left, sides.right
    keys: list[tuple[str, str]] = []
    rest: list[exp.Expr] = []
    for each in on:
        while isinstance(each, exp.Paren):
            each = each.this
        pair = _equal_pair(context, sides, each)
        if pair is None:
            rest.append(each)
            continue
        kinds = [context.translator(side).type_of(part) for side, part in zip((left, right), pair, strict=True)]
        common = common_type(kinds[0], kinds[1])
        if common is None:
            raise context.error(
                each,
                f"{types.word_for(kinds[0])} and {types.word_for(kinds[1])} can never be equal",
                "CAST one of them",
            )
        used = [{one for one, _ in keys}, {other for _, other in keys}]
        names = [_plain_key(context, side, part, common) for side, part in zip((left, right), pair, strict=True)]
        if tuple(names) in keys:
            continue
        # A column that is a key already is copied: each key has its own column on both sides.
        for place, taken in enumerate(used):
            names[place] = None if names[place] in taken else names[place]
        left, left_key = _key_column(context, left, pair[0], common, names[0], f"__left_key_{len(keys)}")
        right, right_key = _key_column(context, right, pair[1], common, names[1], f"__right_key_{len(keys)}")
        keys.append((left_key, right_key))
    made = replace_sides(sides, left, right)
    made.keys, made.rest = keys, rest
    return made


def _equal_pair(context: Context, sides: Sides, node: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    if not isinstance(node, exp.EQ) or any(
        _is_processing(context, sides.both, part) for part in (node.left, node.right) if isinstance(part, exp.Column)
    ):
        return None
    where = [touches(context, sides, part) for part in (node.left, node.right)]
    if where == ["left", "right"]:
        return node.left, node.right
    if where == ["right", "left"]:
        return node.right, node.left
    return None


def _plain_key(context: Context, side: Relation, node: exp.Expr, common: Any) -> str | None:
    """Return the column that holds a key as it is to be compared; None where it has to be made."""
    translator = context.translator(side)
    made = translator.translate(node)
    kind = translator.compile(made).data_type
    is_plain = isinstance(made, exp.Column) and (kind == common or (kind.is_integer() and common.is_integer()))
    return str(made.name) if is_plain else None


def _key_column(
    context: Context, side: Relation, node: exp.Expr, common: Any, plain: str | None, wanted: str
) -> tuple[Relation, str]:
    """Return a side with the column of a key: the plain one, or one that is made under the wanted name."""
    if plain is not None:
        return side, plain
    translator = context.translator(side)
    made = translator.translate(node)
    if translator.compile(made).data_type != common and types.word_for(common) is not None:
        made = cast(made, str(types.word_for(common)))
    name = unused_name(wanted, side.schema)
    return replace(side, stream=side.stream.with_columns(**{name: text_of(made)})), name


def joined_sides(
    context: Context,
    sides: Sides,
    on: Sequence[exp.Expr],
    how: str,
    item: exp.Expr,
    *,
    names: tuple[str | None, str] = (None, ""),
) -> Relation:
    """Return the relation of two sides that are joined. Raises ExpressionError at ``item``.

    ``names``: of the tables that the sides are, for hints.
    """
    if sides.left.ranking is not None or sides.right.ranking is not None:
        raise context.error(
            item, "rows with ROW_NUMBER() must be filtered by it before they are joined", "WHERE rn = 1"
        )

    sides = split_condition(context, sides, on)
    if not sides.keys and how != "inner":
        sides = _with_one_key(sides)
    in_window = window_join(sides)
    if in_window is not None:
        return in_windows(sides, in_window, how, residual_trees(context, sides))
    options: dict[str, Any] = {}
    bound = _time_bound(context, sides)
    if bound is not None:
        (low, high), times, sides.rest = bound
        by_clock = times == _BY_CLOCK
        options = {"within": (f"{low} us", f"{high} us"), **({"by_clock": True} if by_clock else {"time": times})}
    else:
        options = context.state_ttls.of_join(*names)
        sides = with_one_watermark(sides)
    stream = joined_streams(context, sides, how, options)
    keeps_times = (bound is not None and "time" in options) or (has_watermark(stream.edge) and sides.has_one_watermark)
    keeps_times = keeps_times and stream.changes is None
    columns = [_after_join(column, bounded=keeps_times) for column in sides.both.columns]
    return Relation(stream, tuple(columns))


def joined_streams(context: Context, sides: Sides, how: str, options: Mapping[str, Any]) -> Stream:
    """Join the streams of two sides by their keys and by the rest of the condition. ``options`` are those of ``join``."""
    suffix = hidden_suffix(sides.left.stream.schema, sides.right.stream.schema)
    condition = residual(context, sides)
    return sides.left.stream.join(sides.right.stream, sides.keys, how=how, where=condition, suffix=suffix, **options)


def _with_one_key(sides: Sides) -> Sides:
    """Return sides that meet by a key that all rows share: an outer join without an equality."""
    names = ("__left_one", "__right_one")
    left, right = (
        replace(side, stream=side.stream.with_columns(**{name: "1"})) for side, name in zip((sides.left, sides.right), names, strict=True)
    )  # fmt: skip
    made = replace_sides(sides, left, right)
    made.keys = [names]
    return made


def with_one_watermark(sides: Sides) -> Sides:
    """Let a side without watermark hold the watermark of the other until it ends, as in Flink.

    Rows that wait for a partner are not late then, when the partners are all there before the end.
    """
    if has_watermark(sides.left.stream.edge) == has_watermark(sides.right.stream.edge):
        return sides
    made = []
    for side, name in zip((sides.left, sides.right), NO_TIMES, strict=True):
        if has_watermark(side.stream.edge):
            made.append(side)
            continue
        timed = side.stream.with_columns(**{name: "CAST(NULL AS TIMESTAMP_NTZ)"})
        made.append(replace(side, stream=timed.operator(WATERMARK_VERB, name)))
    held = replace_sides(sides, *made)
    held.has_one_watermark = True
    return held


def _after_join(column: Column, *, bounded: bool) -> Column:
    """A join without bound keeps rows for ever: their times are plain columns then, but where a side waits for the other."""
    return column if bounded or column.time == "processing" else replace(column, time=None)


def residual(context: Context, sides: Sides) -> str | None:
    """Return the rest of the condition as text over the columns of both sides."""
    return all_of(residual_trees(context, sides))


def residual_trees(context: Context, sides: Sides) -> list[exp.Expr]:
    """Return the rest of the condition as translated trees over the columns of both sides; all of them must be true."""
    if not sides.rest:
        return []
    for each in sides.rest:
        _refuse_clock(context, sides.both, each)
    translator = context.translator(sides.both)
    translator.schema = _pair_schema(sides)
    return [translator.checked(each) for each in sides.rest]


def _refuse_clock(context: Context, relation: Relation, node: exp.Expr) -> None:
    """Raise ExpressionError for a condition on pairs of rows that reads processing time: its rows would be kept for ever."""
    # The columns of a query in the condition are its own.
    for part in node.walk(prune=lambda each: isinstance(each, exp.Query)):
        is_column = isinstance(part, exp.Column) and _is_processing(context, relation, part)
        if is_column or (isinstance(part, exp.Anonymous) and part.name.upper() == "PROCTIME"):
            raise context.error(
                node,
                "a join can compare processing times only within a range with both bounds",
                "a.proc BETWEEN b.proc - INTERVAL '10' SECOND AND b.proc + INTERVAL '10' SECOND, both of PROCTIME()",
            )


def _is_processing(context: Context, relation: Relation, node: exp.Column) -> bool:
    return resolve(relation, node, context.text)[0].time == "processing"


def _pair_schema(sides: Sides) -> Any:
    return Schema({**sides.left.schema, **sides.right.schema})


def _time_bound(context: Context, sides: Sides) -> tuple[tuple[int, int], tuple[str, str], list[exp.Expr]] | None:
    """Return ((lowest, highest), time columns, rest) where the condition bounds right time minus left time, else None."""
    if is_updating(sides.left) or is_updating(sides.right):
        return None
    low: int | None = None
    high: int | None = None
    times: tuple[str, str] | None = None
    rest: list[exp.Expr] = []
    for each in sides.rest:
        found = _bound(context, sides, each)
        if found is None or (times is not None and found[1] != times):
            rest.append(each)
            continue
        (lower, upper), times = found
        if lower is not None:
            low = lower if low is None else max(low, lower)
        if upper is not None:
            high = upper if high is None else min(high, upper)
    for left_key, right_key in sides.keys:
        pair = (_event_column(sides.left, left_key), _event_column(sides.right, right_key))
        if all(pair) and times is None:
            return (0, 0), (left_key, right_key), sides.rest
    if times is None or low is None or high is None or low > high:
        return None
    return (low, high), times, rest


def _event_column(side: Relation, name: str) -> bool:
    return any(column.physical == name and column.time == "event" for column in side.columns)


def _bound(
    context: Context, sides: Sides, node: exp.Expr
) -> tuple[tuple[int | None, int | None], tuple[str, str]] | None:
    """Read ``right.t >= left.t - INTERVAL …`` and its like. The columns are ``_BY_CLOCK`` for processing time."""
    if not isinstance(node, exp.GT | exp.GTE | exp.LT | exp.LTE | exp.EQ):
        return None
    first, second = (_shifted(context, sides, part) for part in (node.left, node.right))
    if first is None or second is None or first[0] == second[0]:
        return None
    kind: type[exp.Expr] = type(node)
    if (first[1] == "") != (second[1] == ""):
        return None  # event time of one side with processing time of the other
    if first[0] == "left":
        first, second, kind = second, first, _MIRRORED.get(kind, kind)
    # right.t + a  <op>  left.t + b   =>   right.t - left.t  <op>  b - a
    difference = second[2] - first[2]
    times = (second[1], first[1])
    if kind is exp.EQ:
        return (difference, difference), times
    if kind in (exp.GT, exp.GTE):
        return (difference + (kind is exp.GT), None), times
    return (None, difference - (kind is exp.LT)), times


def _shifted(context: Context, sides: Sides, node: exp.Expr) -> tuple[str, str, int] | None:
    """Return (side, time column, microseconds added) of ``t``, ``t + INTERVAL …``, ``t - INTERVAL …``.

    The column is "" for processing time, and None is returned for columns that are no time attributes.
    """
    while isinstance(node, exp.Paren):
        node = node.this
    if (
        isinstance(node, exp.Add | exp.Sub)
        and node.expression.find(exp.Interval)
        and not names_columns(node.expression)
    ):
        inner = _shifted(context, sides, node.this)
        months, micros = interval_length(node.expression, context.text)
        if inner is None or months:
            return None
        return inner[0], inner[1], inner[2] + (micros if isinstance(node, exp.Add) else -micros)
    if not isinstance(node, exp.Column):
        return None
    where = touches(context, sides, node)
    if where not in ("left", "right"):
        return None
    column, fields = resolve(sides.both, node, context.text)
    if fields or column.time is None:
        return None
    return where, "" if column.time == "processing" else column.physical, 0
