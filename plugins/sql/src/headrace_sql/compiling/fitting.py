"""INSERT: the columns of a query made those of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
from headrace.foundation.errors import did_you_mean
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.context import Context
from headrace_sql.binding.scope import Column, Relation, error_at, unused_name
from headrace_sql.binding.tables import Table
from headrace_sql.binding.trees import call, cast, physical, text_of
from headrace_sql.compiling.constants import constant


def fitted(
    context: Context,
    relation: Relation,
    columns: dict[str, pl.DataType],
    listed: list[str],
    node: exp.Insert,
    *,
    by_name: bool,
) -> Relation:
    """Return the relation with the table's columns, by position, or by name with ``by_name`` where the names agree.

    Columns that an INSERT does not list are NULL. Raises ExpressionError for a wrong number of
    columns and for types that INSERT does not bring together.
    """
    sources = sources_of(context, relation, columns, listed, node, by_name=by_name)
    translator = context.translator(relation)

    def in_zone(part: Any, word: str) -> Any:
        return part if translator.zone == "UTC" else translator.for_cast(part, word)

    made: dict[str, str] = {}
    for name, kind in columns.items():
        column = sources.get(name)
        if column is None:
            made[name] = text_of(cast(exp.Null(), types.word_for(kind) or "VARCHAR"))
            continue
        if column.time == "processing":
            now_as = types.word_for(kind) or "TIMESTAMP"
            part: Any = cast(in_zone(call("current_timestamp"), now_as), now_as)
            made[name] = text_of(part)
            continue
        have = relation.schema[column.physical]
        part = physical(column.physical)
        if have != kind:
            if not _goes_into(have, kind):
                raise error_at(
                    node.this, context.text,
                    f"column {name!r} of the table is {types.word_for(kind) or kind}, "
                    f"but the query's column {column.name!r} is {types.word_for(have) or have}",
                    f"write CAST({column.name} AS {types.word_for(kind) or kind})",
                )  # fmt: skip
            word = types.word_for(kind)
            if word is not None:
                part = cast(in_zone(part, word), word)
        made[name] = text_of(part)
    same = list(relation.schema) == list(made) and all(text_of(physical(name)) == text for name, text in made.items())
    stream = relation.stream if same else relation.stream.select(**made)
    return Relation(stream, tuple(Column(name, name) for name in made))


def with_partition(
    context: Context, relation: Relation, table: Table, listed: list[str], values: list[exp.Expr]
) -> tuple[Relation, list[str]]:
    """Return a query with the columns of ``INSERT INTO t PARTITION (a = 1)``, and the columns that it then lists.

    Raises ExpressionError for a column by which the table is not partitioned.
    """
    columns = table.sink_columns
    made: dict[str, str] = {}
    added: list[Column] = []
    names = [each.this.name for each in values]
    for each, name in zip(values, names, strict=True):
        if name not in table.partitioned:
            raise context.error(
                each.this, f"table {table.name!r} is not partitioned by {name!r}",
                did_you_mean(name, list(table.partitioned), known="columns of PARTITIONED BY"),
            )  # fmt: skip
        if name in listed or names.count(name) > 1:
            raise context.error(each.this, f"column {name!r} is given twice")
        value = constant(context, each.expression, f"the partition {name}", columns[name])
        target = unused_name(f"__partition_{name}", relation.schema)
        plain = value if value is None or isinstance(value, bool | int | float | str) else str(value)
        made[target] = text_of(cast(exp.convert(plain), types.word_for(columns[name]) or "VARCHAR"))
        added.append(Column(name, target))
    given = listed or [name for name in columns if name not in names]
    stream = relation.stream.with_columns(**made)
    return replace(relation, stream=stream, columns=(*relation.columns, *added), base=None), [*given, *names]


def partition_texts(context: Context, table: Table, values: list[exp.Expr]) -> dict[str, str | None]:
    """Return the values of ``PARTITION (a = 1)`` as texts, in the order of PARTITIONED BY."""
    given = {each.this.name: each.expression for each in values}
    made: dict[str, str | None] = {}
    for name in table.partitioned:
        kind = table.sink_columns[name]
        value = constant(context, given[name], f"the partition {name}", kind)
        made[name] = pl.Series([value], dtype=kind).cast(pl.String)[0]
    return made


def sources_of(
    context: Context,
    relation: Relation,
    columns: dict[str, pl.DataType],
    listed: list[str],
    node: exp.Insert,
    *,
    by_name: bool,
) -> dict[str, Column]:
    """Return which column of the query goes into each column of the table. Raises ExpressionError for a wrong number."""
    targets = listed or list(columns)
    given = list(relation.columns)
    if by_name and not listed:
        names = {column.name: column for column in given}
        if set(names) == set(targets):
            given = [names[name] for name in targets]
    if len(given) != len(targets):
        raise error_at(
            node.this, context.text, f"the query gives {len(given)} columns ({', '.join(c.name for c in given)}), "
            f"the table takes {len(targets)} ({', '.join(targets)})",
        )  # fmt: skip
    return dict(zip(targets, given, strict=True))


def _goes_into(have: pl.DataType, kind: pl.DataType) -> bool:
    if isinstance(have, pl.Null):
        return True
    if have.is_numeric() and kind.is_numeric():
        return True
    if isinstance(have, pl.Date | pl.Datetime) and isinstance(kind, pl.Date | pl.Datetime):
        return True
    if isinstance(have, pl.List) and isinstance(kind, pl.List):
        return True
    return isinstance(have, pl.Struct) and isinstance(kind, pl.Struct)
