"""GROUP BY: running aggregates, windows, grouping sets."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from headrace.interfaces.windows import Window
from headrace.jobs.keyed import shuffled
from headrace_stateful.windows.window_shape import WINDOW_END, WINDOW_RESULT, WINDOW_START
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.context import Context
from headrace_sql.binding.expression_parts import AROUND_CALL, aggregates_in, conjuncts, given_to_over
from headrace_sql.binding.expressions import Translator, part_key
from headrace_sql.binding.intervals import interval_length
from headrace_sql.binding.json_calls import aggregated_json
from headrace_sql.binding.scope import Column, Relation, resolve, standing_for, unused_name
from headrace_sql.binding.trees import physical, text_of
from headrace_sql.compiling.over import with_over
from headrace_sql.compiling.predicates import of_groups
from headrace_sql.compiling.scalars import with_scalars
from headrace_sql.compiling.sets import united
from headrace_sql.operators.window_assign import TableWindow
from headrace_sql.operators.window_results import TimedResults, WithoutEqualUpdates
from headrace_sql.reading import nodes

_GROUP_WINDOWS = ("TUMBLE", "HOP", "SESSION")
_MILLISECOND_US = 1_000
#: Column for the last moment of a window, where it is asked for.
_LAST_MOMENT = "__last_moment"


@dataclass(frozen=True)
class _Grouping:
    """What one GROUP BY asks for. ``keys`` maps the text of each key to its physical column."""

    keys: dict[str, str]
    window: Window | None
    #: Texts of parts that mean window columns: TUMBLE_START(…) or window_start.
    window_parts: dict[str, str]
    #: Keys that are NULL in this grouping set.
    absent: tuple[str, ...] = ()


def aggregated(context: Context, node: exp.Select, relation: Relation) -> Relation:
    """Return the output of a SELECT with aggregates or GROUP BY."""
    group = node.args.get("group")
    sets = _grouping_sets(context, group)
    if len(sets) == 1:
        return _one_set(context, node, relation, sets[0], sets[0])

    every = list({part_key(relation, each, context.text): each for parts in sets for each in parts}.values())
    return united([_one_set(context, node, relation, parts, every) for parts in sets])


def _grouping_sets(context: Context, group: exp.Group | None) -> list[list[exp.Expr]]:
    """Return the lists of keys: one, or several with GROUPING SETS, CUBE and ROLLUP."""
    if group is None:
        return [[]]
    made: list[list[exp.Expr]] = [[]]

    def times(choices: list[list[exp.Expr]]) -> None:
        nonlocal made
        made = [[*mine, *other] for mine in made for other in choices]

    for each in [
        *group.expressions,
        *(e for key in ("grouping_sets", "cube", "rollup") for e in group.args.get(key) or ()),
    ]:
        if isinstance(each, exp.GroupingSets):
            times([_parts(part) for part in each.expressions])
        elif isinstance(each, exp.Cube):
            parts = [_parts(part) for part in each.expressions]
            subsets: list[list[exp.Expr]] = [[]]
            for part in parts:
                subsets = [*([*s, *part] for s in subsets), *subsets]
            times(subsets)
        elif isinstance(each, exp.Rollup):
            parts = [_parts(part) for part in each.expressions]
            times([[e for part in parts[:count] for e in part] for count in range(len(parts), -1, -1)])
        else:
            times([[each]])
    if group.args.get("totals") or group.args.get("all"):
        raise context.error(group, "GROUP BY ALL and TOTALS are not supported")
    return made


def _parts(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    if isinstance(node, exp.Paren):
        return [node.this]
    return [node]


def _one_set(
    context: Context, node: exp.Select, relation: Relation, parts: Sequence[exp.Expr], every: Sequence[exp.Expr]
) -> Relation:
    parts = [_referred(node, relation, part) for part in parts]
    every = [_referred(node, relation, part) for part in every]
    grouping, relation = _keys(context, node, relation, parts)
    keys = list(dict.fromkeys(grouping.keys.values()))
    calls = _aggregate_calls(context, node)
    names: dict[str, str] = {}
    texts: dict[str, str] = {}
    given = context.translator(relation)
    for call in calls:
        text_key = given.key_of(call)
        if text_key not in names:
            names[text_key] = unused_name(f"__agg_{len(names)}", relation.schema)
            texts[names[text_key]] = _aggregate_text(given, call)
    stream, parts_of_window = _streamed(context, node, relation, grouping, keys, texts)
    replaced = {**grouping.keys, **names, **parts_of_window}
    stream, replaced = _with_absent(context, relation, stream, every, replaced)
    columns = _result_columns(relation, grouping, stream)
    made = Relation(stream, columns, unique=_unique(grouping, keys, stream))
    having = conjuncts(node.args["having"].this if node.args.get("having") else None)

    def translated(made: Relation) -> _GroupTranslator:
        return _GroupTranslator(made, relation, context, replaced, parts, every)

    node, made, having = _with_scalars(context, node, made, having, (replaced, translated))
    translator = translated(made)
    for condition in having:
        made = replace(made, stream=made.stream.where(translator.sql(condition)))
        translator.relation = made
    return _selected(context, node, relation, made, translator)


def _with_scalars(
    context: Context,
    node: exp.Select,
    made: Relation,
    having: list[exp.Expr],
    groups: tuple[dict[str, str], Any],
) -> tuple[exp.Select, Relation, list[exp.Expr]]:
    """Make columns of the scalar subqueries in SELECT and HAVING beside those of the groups."""
    if not any(each.find(exp.Query) for each in (*node.expressions, *having)):
        return node, made, having

    replaced, translated = groups
    made, changed = of_groups(context, made, [*node.expressions, *having], translated(made).sql)
    compared = [column for column in made.columns if column.name.startswith("__compared")]
    made, nodes, columns = with_scalars(
        context, made, changed, replace(made, columns=tuple(compared)) if compared else None
    )
    columns = [*columns, *compared]
    replaced.update({part_key(made, standing_for(column), context.text): column.physical for column in columns})
    copy = node.copy()
    copy.set("expressions", nodes[: len(node.expressions)])
    return copy, made, nodes[len(node.expressions) :]


def _referred(node: exp.Select, relation: Relation, part: exp.Expr) -> exp.Expr:
    """Return the expression of a key that names an item of SELECT: ``GROUP BY 1``, or an alias that is not a column."""
    if (
        isinstance(part, exp.Literal)
        and not part.is_string
        and part.name.isdigit()
        and int(part.name) <= len(node.expressions)
    ):
        item: exp.Expr = node.expressions[int(part.name) - 1]
        named: exp.Expr = item.this
        return named if isinstance(item, exp.Alias) else item
    if isinstance(part, exp.Column) and len(part.parts) == 1 and not relation.find(part.name):
        for item in node.expressions:
            if isinstance(item, exp.Alias) and item.alias == part.name:
                meant: exp.Expr = item.this
                return meant
    return part


def _keys(
    context: Context, node: exp.Select, relation: Relation, parts: Sequence[exp.Expr]
) -> tuple[_Grouping, Relation]:
    """Return the keys of one grouping as columns of the stream, and the window among them."""
    window: Window | None = None
    window_parts: dict[str, str] = {}
    keys: dict[str, str] = {}
    table_window = False
    computed: dict[str, str] = {}
    translator = context.translator(relation)
    for part in parts:
        if isinstance(part, exp.Anonymous) and part.name.upper() in _GROUP_WINDOWS:
            if window is not None:
                raise context.error(part, "a query can have only one group window")
            window = _group_window(context, relation, part)
            continue
        column = resolve(relation, part, context.text)[0] if isinstance(part, exp.Column) else None
        if column is not None and column.window is not None and relation.table_window is not None:
            table_window = True
            window_parts[translator.key_of(part)] = {"start": WINDOW_START, "end": WINDOW_END, "time": _LAST_MOMENT}[
                column.window
            ]
            continue
        made = translator.translate(part)
        if isinstance(made, exp.Column):
            keys[translator.key_of(part)] = made.name
            continue
        name = unused_name(f"__key_{len(computed)}", relation.schema)
        computed[name] = translator.sql(part)
        keys[translator.key_of(part)] = name
    if table_window:
        window = _of_table(
            relation.table_window, {c.window for c in _window_columns_in(context, relation, parts)}, context, node
        )
    if computed:
        relation = replace(relation, stream=relation.stream.with_columns(**computed))
    return _Grouping(keys, window, window_parts), relation


def _window_columns_in(context: Context, relation: Relation, parts: Sequence[exp.Expr]) -> list[Column]:
    found = [resolve(relation, part, context.text)[0] for part in parts if isinstance(part, exp.Column)]
    return [column for column in found if column.window is not None]


def _of_table(window: TableWindow | None, kinds: set[str | None], context: Context, node: exp.Select) -> Window:
    assert window is not None
    if not {"start", "end"} <= kinds:
        raise context.error(node.args.get("group"), "GROUP BY needs both window_start and window_end")
    return Window(window.kind, window.size_us, window.every_us, window.on, window.offset_us)


def _group_window(context: Context, relation: Relation, node: exp.Anonymous) -> Window:
    """Return the window of TUMBLE(ts, size), HOP(ts, slide, size), SESSION(ts, gap)."""
    name, arguments = node.name.upper(), node.expressions
    if not arguments or not isinstance(arguments[0], exp.Column):
        if arguments and isinstance(arguments[0], exp.Anonymous) and arguments[0].name.upper() == "PROCTIME":
            on: str | None = None
        else:
            raise context.error(node, f"{name} needs a time attribute", f"{name}(ts, INTERVAL '1' MINUTE)")
    else:
        column, _ = resolve(relation, arguments[0], context.text)
        if column.time is None:
            raise context.error(
                arguments[0],
                f"{column.name!r} is not a time attribute",
                f"declare WATERMARK FOR {column.name} in its table, or a column AS PROCTIME()",
            )
        on = None if column.time == "processing" else column.physical
    lengths = []
    for each in arguments[1:]:
        months, micros = interval_length(each, context.text)
        if months or micros <= 0:
            raise context.error(each, "the length of a window must be given in days or smaller units")
        lengths.append(micros)
    wanted = 2 if name == "HOP" else 1
    if len(lengths) not in (wanted, wanted + 1):
        raise context.error(node, f"{name} takes {wanted} length{'s' if wanted > 1 else ''}")
    offset = lengths[wanted] if len(lengths) > wanted else 0
    if name != "SESSION":
        offset += context.window_offset_us(node, relation, on, lengths[0])
    if name == "TUMBLE":
        return Window("tumbling", lengths[0], lengths[0], on, offset)
    if name == "HOP":
        return Window("sliding", lengths[1], lengths[0], on, offset)
    return Window("session", lengths[0], lengths[0], on)


def _aggregate_calls(context: Context, node: exp.Select) -> list[exp.Expr]:
    parts = [*node.expressions, *([node.args["having"].this] if node.args.get("having") else [])]
    parts += [
        part for each in node.expressions for window in each.find_all(exp.Window) for part in given_to_over(window)
    ]
    return [call for part in parts for call in aggregates_in(part, context.catalog.functions)]


def _aggregate_text(translator: Translator, node: exp.Expr) -> str:
    """Return an aggregate for ``agg``."""
    filtered = ""
    if isinstance(node, exp.Filter):
        filtered = f" FILTER (WHERE {translator.sql(node.expression.this)})"
        node = node.this
    if isinstance(node, nodes.JsonCall):
        value, (before, behind) = aggregated_json(translator, node)
        return f"{before}collect({text_of(value)}){filtered}{behind}"
    name = node.name.upper()
    arguments = list(node.expressions)
    is_distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
    if is_distinct:
        arguments = list(arguments[0].expressions)
    if any(isinstance(each, exp.Star) for each in arguments):
        return f"count(*){filtered}"
    for each in arguments:
        if aggregates_in(each, translator.functions):
            raise translator.error(
                each, "an aggregate cannot contain another aggregate", "compute the inner aggregate in a derived table"
            )
    texts = [translator.sql(each) for each in arguments]
    distinct = "DISTINCT " if is_distinct else ""
    if name in ("LISTAGG", "STRING_AGG", "CONCAT_AGG"):
        texts = [
            text_of(translator.folded(translator.translate(each))) for each in arguments
        ]  # the separator is a constant
        if name == "CONCAT_AGG" and len(texts) == 2:
            texts.reverse()  # Blink's separator stands first
        return (
            f"listagg({distinct}{', '.join(texts if len(texts) > 1 else [*texts, chr(39) + ',' + chr(39)])}){filtered}"
        )
    if name == "AVG" and len(arguments) == 1:
        return _average(translator, arguments[0], texts[0], distinct, filtered)
    made = f"{name.lower()}({distinct}{', '.join(texts)}){filtered}"
    if (name == "SUM" or name.startswith(("STDDEV", "VAR"))) and len(arguments) == 1:
        return _as_its_argument(name, translator.type_of(arguments[0]), made)
    return made


def _as_its_argument(name: str, kind: Any, text: str) -> str:
    """Deviations have the type of their argument, as in Flink: whole numbers are cut, decimals have six digits at least.

    So have sums of FLOAT.
    """
    if isinstance(kind, pl.Float32):
        return f"CAST({text} AS FLOAT32)"
    if name == "SUM":
        return text
    if kind.is_integer():
        return f"CAST({text} AS {types.word_for(kind)})"
    return f"CAST({text} AS DECIMAL(38, {max(6, kind.scale)}))" if kind.is_decimal() else text


def _average(translator: Translator, node: exp.Expr, text: str, distinct: str, filtered: str) -> str:
    """AVG of whole numbers is a whole number, cut toward zero; of decimals it has six digits behind the point at least."""
    kind = translator.type_of(node)
    total, count = f"sum({distinct}{text}){filtered}", f"count({distinct}{text}){filtered}"
    if kind.is_integer():
        return f"{total} / nullif({count}, 0)"
    if isinstance(kind, pl.Float32):
        return f"CAST({total} AS FLOAT32) / nullif({count}, 0)"  # the sum of FLOAT is rounded before it is divided
    return f"avg({distinct}{text}){filtered}"


def _streamed(
    context: Context,
    node: exp.Select,
    relation: Relation,
    grouping: _Grouping,
    keys: list[str],
    texts: dict[str, str],
) -> tuple[Any, dict[str, str]]:
    """Append the aggregation. Returns the stream and the parts of the query that mean window columns."""
    window = grouping.window
    stream = relation.stream
    if window is None:
        attached = attached_window(relation, keys)
        if attached is not None:
            return _in_attached(stream, keys, attached, texts), {}
        options = context.state_ttls.of_aggregate(node)
        if not texts:
            return _distinct_keys(stream, keys, options), {}
        return shuffled(stream, tuple(keys)).operator("aggregate", tuple(keys), texts, **options), {}
    texts = texts or {"__agg_rows": "count(*)"}
    emit = context.catalog.emit
    result = stream.key_by(*keys).window(window, emit=emit).agg(**texts)
    if emit is not None:
        result = result.drop(WINDOW_RESULT).apply(WithoutEqualUpdates())
    return result, {**_group_window_parts(context, node, relation), **grouping.window_parts}


def _distinct_keys(stream: Any, keys: list[str], options: dict[str, str]) -> Any:
    """GROUP BY without aggregates: each combination of keys once."""
    return shuffled(stream, tuple(keys)).operator("aggregate", tuple(keys), {"__agg_rows": "count(*)"}, **options)


def attached_window(relation: Relation, keys: list[str]) -> Column | None:
    """Return the window's end among the keys, where rows are results of windows: then each group ends with its window."""
    chosen = {c.window: c for c in relation.columns if c.window is not None and c.physical in keys}
    return chosen["end"] if {"start", "end"} <= set(chosen) and chosen["end"].time is None else None


def _in_attached(stream: Any, keys: list[str], end: Column, texts: dict[str, str]) -> Any:
    """Aggregate results of windows by their window: all rows of one window have the same last millisecond."""
    moment = unused_name("__window_moment", stream.schema)
    last = f"{text_of(physical(end.physical))} - INTERVAL '1' MILLISECOND"
    timed = stream.with_columns(**{moment: last})
    # The aggregation has columns of these names itself.
    own = {name: f"__own_{name}" for name in keys if name in (WINDOW_START, WINDOW_END)}
    timed = timed.rename(own) if own else timed
    window = Window("tumbling", _MILLISECOND_US, _MILLISECOND_US, moment)
    keyed = timed.key_by(*(own.get(name, name) for name in keys)).window(window)
    made = keyed.agg(**(texts or {"__agg_rows": "count(*)"}))
    kept = [own.get(name, name) for name in keys] + list(texts)
    back = {new: old for old, new in own.items()}
    return made.select(**{back.get(name, name): text_of(physical(name)) for name in kept})


def _group_window_parts(context: Context, node: exp.Select, relation: Relation) -> dict[str, str]:
    """Return the column of each call of TUMBLE_START and similar functions."""
    made = {}
    for part in [*node.expressions, *([node.args["having"]] if node.args.get("having") else [])]:
        for call in part.find_all(exp.Anonymous):
            name, _, what = call.name.upper().rpartition("_")
            if name in _GROUP_WINDOWS and what in ("START", "END", "ROWTIME", "PROCTIME"):
                target = {"START": WINDOW_START, "END": WINDOW_END}.get(what, _LAST_MOMENT)
                made[part_key(relation, call, context.text)] = target
    return made


def _with_absent(
    context: Context, relation: Relation, stream: Any, every: Sequence[exp.Expr], replaced: dict[str, str]
) -> tuple[Any, dict[str, str]]:
    """Add the keys of other grouping sets as NULL, and the last moment of windows where it is asked for."""
    added: dict[str, str] = {}
    translator = context.translator(relation)
    for part in every:
        key = translator.key_of(part)
        if key in replaced or (isinstance(part, exp.Anonymous) and part.name.upper() in _GROUP_WINDOWS):
            continue
        name = unused_name(f"__absent_{len(added)}", stream.schema)
        word = types.word_for(translator.type_of(part))
        added[name] = f"CAST(NULL AS {word})" if word else "NULL"
        replaced = {**replaced, key: name}
    if _LAST_MOMENT in replaced.values():
        added[_LAST_MOMENT] = f"{WINDOW_END} - INTERVAL '1' MILLISECOND"
    stream = stream.with_columns(**added) if added else stream
    return (stream.apply(TimedResults()) if _LAST_MOMENT in added else stream), replaced


def _unique(grouping: _Grouping, keys: Sequence[str], stream: Any) -> tuple[tuple[str, ...], ...]:
    """Return the sets of columns in whose values no two results of windows are equal."""
    if stream.changes is not None or not set(keys) <= set(stream.schema or {}):
        return ()
    if grouping.window is None:
        return (tuple(keys),)
    # Sessions of several keys may begin, or end, at one moment; of cumulative windows several begin at one.
    bounds: dict[str, list[tuple[str, ...]]] = {"session": [(WINDOW_START, WINDOW_END)], "cumulative": [(WINDOW_END,)]}
    sets = bounds.get(grouping.window.kind, [(WINDOW_START,), (WINDOW_END,)])
    return tuple((*keys, *each) for each in sets if set(each) <= set(stream.schema or {}))


def _result_columns(relation: Relation, grouping: _Grouping, stream: Any) -> tuple[Column, ...]:
    known = {c.physical: c for c in relation.columns}
    made = []
    for name in stream.schema or {}:
        before = known.get(name)
        kind = before.window if before else None
        if grouping.window is not None:
            # A window of processing time has no moment at which its rows are all there, for whoever groups by it again.
            whole = {WINDOW_START: "start", WINDOW_END: "end", _LAST_MOMENT: "time"}
            bounds = whole if grouping.window.on is not None else {}
            kind = bounds.get(name)
        time: Any = "event" if name == _LAST_MOMENT else before.time if before is not None and kind is None else None
        made.append(Column(before.name if before else name, name, before.table if before else None, time, kind))
    if grouping.window is not None and _LAST_MOMENT not in (stream.schema or {}):
        made = [c for c in made if c.physical != "window_result"]
    return tuple(made)


class _GroupTranslator(Translator):
    """Translates expressions of a grouped query: keys and aggregates are columns, other columns are errors."""

    def __init__(
        self, made: Relation, before: Relation, context: Context, replaced: dict[str, str], parts: Sequence[exp.Expr],
        every: Sequence[exp.Expr],
    ) -> None:  # fmt: skip
        super().__init__(made, context.text, context.catalog.functions, context.catalog.zone, replaced, grouped=True)
        self.before = before
        self._present = {part_key(before, part, context.text) for part in parts}
        self._every = list(dict.fromkeys(part_key(before, part, context.text) for part in every))

    def key_of(self, node: exp.Expr) -> str:
        return part_key(self.before, node, self.text)

    def translate(self, node: Any) -> Any:
        if isinstance(node, exp.Anonymous) and node.name.upper() in ("GROUPING", "GROUPING_ID"):
            bits = 0
            for each in node.expressions:
                key = self.key_of(each)
                if key not in self._every:
                    raise self.error(each, f"{node.name}: this is not a key of GROUP BY")
                bits = bits * 2 + (key not in self._present)
            return exp.Literal.number(bits)
        if isinstance(node, exp.Anonymous) and node.name.upper() == "GROUP_ID" and not node.expressions:
            # As Flink's planner: the same as GROUPING_ID of all keys.
            absent = (key not in self._present for key in self._every)
            return exp.Literal.number(functools.reduce(lambda bits, is_absent: bits * 2 + is_absent, absent, 0))
        if isinstance(node, exp.Column) and self.key_of(node) not in self.replaced:
            column, _ = resolve(self.before, node, self.text)
            raise self.error(
                node, f"column {column.name!r} is neither grouped by nor in an aggregate",
                f"add it to GROUP BY, or write FIRST_VALUE({column.name})",
            )  # fmt: skip
        is_window_call = isinstance(node, exp.Anonymous) and node.name.upper().rpartition("_")[0] in _GROUP_WINDOWS
        if is_window_call and self.key_of(node) not in self.replaced:
            raise self.error(node, f"{node.name} does not belong to the window of GROUP BY")
        return super().translate(node)


def _selected(
    context: Context, node: exp.Select, before: Relation, made: Relation, translator: _GroupTranslator
) -> Relation:
    """Return what SELECT gives of the groups."""
    for item in node.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            raise context.error(item, "* is not allowed with GROUP BY", "name the keys and aggregates")
    listed = []
    known = {column.physical: column for column in made.columns}
    for item in node.expressions:
        alias, inner = (item.alias, item.this) if isinstance(item, exp.Alias) else (None, item)
        name = translator.replaced.get(translator.key_of(inner))
        column = known.get(name) if name is not None else None
        if alias is None and isinstance(inner, exp.Column):
            alias = inner.name
        is_proctime = isinstance(inner, exp.Anonymous) and inner.name.upper().endswith("_PROCTIME")
        if is_proctime:
            column = Column(alias or "EXPR", "", None, "processing")
        listed.append((alias, inner, column))
    if any(each[1].find(exp.Window) for each in listed):
        listed, made = _named_for_over(context, listed, made, translator)

        return with_over(context, made, listed)
    return context.selected(replace(made, table_window=None), listed, translator)


def _named_for_over(context: Context, listed: list[Any], made: Relation, translator: _GroupTranslator) -> Any:
    """Rewrite OVER behind GROUP BY: keys and aggregates in it become columns of the grouped stream."""

    def renamed(node: exp.Expr, *, is_call: bool = False) -> exp.Expr:
        """``is_call``: the function of OVER, which may be written as an aggregate of the groups is: COUNT(*)."""
        is_whole = is_call or isinstance(
            node, exp.Window | exp.Ordered | exp.Order
        )  # of one term the text may be that of a key
        name = None if is_whole else translator.replaced.get(translator.key_of(node))
        if name is not None:
            return exp.column(exp.to_identifier(name, quoted=True))
        copy = node.copy()
        for key, value in list(node.args.items()):
            if isinstance(value, list):
                copy.set(key, [renamed(each) if isinstance(each, exp.Expr) else each for each in value])
            elif isinstance(value, exp.Expr):
                holds_call = isinstance(node, exp.Window) or (is_call and isinstance(node, AROUND_CALL))
                copy.set(key, renamed(value, is_call=holds_call and key == "this"))
        return copy

    by_name = tuple(replace(column, name=column.physical, table=None) for column in made.columns)
    return [(alias, renamed(node), column) for alias, node, column in listed], replace(made, columns=by_name)
