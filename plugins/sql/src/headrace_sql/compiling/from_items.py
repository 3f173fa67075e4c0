"""One item of FROM: tables, views, derived tables, window functions of tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.foundation.errors import did_you_mean
from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.intervals import interval_us
from headrace_sql.binding.scope import Column, Relation, resolve, unused_name
from headrace_sql.binding.trees import physical, text_of
from headrace_sql.compiling.changelog_tables import changelog_table
from headrace_sql.compiling.window_assign import assigned
from headrace_sql.operators.window_assign import TableWindow
from headrace_sql.reading import nodes
from headrace_sql.reading.table_hints import OPTIONS


def windowed(context: Context, node: exp.Expr, relation: Relation) -> Relation:
    """Make the columns of a table's window before its rows are joined."""
    if relation.table_window is None:
        return relation
    if relation.table_window.on is None:
        raise context.error(node, "windows of processing time can only be aggregated")

    return assigned(relation)


def from_item(context: Context, node: exp.Expr) -> Relation:
    """Return the relation of one item of FROM under its alias."""
    alias = node.args.get("alias")
    name = alias.name if isinstance(alias, exp.Expr) else ""
    columns = [each.name for each in (alias.args.get("columns") or ())] if isinstance(alias, exp.TableAlias) else []
    if isinstance(node, nodes.WindowTable):
        return _window_table(context, node).named(name or None, columns)
    if isinstance(node, nodes.ChangelogTable):
        given = context.settled(node, named_table(context, node.args["input"]))
        return changelog_table(context, node, given).named(name or None, columns)
    if isinstance(node, exp.Subquery):
        return context.query(node.this).named(name or None, columns)
    if isinstance(node, exp.Table):
        _check_table(context, node)
        relation = named_table(context, node)
        if columns and len(columns) != len(relation.columns):
            raise context.error(node, f"{len(columns)} names for {len(relation.columns)} columns")
        return relation.named(name or node.name, columns)
    if isinstance(node, exp.Values):
        relation = context.query(node)
        if columns and len(columns) != len(relation.columns):
            raise context.error(node, f"{len(columns)} names for {len(relation.columns)} columns")
        return relation.named(name or None, columns)
    if isinstance(node, exp.Paren):
        return from_item(context, node.this)
    raise context.error(node, f"{type(node).__name__.upper()} is not supported in FROM")


def named_table(context: Context, node: exp.Table) -> Relation:
    """Return what a name in FROM means: a part of WITH, a table, a view."""
    if node.name in context.common and OPTIONS not in node.meta and not node.text("db"):
        return context.common[node.name]
    options = node.meta.get(OPTIONS)
    if options:
        return context.catalog.hinted(context.catalog.key_of(node), options, node.this, context.text)
    return context.catalog.relation(context.catalog.key_of(node), node.this, context.text)


def _check_table(context: Context, node: exp.Table) -> None:
    for key, value in node.args.items():
        if value and key not in ("this", "alias", "db", "catalog", "version", "joins"):
            raise context.error(node, f"{key.upper()} is not supported in FROM")


def pruned(context: Context, node: exp.Select, relation: Relation) -> Relation:
    """Leave out columns that nothing of the query names: joins keep their rows."""
    wanted: set[str] = set()
    if any(join.args.get("method") for join in node.args.get("joins") or ()):
        return relation  # NATURAL: the columns that both sides have count, named or not
    tables = {column.table.lower() for column in relation.columns if column.table}
    for each in node.walk():
        if isinstance(each, exp.Star) and not isinstance(each.parent, exp.Anonymous | exp.Count):
            of_table = each.parent.table.lower() if isinstance(each.parent, exp.Column) else ""
            if not of_table or of_table in tables:
                return relation
        if isinstance(each, exp.Identifier):
            wanted.add(each.name.lower())
    kept = [c for c in relation.columns if c.name.lower() in wanted or c.time is not None]
    real = [c.physical for c in kept if c.physical in relation.schema]
    if (
        not real
        or relation.ranking is not None
        or relation.table_window is not None
        or len(real) == len(relation.schema)
    ):
        return relation
    stream = relation.stream.select(*(text_of(physical(name)) for name in dict.fromkeys(real)))
    return replace(relation, stream=stream, columns=tuple(kept))


def _window_table(context: Context, node: nodes.WindowTable) -> Relation:
    source = node.args["source"]
    # Windows lie between the numbers of rows and any condition on them.
    relation = context.settled(source, named_table(context, source)).named(source.name)
    column, fields = resolve(relation, node.args["descriptor"], context.text)
    if column.time is None or fields:
        raise context.error(
            node.args["descriptor"],
            f"DESCRIPTOR needs a time attribute, and {column.name!r} is none",
            f"declare WATERMARK FOR {column.name} in its table, or a column AS PROCTIME()",
        )
    lengths = []
    for each in node.expressions:
        lengths.append((each.meta.get("name", ""), interval_us(each, context.text, "a window")))
    window = _made_window(context, node, lengths, None if column.time == "processing" else column.physical)
    if window.kind != "session":
        length = window.size_us if window.kind == "cumulative" else window.every_us
        moved = window.offset_us + context.window_offset_us(node, relation, window.on, length)
        window = replace(window, offset_us=moved)
    if node.args.get("partition_by"):
        keys = [resolve(relation, each, context.text)[0].physical for each in node.args["partition_by"]]
        if window.kind != "session":
            raise context.error(node, "only SESSION windows have PARTITION BY")
        window = replace(window, partition=tuple(keys))
    added = [
        Column(name, unused_name(f"__{name}", relation.schema), source.name, time, kind)
        for name, kind, time in (("window_start", "start", None), ("window_end", "end", None), ("window_time", "time", column.time))
    ]  # fmt: skip
    # The bounds of an earlier window are columns like any other now.
    before = tuple(replace(each, window=None) for each in relation.columns)
    return replace(relation, columns=(*before, *added), table_window=window, base=None, unique=())


def _made_window(context: Context, node: Any, lengths: list[tuple[str, int]], on: str | None) -> TableWindow:
    name = node.name
    sizes = {word: length for word, length in lengths if word}
    plain = [length for word, length in lengths if not word]
    offset = sizes.get("OFFSET", 0)

    def taken(word: str) -> int:
        if word in sizes:
            return sizes[word]
        if not plain:
            raise context.error(node, f"{name} needs the length {word}")
        return plain.pop(0)

    if name == "TUMBLE":
        size = taken("SIZE")
        made = TableWindow("tumbling", size, size, plain.pop(0) if plain else offset, on)
    elif name == "SESSION":
        gap = taken("GAP")
        made = TableWindow("session", gap, gap, 0, on)
    else:
        step = taken("SLIDE" if name == "HOP" else "STEP")
        size = taken("SIZE")
        kind: Any = "sliding" if name == "HOP" else "cumulative"
        made = TableWindow(kind, size, step, plain.pop(0) if plain else offset, on)
    if made.size_us <= 0 or made.every_us <= 0:
        raise context.error(node, f"{name}: the length of a window must be greater than 0")
    if made.kind != "sliding" and abs(made.offset_us) >= made.size_us:
        raise context.error(node, f"{name}: the offset must be less than the length of the windows")
    made = replace(made, offset_us=made.offset_us % (made.size_us if made.kind == "cumulative" else made.every_us))
    if plain:
        raise context.error(
            node, f"{name}: these lengths do not fit each other", did_you_mean(name, [name], known="windows")
        )
    return made
