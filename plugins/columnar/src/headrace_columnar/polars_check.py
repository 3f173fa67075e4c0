"""Check a polars expression that a user gave: its columns and type, and that each row stands by itself."""

from __future__ import annotations

import json

import polars as pl
from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import ExpressionError
from headrace_columnar.sql_types import column_hint

_WHY = (
    "an operator sees the rows in batches whose borders mean nothing, so a result must depend on its own row only; "
    "aggregates belong behind key_by or window"
)


def check_polars(expression: pl.Expr, schema: Schema) -> tuple[pl.DataType, frozenset[str]]:
    """Return the type of the result and the columns that are read.

    Raises ExpressionError for unknown columns, types that do not fit, several results, and for expressions whose rows
    depend on one another (aggregates, shift, over, …). The body of a Python function given to ``map_batches`` cannot
    be looked into: polars trusts its ``is_elementwise``, and so does this.
    """
    text = str(expression)
    if expression.meta.has_multiple_outputs():
        raise ExpressionError(f"{text} gives several columns", hint="give one expression for each column")
    names = expression.meta.root_names()
    for name in names:
        if name not in schema:
            raise ExpressionError(f"unknown column {name!r} in {text}", hint=column_hint(name, schema))
    types = dict(schema)
    try:
        result = pl.LazyFrame(schema=types).select(expression).collect_schema()
    except pl.exceptions.PolarsError as error:
        raise _misfit(expression, types, text, error) from error
    _check_rows(expression, types, text)
    _try_out(expression, types, text)
    return next(iter(result.values())), frozenset(names)


def _try_out(expression: pl.Expr, types: dict[str, pl.DataType], text: str) -> None:
    """Run the expression over no rows: many types that do not fit show only then. Python functions are not called."""
    if "AnonymousFunction" in expression.meta.serialize(format="json"):
        return
    try:
        pl.DataFrame(schema=types).select(expression)
    except pl.exceptions.PolarsError as error:
        raise _misfit(expression, types, text, error) from error


def _misfit(expression: pl.Expr, types: dict[str, pl.DataType], text: str, error: Exception) -> ExpressionError:
    read = dict.fromkeys(expression.meta.root_names())
    columns = ", ".join(f"{name}: {type_name(types[name])}" for name in read)
    return ExpressionError(f"{text}: {str(error).splitlines()[0]}", hint=f"columns: {columns}" if columns else None)


def _check_rows(node: pl.Expr, types: dict[str, pl.DataType], text: str) -> None:
    children = node.meta.pop(schema=types)
    if not children:
        if node.meta.is_column() or (node.meta.is_literal() and pl.select(node).height == 1):
            return
        raise ExpressionError(f"{_short(node)} is not computed from the row (in {text})", hint=_WHY)
    if _is_constant(node, types):
        return
    if not _is_by_row(node):
        raise ExpressionError(f"{_short(node)} depends on other rows (in {text})", hint=_WHY)
    if _kind(node) == "Eval":
        # What list.eval does inside of a row is free to aggregate; the list itself comes last.
        children = children[-1:]
    for child in children:
        _check_rows(child, types, text)


def _is_constant(node: pl.Expr, types: dict[str, pl.DataType]) -> bool:
    """Say whether the node is one value made of literals alone (the list of an is_in, …)."""
    if node.meta.root_names():
        return False
    pending, leaves = [node], []
    while pending:
        children = (top := pending.pop()).meta.pop(schema=types)
        pending.extend(children)
        if not children:
            leaves.append(top)
    return all(leaf.meta.is_literal() for leaf in leaves) and node.meta.is_scalar()


def _is_by_row(node: pl.Expr) -> bool:
    try:
        return node.meta.is_row_separable() and node.meta.is_length_preserving()
    except pl.exceptions.PolarsError:
        # polars wants to resolve columns for these two before it answers.
        tree = json.loads(node.meta.serialize(format="json"))
        if "AnonymousFunction" in tree:
            flags = str(tree["AnonymousFunction"].get("options", {}).get("flags", ""))
            return "ROW_SEPARABLE" in flags and "LENGTH_PRESERVING" in flags
        return "Eval" in tree


def _kind(node: pl.Expr) -> str:
    tree = json.loads(node.meta.serialize(format="json"))
    return next(iter(tree)) if isinstance(tree, dict) else str(tree)


def _short(node: pl.Expr) -> str:
    text = str(node)
    return text if len(text) <= 60 else text[:57] + "…"
