"""Joins: regular ones, those within a time bound, lookups of dimension tables, temporal joins, table functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.foundation.errors import ExpressionError
from headrace.jobs.keyed import WATERMARK_VERB, has_watermark
from headrace_columnar.sql_types import common_type
from headrace_stateful.joins.join import Join
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.constants import names_columns
from headrace_sql.binding.expressions import Translator, interval_length, physical, text_of
from headrace_sql.binding.functions import cast
from headrace_sql.binding.scope import OUTSIDE, Column, Relation, hidden_suffix, resolve, standing_for, unused_name
from headrace_sql.compiling.query import changes_of, conjuncts, is_updating, own_columns
from headrace_sql.compiling.sources import from_item, pruned, windowed
from headrace_sql.reading import nodes

if TYPE_CHECKING:
    from headrace_sql.compiling.query import QueryCompiler

#: The time columns of a bound in processing time, which has none.
_BY_CLOCK = ("", "")
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}


@dataclass
class Sides:
    """Two relations that are joined, with names that do not meet, and what is known of the condition."""

    left: Relation
    right: Relation
    both: Relation
    keys: list[tuple[str, str]] = field(default_factory=list)
    rest: list[exp.Expr] = field(default_factory=list)
    #: Whether only one side has a watermark of its own: it waits for the other side to end.
    has_one_watermark: bool = False


def joined(
    compiler: QueryCompiler,
    node: exp.Select,
    left: Relation,
    join: exp.Join,
    conditions: list[exp.Expr],
    *,
    pushes: bool,
) -> tuple[Relation, list[exp.Expr]]:
    """Return the relation of a join, and the conditions of WHERE that it has not used up.

    ``pushes``: conditions may be asked in the join or before it. Otherwise all of them are left for behind the joins, too.
    """
    item = join.this
    if join.args.get("match_condition") or (join.args.get("method") or "").upper() not in ("", "NATURAL"):
        raise compiler.error(item, "this kind of JOIN is not supported", "write ON a.x = b.x")
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if kind not in ("", "INNER", "CROSS", "OUTER"):
        raise compiler.error(item, f"{kind} JOIN is not supported", "use IN or EXISTS in WHERE")
    if isinstance(item, exp.Lateral | exp.Unnest):
        from headrace_sql.compiling.correlate import correlated
        from headrace_sql.compiling.lateral import lateral

        left, conditions = _bounded(compiler, left, conditions)
        left = _numbered(compiler, left)
        if isinstance(item, exp.Lateral) and isinstance(item.this, exp.Subquery):
            return lateral(compiler, left, join), conditions

        return correlated(compiler, left, join), conditions
    on = conjuncts(join.args.get("on"))
    version = item.args.get("version") if isinstance(item, exp.Table) else None
    is_using = bool(join.args.get("using") or join.args.get("method"))
    if is_using and version is not None:
        raise compiler.error(item, "FOR SYSTEM_TIME AS OF takes a condition in ON, not USING", "write ON a.x = b.x")
    how = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}[side]
    where = conditions
    if how in ("inner", "left"):
        left, conditions = _bounded(compiler, left, conditions)
    if version is not None:
        from headrace_sql.compiling.temporal import temporal

        left = _numbered(compiler, left)
        return temporal(compiler, left, item, version, on, how), conditions if pushes else where
    right = pruned(compiler, node, windowed(compiler, item, from_item(compiler, item)))
    if how in ("inner", "right"):
        right, conditions = _bounded(compiler, right, conditions)
    left, right = (_numbered(compiler, each) for each in (left, right))
    sides = sides_of(left, right, item.alias_or_name)
    on = [each for each in on if not (isinstance(each, exp.Boolean) and each.this)]
    pairs = _same_names(compiler, sides, join) if is_using else []
    on += [exp.EQ(this=standing_for(mine, item), expression=standing_for(other, item)) for mine, other in pairs]
    used: list[exp.Expr] = []
    if how == "inner" and pushes:
        used = [
            each for each in conditions if each.find(exp.Select) is None and touches(compiler, sides, each) == "both"
        ]
        on = [*on, *used]
    if pushes:
        moved: list[exp.Expr] = []
        sides, moved = _pushed(compiler, sides, [each for each in conditions if each not in used], how)
        used += moved
    left_conditions = [each for each in conditions if not any(each is one for one in used)] if pushes else where
    first = next(iter(node.args.get("joins") or ()), None)
    is_first = first is not None and first.this.alias_or_name == item.alias_or_name
    names = node.args["from_"].this.alias_or_name if is_first else None, item.alias_or_name
    made = joined_sides(compiler, sides, on, how, item, names=names)
    return (_with_one_of_each(made, pairs, how) if pairs else made), left_conditions


def _bounded(compiler: QueryCompiler, side: Relation, conditions: list[exp.Expr]) -> tuple[Relation, list[exp.Expr]]:
    """Make the Top-N of a side whose ROW_NUMBER() a condition of WHERE bounds: it comes before the join."""
    if side.ranking is None:
        return side, conditions
    name = side.ranking.name
    mine = [each for each in conditions if _is_of(compiler, side, each)]
    if not any(column.name == name for each in mine for column in own_columns(each)):
        return side, conditions
    return compiler.where(side, mine), [each for each in conditions if not any(each is one for one in mine)]


def _numbered(compiler: QueryCompiler, side: Relation) -> Relation:
    ranking = side.ranking
    return side if ranking is None or ranking.unbounded is None else compiler.settled(exp.Select(), side)


def _is_of(compiler: QueryCompiler, side: Relation, node: exp.Expr) -> bool:
    """Return whether a condition names columns of one side only."""
    from headrace_sql.compiling.subqueries import knows

    columns = own_columns(node)
    return node.find(exp.Select) is None and bool(columns) and all(knows(side, each) for each in columns)


def _same_names(compiler: QueryCompiler, sides: Sides, join: exp.Join) -> list[tuple[Column, Column]]:
    """Return the pairs of columns that ``USING (a, b)`` or NATURAL makes equal. Raises ExpressionError."""
    using = join.args.get("using")
    if using is None:
        right = {column.name for column in sides.right.columns if not column.hidden}
        names = [column.name for column in sides.left.columns if column.name in right and not column.hidden]
        if not names:
            raise compiler.error(
                join.this, "NATURAL JOIN: the sides have no column name in common", "write ON a.x = b.x"
            )
        using = [exp.column(exp.to_identifier(name, quoted=True)) for name in dict.fromkeys(names)]
    pairs = []
    for each in using:
        name = each if isinstance(each, exp.Column) else exp.column(each)
        pairs.append((resolve(sides.left, name, compiler.text)[0], resolve(sides.right, name, compiler.text)[0]))
    return pairs


def _with_one_of_each(relation: Relation, pairs: Sequence[tuple[Column, Column]], how: str) -> Relation:
    """Make one column of each pair, before all others: the one that is not NULL."""
    columns = list(relation.columns)
    stream, shown = relation.stream, []
    for mine, other in pairs:
        places = [next(i for i, c in enumerate(columns) if c.physical == each.physical) for each in (mine, other)]
        left, right = (columns[place] for place in places)
        if how == "full":
            name = unused_name(f"__using_{left.name}", relation.schema)
            both = [text_of(physical(each.physical)) for each in (left, right)]
            stream = stream.with_columns(**{name: f"coalesce({both[0]}, {both[1]})"})
            shown.append(Column(left.name, name))
        else:
            kept = right if how == "right" else left
            shown.append(replace(kept, name=left.name, table=None, hidden=False))
        for place in places:
            columns[place] = replace(columns[place], hidden=True)
    return replace(relation, stream=stream, columns=(*shown, *columns))


def sides_of(left: Relation, right: Relation, alias: str) -> Sides:
    """Return two relations whose physical columns are called differently."""
    taken = set(left.schema)
    names = {}
    for name in right.schema:
        target = name if name not in taken else unused_name(f"{alias or 'right'}__{name}", taken)
        taken.add(target)
        names[name] = target
    renamed = {old: new for old, new in names.items() if old != new}
    stream = right.stream.rename(renamed) if renamed else right.stream
    columns = tuple(replace(c, physical=names.get(c.physical, c.physical)) for c in right.columns)
    right = replace(right, stream=stream, columns=columns)
    both = Relation(left.stream, (*left.columns, *right.columns))
    return Sides(left, right, both)


def touches(compiler: QueryCompiler, sides: Sides, node: exp.Expr) -> str:
    """Return which sides an expression reads: "left", "right", "both", "none", or "other" for what is none of theirs."""
    left = {column.physical for column in sides.left.columns}
    found = set()
    for column in own_columns(node):
        if OUTSIDE in column.meta:
            return "other"
        try:
            meant, _ = resolve(sides.both, column, compiler.text)
        except ExpressionError:
            return "other"  # of the query around, or wrong: whoever compiles it says so
        found.add("left" if meant.physical in left and meant in sides.left.columns else "right")
    return found.pop() if len(found) == 1 else "both" if found else "none"


def _pushed(
    compiler: QueryCompiler, sides: Sides, conditions: Sequence[exp.Expr], how: str
) -> tuple[Sides, list[exp.Expr]]:
    """Let conditions of WHERE on one side filter before the join, where that keeps the result."""
    moved: list[exp.Expr] = []
    left, right = sides.left, sides.right
    for each in conditions:
        if each.find(exp.Select) is not None:
            continue
        where = touches(compiler, sides, each)
        if where == "left" and how in ("inner", "left") and left.ranking is None:
            left = compiler.where(left, [each])
            moved.append(each)
        elif where == "right" and how == "inner" and right.ranking is None:
            right = compiler.where(right, [each])
            moved.append(each)
    return replace_sides(sides, left, right), moved


def replace_sides(sides: Sides, left: Relation, right: Relation) -> Sides:
    return Sides(left, right, Relation(left.stream, (*left.columns, *right.columns)), sides.keys, sides.rest)


def split_condition(compiler: QueryCompiler, sides: Sides, on: Sequence[exp.Expr]) -> Sides:
    """Find the pairs of equal columns in a join's condition; expressions in them become columns of their side."""
    left, right = sides.left, sides.right
    keys: list[tuple[str, str]] = []
    rest: list[exp.Expr] = []
    for each in on:
        while isinstance(each, exp.Paren):
            each = each.this
        pair = _equal_pair(compiler, sides, each)
        if pair is None:
            rest.append(each)
            continue
        kinds = [
            Translator(side, compiler.text, compiler.catalog.functions, compiler.catalog.zone).type_of(part)
            for side, part in zip((left, right), pair, strict=True)
        ]
        common = common_type(kinds[0], kinds[1])
        if common is None:
            raise compiler.error(
                each, f"{types.word_for(kinds[0])} and {types.word_for(kinds[1])} are never equal", "CAST one of them"
            )
        used = [{one for one, _ in keys}, {other for _, other in keys}]
        names = [_plain_key(compiler, side, part, common) for side, part in zip((left, right), pair, strict=True)]
        if tuple(names) in keys:
            continue
        # A column that is a key already is copied: each key has a column of its own on both sides.
        for place, taken in enumerate(used):
            names[place] = None if names[place] in taken else names[place]
        left, left_key = _key_column(compiler, left, pair[0], common, names[0], f"__left_key_{len(keys)}")
        right, right_key = _key_column(compiler, right, pair[1], common, names[1], f"__right_key_{len(keys)}")
        keys.append((left_key, right_key))
    made = replace_sides(sides, left, right)
    made.keys, made.rest = keys, rest
    return made


def _equal_pair(compiler: QueryCompiler, sides: Sides, node: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    if not isinstance(node, exp.EQ) or any(
        _is_processing(compiler, sides.both, part) for part in (node.left, node.right) if isinstance(part, exp.Column)
    ):
        return None
    where = [touches(compiler, sides, part) for part in (node.left, node.right)]
    if where == ["left", "right"]:
        return node.left, node.right
    if where == ["right", "left"]:
        return node.right, node.left
    return None


def _plain_key(compiler: QueryCompiler, side: Relation, node: exp.Expr, common: Any) -> str | None:
    """Return the column that holds a key as it is to be compared; None where it has to be made."""
    translator = compiler.translator(side)
    made = translator.translate(node)
    kind = translator.compile(made).data_type
    is_plain = isinstance(made, exp.Column) and (kind == common or (kind.is_integer() and common.is_integer()))
    return str(made.name) if is_plain else None


def _key_column(
    compiler: QueryCompiler, side: Relation, node: exp.Expr, common: Any, plain: str | None, wanted: str
) -> tuple[Relation, str]:
    """Return a side with the column of a key: the plain one, or one that is made under the wanted name."""
    if plain is not None:
        return side, plain
    translator = compiler.translator(side)
    made = translator.translate(node)
    if translator.compile(made).data_type != common and types.word_for(common) is not None:
        made = cast(made, str(types.word_for(common)))
    name = unused_name(wanted, side.schema)
    return replace(side, stream=side.stream.with_columns(**{name: text_of(made)})), name


def joined_sides(
    compiler: QueryCompiler,
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
        raise compiler.error(item, "ROW_NUMBER() needs a condition on it before its rows are joined", "WHERE rn = 1")
    from headrace_sql.compiling.window_join import in_windows, window_join

    sides = split_condition(compiler, sides, on)
    if not sides.keys and how != "inner":
        sides = _with_one_key(sides)
    in_window = window_join(sides)
    if in_window is not None:
        return in_windows(sides, in_window, how, residual(compiler, sides))
    options: dict[str, Any] = {}
    bound = _time_bound(compiler, sides)
    if bound is not None:
        (low, high), times, sides.rest = bound
        by_clock = times == _BY_CLOCK
        options = {"within": (f"{low} us", f"{high} us"), **({"by_clock": True} if by_clock else {"time": times})}
    else:
        options = compiler.state_ttls.of_join(*names)
        sides = with_one_watermark(sides)
    condition = residual(compiler, sides)
    stream = sides.left.stream.join(
        sides.right.stream,
        sides.keys,
        how=how,
        where=condition,
        suffix=hidden_suffix(sides.left.stream.schema, sides.right.stream.schema),
        **options,
    )
    keeps_times = (bound is not None and "time" in options) or (has_watermark(stream._edge) and sides.has_one_watermark)
    keeps_times = keeps_times and changes_of(stream._edge) is None
    columns = [_after_join(column, bounded=keeps_times) for column in sides.both.columns]
    return Relation(stream, tuple(columns))


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
    if has_watermark(sides.left.stream._edge) == has_watermark(sides.right.stream._edge):
        return sides
    made = []
    for side, name in ((sides.left, "__left_no_time"), (sides.right, "__right_no_time")):
        if has_watermark(side.stream._edge):
            made.append(side)
            continue
        timed = side.stream.with_columns(**{name: "CAST(NULL AS TIMESTAMP_NTZ)"})
        made.append(replace(side, stream=timed._operator(WATERMARK_VERB, name)))
    held = replace_sides(sides, *made)
    held.has_one_watermark = True
    return held


def _after_join(column: Column, *, bounded: bool) -> Column:
    """A join without bound keeps rows for ever: their times are plain columns then, but where a side waits for the other."""
    return column if bounded or column.time == "processing" else replace(column, time=None)


def residual(compiler: QueryCompiler, sides: Sides) -> str | None:
    """Return what is left of the condition as text over the columns of both sides."""
    if not sides.rest:
        return None
    for each in sides.rest:
        _refuse_clock(compiler, sides.both, each)
    translator = _PairTranslator(sides.both, compiler.text, compiler.catalog.functions, compiler.catalog.zone)
    translator.schema = _pair_schema(sides)
    return " AND ".join(f"({translator.sql(each)})" for each in sides.rest)


def _refuse_clock(compiler: QueryCompiler, relation: Relation, node: exp.Expr) -> None:
    """Raise ExpressionError for a condition on pairs of rows that reads processing time: its rows would be kept for ever."""
    # The columns of a query in the condition are its own.
    for part in node.walk(prune=lambda each: isinstance(each, exp.Query)):
        is_column = isinstance(part, exp.Column) and _is_processing(compiler, relation, part)
        if is_column or (isinstance(part, exp.Anonymous) and part.name.upper() == "PROCTIME"):
            raise compiler.error(
                node,
                "a join compares processing times only within a bound on both sides",
                "a.proc BETWEEN b.proc - INTERVAL '10' SECOND AND b.proc + INTERVAL '10' SECOND, both of PROCTIME()",
            )


def _is_processing(compiler: QueryCompiler, relation: Relation, node: exp.Column) -> bool:
    return resolve(relation, node, compiler.text)[0].time == "processing"


def _pair_schema(sides: Sides) -> Any:
    from headrace.flow.schema import Schema

    return Schema({**sides.left.schema, **sides.right.schema})


class _PairTranslator(Translator):
    """Translates conditions on pairs of rows."""


def _time_bound(
    compiler: QueryCompiler, sides: Sides
) -> tuple[tuple[int, int], tuple[str, str], list[exp.Expr]] | None:
    """Return ((lowest, highest), time columns, rest) where the condition bounds right time minus left time, else None."""
    if is_updating(sides.left) or is_updating(sides.right):
        return None
    low: int | None = None
    high: int | None = None
    times: tuple[str, str] | None = None
    rest: list[exp.Expr] = []
    for each in sides.rest:
        found = _bound(compiler, sides, each)
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
    compiler: QueryCompiler, sides: Sides, node: exp.Expr
) -> tuple[tuple[int | None, int | None], tuple[str, str]] | None:
    """Read ``right.t >= left.t - INTERVAL …`` and its like. The columns are ``_BY_CLOCK`` for processing time."""
    if not isinstance(node, exp.GT | exp.GTE | exp.LT | exp.LTE | exp.EQ):
        return None
    first, second = (_shifted(compiler, sides, part) for part in (node.left, node.right))
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


def _shifted(compiler: QueryCompiler, sides: Sides, node: exp.Expr) -> tuple[str, str, int] | None:
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
        inner = _shifted(compiler, sides, node.this)
        months, micros = interval_length(node.expression, compiler.text)
        if inner is None or months:
            return None
        return inner[0], inner[1], inner[2] + (micros if isinstance(node, exp.Add) else -micros)
    if not isinstance(node, exp.Column):
        return None
    where = touches(compiler, sides, node)
    if where not in ("left", "right"):
        return None
    column, fields = resolve(sides.both, node, compiler.text)
    if fields or column.time is None:
        return None
    return where, "" if column.time == "processing" else column.physical, 0


__all__ = ["Join", "Sides", "joined", "nodes", "physical", "sides_of", "split_condition"]
