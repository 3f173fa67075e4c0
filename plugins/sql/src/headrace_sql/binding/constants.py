"""Constants of a query: what an expression that names no column is worth when the job is built.

Where SQL wants a constant (LIMIT, the distance of LAG, a bound of ROW_NUMBER(), intervals, patterns), any such expression is one.
"""

from __future__ import annotations

from typing import Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace_columnar.evaluation import evaluate
from headrace_columnar.expressions import CompiledExpression, compile_node
from sqlglot import exp

from headrace_sql.binding.expression_parts import names_columns
from headrace_sql.binding.scope import error_at

_NOTHING = Schema({})
_ONE_ROW = pl.DataFrame({"__one": [1]})


def value_of(compiled: CompiledExpression) -> tuple[bool, Any]:
    """Return (True, value) of a compiled expression that is the same for all rows and always, else (False, None).

    Raises the errors of the evaluation.
    """
    if compiled.columns or compiled.calls or not compiled.deterministic:
        return False, None
    result, failures = evaluate(compiled, _ONE_ROW)
    if failures:
        raise failures[0][1]
    return True, result[0]


def folded(node: exp.Expr, compiled: CompiledExpression) -> exp.Expr:
    """Return a translated expression as a literal where it is a constant text or whole number; anything else as it is."""
    if isinstance(node, exp.Literal | exp.Null):
        return node
    try:
        known, value = value_of(compiled)
    except ExpressionError:
        return node  # the rows that it is evaluated for fail
    if not known or isinstance(value, bool) or not isinstance(value, str | int):
        return node
    made: exp.Expr = exp.Literal.string(value) if isinstance(value, str) else exp.Literal.number(abs(value))
    made.meta.update(next((each.meta for each in node.walk() if "start" in each.meta), {}))
    return exp.Neg(this=made) if isinstance(value, int) and value < 0 else made


def factor(node: exp.Expr, text: str) -> float:
    """Return the number by which an interval is multiplied. Raises ExpressionError if it is not a constant number."""
    if not names_columns(node):
        known, value = value_of(compile_node(node, text, _NOTHING))
        if known and value is not None and not isinstance(value, bool | str):
            return float(value)
    raise error_at(node, text, "an interval is multiplied by a constant number")
