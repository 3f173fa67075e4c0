"""VALUES: rows that are written in the text."""

from __future__ import annotations

from typing import Any

import polars as pl
from headrace_columnar.evaluation import evaluate
from headrace_columnar.sql_types import common_type, shown
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.context import Context
from headrace_sql.binding.expressions import Translator
from headrace_sql.binding.scope import Column, Relation
from headrace_sql.binding.trees import cast
from headrace_sql.operators.frames import FrameSource

_ONE = "__one"


def values(context: Context, node: exp.Values) -> Relation:
    """Return the rows of VALUES as a relation with the columns ``EXPR$0``, ``EXPR$1``, …. Raises ExpressionError."""
    one = pl.DataFrame({_ONE: [1]})
    pipeline = context.catalog.pipeline
    translator = context.without_columns()
    rows = [list(each.expressions) if isinstance(each, exp.Tuple) else [each] for each in node.expressions]
    width = len(rows[0])
    columns: list[pl.Series] = []
    for row, each in zip(rows, node.expressions, strict=True):
        if len(row) != width:
            raise context.error(each, f"this row has {len(row)} values, the first has {width}")
    for place in range(width):
        parts = [row[place] for row in rows]
        kind: pl.DataType = pl.Null()
        for part in parts:
            own = translator.type_of(part)
            common = common_type(kind, own)
            if common is None:
                raise context.error(part, f"{shown(own)} cannot be combined with {shown(kind)} in the rows before it")
            kind = common
        found = [_value(context, translator, part, kind, one) for part in parts]
        columns.append(pl.Series(f"EXPR${place}", found, dtype=pl.String() if isinstance(kind, pl.Null) else kind))
    frame = pl.DataFrame(columns)
    stream = pipeline.from_(FrameSource.of(frame), name=context.catalog.unused_source_name("values"))
    return Relation(stream, tuple(Column(name, name) for name in frame.columns))


def one_row(context: Context) -> Relation:
    """Return one row without columns: the input of a SELECT without FROM."""
    frame = pl.DataFrame({_ONE: [1]})
    name = context.catalog.unused_source_name("one_row")
    return Relation(context.catalog.pipeline.from_(FrameSource.of(frame), name=name), ())


def _value(context: Context, translator: Translator, node: exp.Expr, kind: pl.DataType, one: pl.DataFrame) -> Any:
    made = translator.translate(node)
    word = types.word_for(kind)
    if word is not None and translator.compile(made).data_type != kind:
        made = cast(made, word)
    result, failures = evaluate(translator.compile(made), one)
    if failures:
        raise context.error(node, str(failures[0][1]))
    return result[0]
