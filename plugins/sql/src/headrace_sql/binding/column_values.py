"""The values of a relation's columns as expressions, cast where that is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.scope import Column, Relation
from headrace_sql.binding.trees import call, cast, physical, text_of


def value_of(relation: Relation, column: Column) -> tuple[exp.Expr, pl.DataType]:
    """Return the expression and type of a column's value: of processing time the time at which the row is given."""
    if column.time == "processing" and column.physical not in relation.schema:
        return cast(call("current_timestamp"), "TIMESTAMP"), pl.Datetime("us", "UTC")
    return physical(column.physical), relation.schema[column.physical]


def cast_to(relation: Relation, columns: Sequence[Column], kinds: Sequence[pl.DataType], names: Sequence[str]) -> Any:
    """Return expressions that give columns under names, cast where the types differ."""
    made = {}
    for column, kind, name in zip(columns, kinds, names, strict=True):
        node, have = value_of(relation, column)
        if have != kind:
            word = types.word_for(kind)
            if word is not None:
                node = cast(node, word)
        made[name] = text_of(node)
    return made
