"""VALUES: rows that stand in the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from headrace_columnar.evaluation import evaluate
from headrace_columnar.sql_types import common_type, shown
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.expressions import Translator
from headrace_sql.binding.functions import cast
from headrace_sql.binding.scope import Column, Relation
from headrace_sql.operators.frames import FrameSource

if TYPE_CHECKING:
    from headrace_sql.compiling.query import QueryCompiler

_ONE = "__one"


def values(compiler: QueryCompiler, node: exp.Values) -> Relation:
    """Return the rows of VALUES as a relation with the columns ``EXPR$0``, ``EXPR$1``, …. Raises ExpressionError."""
    one = pl.DataFrame({_ONE: [1]})
    pipeline = compiler.catalog.pipeline
    translator = compiler.translator(no_columns(compiler))
    rows = [list(each.expressions) if isinstance(each, exp.Tuple) else [each] for each in node.expressions]
    width = len(rows[0])
    columns: list[pl.Series] = []
    for row, each in zip(rows, node.expressions, strict=True):
        if len(row) != width:
            raise compiler.error(each, f"this row has {len(row)} values, the first has {width}")
    for place in range(width):
        parts = [row[place] for row in rows]
        kind: pl.DataType = pl.Null()
        for part in parts:
            own = translator.type_of(part)
            common = common_type(kind, own)
            if common is None:
                raise compiler.error(
                    part, f"{shown(own)} does not go together with {shown(kind)} in the rows before it"
                )
            kind = common
        found = [_value(compiler, translator, part, kind, one) for part in parts]
        columns.append(pl.Series(f"EXPR${place}", found, dtype=pl.String() if isinstance(kind, pl.Null) else kind))
    frame = pl.DataFrame(columns)
    stream = pipeline.from_(FrameSource.of(frame), name=compiler.catalog.unused_source_name("values"))
    return Relation(stream, tuple(Column(name, name) for name in frame.columns))


def no_columns(compiler: QueryCompiler) -> Relation:
    """Return a relation for expressions that name no column. Nothing reads it."""
    catalog = compiler.catalog
    if catalog.no_columns is None:
        one = pl.DataFrame({_ONE: [1]})
        catalog.no_columns = Relation(catalog.pipeline.from_(FrameSource.of(one), name="values"), ())
    return catalog.no_columns


def one_row(compiler: QueryCompiler) -> Relation:
    """Return one row without columns: what a SELECT without FROM reads."""
    frame = pl.DataFrame({_ONE: [1]})
    name = compiler.catalog.unused_source_name("one_row")
    return Relation(compiler.catalog.pipeline.from_(FrameSource.of(frame), name=name), ())


def _value(
    compiler: QueryCompiler, translator: Translator, node: exp.Expr, kind: pl.DataType, one: pl.DataFrame
) -> Any:
    made = translator.translate(node)
    word = types.word_for(kind)
    if word is not None and translator.compile(made).data_type != kind:
        made = cast(made, word)
    result, failures = evaluate(translator.compile(made), one)
    if failures:
        raise compiler.error(node, str(failures[0][1]))
    return result[0]
