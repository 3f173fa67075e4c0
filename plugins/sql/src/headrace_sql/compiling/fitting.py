"""INSERT: the columns of a query made those of the table."""

from __future__ import annotations

from typing import Any

import polars as pl
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.context import Context
from headrace_sql.binding.scope import Column, Relation, error_at
from headrace_sql.binding.trees import call, cast, physical, text_of


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
