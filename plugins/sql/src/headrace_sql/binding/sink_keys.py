"""INSERT into a table with a primary key: rows of results that are known by other columns, and ``ON CONFLICT``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace.foundation.errors import JobError
from headrace.jobs.keyed import has_watermark, shuffled
from headrace.plan.graph import Input, OperatorNode
from sqlglot import exp

from headrace_sql.binding.emitting import state_ttl
from headrace_sql.binding.scope import NO_TIMES, Column, Relation, error_at
from headrace_sql.operators.one_row_per_key import OneRowPerKey
from headrace_sql.operators.sinks import DeclareKey
from headrace_sql.reading.options import choice

if TYPE_CHECKING:
    from headrace.interfaces.sink import Sink
    from headrace.jobs.dsl import Stream

    from headrace_sql.binding.tables import Table


_REQUIRE = "table.exec.sink.require-on-conflict"


def is_known_by(relation: Relation, columns: Sequence[Column | None], kinds: Sequence[pl.DataType]) -> bool:
    """Return whether rows with the same values in these columns are the same row of the result: before and after, or the only one.

    ``kinds``: the types in which the columns are written.
    """
    changes = relation.stream.changes
    keys = relation.unique if changes is None else () if changes.key is None else (changes.key,)
    written = zip(columns, kinds, strict=True)
    apart = {c.physical for c, kind in written if c is not None and c.physical in relation.schema
             and _stay_apart(relation.schema[c.physical], kind)}  # fmt: skip
    return any(set(key) <= apart for key in keys)


def _stay_apart(have: pl.DataType, kind: pl.DataType) -> bool:
    """Return whether different values are still different when they are written as another type."""
    if have.is_integer():
        return kind.is_integer() or kind.is_decimal()
    return have == kind or (isinstance(have, pl.Datetime) and isinstance(kind, pl.Datetime))


def resolved(stream: Stream, key: Sequence[str], action: str, options: Mapping[str, Any]) -> Stream:
    """Return the rows of which one per key is written: with DEDUPLICATE the last, NOTHING the first, ERROR the only one."""
    ttl = state_ttl(options)
    parted = shuffled(stream, tuple(key))
    if action == "ERROR":
        return parted.apply(OneRowPerKey(key, **ttl))
    if action == "NOTHING":
        if stream.changes is None:
            return parted.operator("distinct", tuple(key), **ttl)
        return parted.operator("top_n", tuple(key), 1, keep="first", **ttl)
    return stream if stream.changes is None else parted.operator("top_n", tuple(key), 1, keep="last", **ttl)


def keyed(
    stream: Stream, sink: Sink, table: Table, *, fits: bool, conflict: exp.Expr | None, options: Mapping[str, Any]
) -> Stream:
    """Return the stream that a sink gets from an INSERT into a table with a primary key. ``fits``: its rows have that key.

    Raises ExpressionError if another row of the result would be deleted or overwritten.
    """
    if conflict is not None and sink.accepts != "upsert":
        what = "needs rows that are only added" if sink.accepts == "append" else "takes all changes as they are"
        raise error_at(
            conflict, table.text, f"ON CONFLICT is for sinks that write by key, and that of {table.name!r} {what}"
        )
    is_strict = str(options.get(_REQUIRE, "")).upper() == "TRUE"  # said, not by default
    if is_strict and table.primary_key and sink.accepts == "upsert":
        _check_as_flink(stream, table, conflict, fits=fits)
    if not table.primary_key or stream.changes is None:
        return stream
    if fits or conflict is not None:
        return stream.apply(DeclareKey(table.primary_key))
    if sink.accepts != "upsert":
        return stream
    if choice(options, _REQUIRE) == "FALSE":
        return resolved(stream, table.primary_key, "DEDUPLICATE", options).apply(DeclareKey(table.primary_key))
    raise _other_key(stream, table)


def _check_as_flink(stream: Stream, table: Table, conflict: exp.Expr | None, *, fits: bool) -> None:
    """Raise ExpressionError for texts that Flink refuses and headrace could run, because the option asks for that."""
    if conflict is None and stream.changes is None and not fits:
        raise error_at(
            table.node.this.this, table.text,
            f"rows that are only added have no key, and {table.name!r} is written by its primary key, {', '.join(table.primary_key)}",
            "INSERT INTO … SELECT … ON CONFLICT DO DEDUPLICATE, DO NOTHING or DO ERROR; or leave out the option "
            "'table.exec.sink.require-on-conflict': then the last row counts",
        )  # fmt: skip
    if conflict is not None and conflict.name != "DEDUPLICATE" and not _all_have_watermarks(stream.edge):
        raise error_at(
            conflict, table.text, f"ON CONFLICT DO {conflict.name} requires all source tables to define watermarks",
            "leave out the option 'table.exec.sink.require-on-conflict': conflicts are decided in the order in which rows come",
        )  # fmt: skip


def _all_have_watermarks(edge: Input) -> bool:
    """Return whether each source has its own watermark, and not only one from a join."""
    if not has_watermark(edge):
        return False
    waiting, seen = [edge.node], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, OperatorNode) and node.spec.event_time in NO_TIMES:
            return False
        waiting += [each.node for each in node.inputs]
    return True


def _other_key(stream: Stream, table: Table) -> JobError:
    assert stream.changes is not None
    key = stream.changes.key
    known = f"by {', '.join(key)}" if key else "by all of their columns"
    return error_at(
        table.node.this.this, table.text,
        f"the rows of the query are known {known}, not by the primary key of {table.name!r}, {', '.join(table.primary_key)}: "
        "several of them could have one key",
        "INSERT INTO … SELECT … ON CONFLICT DO DEDUPLICATE (the last row counts), DO NOTHING (the first) or DO ERROR",
    )  # fmt: skip
