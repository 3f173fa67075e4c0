"""Constants that clauses want: LIMIT, the distance of LAG, a bound of ROW_NUMBER()."""

from __future__ import annotations

from typing import Any

import polars as pl
from headrace.foundation.errors import ExpressionError
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.constants import value_of
from headrace_sql.binding.context import Context
from headrace_sql.binding.expression_parts import names_columns
from headrace_sql.binding.trees import cast


def constant(context: Context, node: exp.Expr, what: str, kind: pl.DataType | None = None) -> Any:
    """Return the value of a constant of a query; with ``kind`` as a value of that type. Raises ExpressionError at the node."""
    if not names_columns(node):
        translator = context.without_columns()
        made = translator.translate(node)
        word = None if kind is None else types.word_for(kind)
        if word is not None and translator.compile(made).data_type != kind:
            made = cast(made, word)
        try:
            known, value = value_of(translator.compile(made))
        except ExpressionError as error:
            raise context.error(node, f"{what}: {error.message}", error.hint) from error
        if known:
            return value
    raise context.error(node, f"{what} must be a constant: an expression without columns")


def whole_number(context: Context, node: exp.Expr, what: str, *, least: int = 0) -> int:
    """Return the value of a constant that is a whole number. Raises ExpressionError at the node for another."""
    if names_columns(node):
        raise context.error(node, f"{what} is a whole number: a constant", f"{what} 10")
    value = constant(context, node, what)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        shown = "" if value is None else f", not {value}"
        raise context.error(node, f"{what} is a whole number from {least} on{shown}")
    return value
