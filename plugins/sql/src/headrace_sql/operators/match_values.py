"""What expressions in MEASURES and DEFINE are made of, and what their source text calls (see ``match_source``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError
from headrace_columnar.evaluation import RowFailure, evaluate_all
from headrace_columnar.expressions import CompiledExpression, compile_expression

#: (kind, …): operators over other nodes; ("LAST", variable, column, distance) and its like; ("value", constant).
Node = tuple[Any, ...]
AGGREGATED = ("COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST", "LAST")


class RowFailed(DataError):
    """An expression fails for a row, or for a match."""


#: What evaluating an expression raises for a row: its own reasons, and those of Python's numbers.
FAILURES = (RowFailed, ArithmeticError)


def called(text: str, kinds: Mapping[str, pl.DataType], values: Sequence[Any]) -> Any:
    """Evaluate a function of values that come of several rows. Raises RowFailed."""
    columns = {name: [value] for name, value in zip(kinds, values, strict=True)}
    frame = pl.DataFrame(columns, schema=dict(kinds)) if kinds else pl.DataFrame({"__none": [0]})
    made, failures = evaluate_all([_compiled(text, tuple(kinds.items()))], frame, ["value"])
    if failures:
        raise RowFailed(str(failures[0][1]))
    return made["value"].to_list()[0]


def called_in_columns(text: str, columns: Mapping[str, pl.Series]) -> tuple[pl.Series, list[RowFailure]]:
    """Evaluate a function for many matches at once; return the values, and which matches failed."""
    compiled = _compiled(text, tuple((name, column.dtype) for name, column in columns.items()))
    made, failures = evaluate_all([compiled], pl.DataFrame(columns), ["value"])
    return made["value"], failures


def constant(node: Node) -> tuple[bool, Any]:
    """Return whether a call is of no columns and always gives the same, and that."""
    _, text, kinds, *_ = node
    if kinds or not _compiled(text, ()).deterministic:
        return False, None
    try:
        return True, called(text, {}, [])
    except RowFailed:
        return False, None  # it fails for each row that it is evaluated for


@lru_cache(maxsize=256)
def _compiled(text: str, kinds: tuple[tuple[str, pl.DataType], ...]) -> CompiledExpression:
    return compile_expression(text, Schema(dict(kinds)), None)


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two numbers that Python can calculate with: of a Decimal and a float two floats."""
    if isinstance(left, Decimal) and isinstance(right, float):
        return float(left), right
    return (left, float(right)) if isinstance(left, float) and isinstance(right, Decimal) else (left, right)


def divided(left: Any, right: Any) -> Any:
    """Divide as SQL does: whole numbers without the rest."""
    left, right = _alike(left, right)
    if not right:
        if isinstance(left, float) or isinstance(right, float):
            return math.nan if not left or math.isnan(left) else math.copysign(math.inf, left)
        raise RowFailed("division by zero", hint="x / NULLIF(y, 0)")
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return left / right


def _of_two(calculated: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda left, right: calculated(*_alike(left, right))


#: Operators on any two numbers.
BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    ">": _of_two(lambda a, b: a > b), ">=": _of_two(lambda a, b: a >= b), "<": _of_two(lambda a, b: a < b),
    "<=": _of_two(lambda a, b: a <= b), "=": _of_two(lambda a, b: a == b), "<>": _of_two(lambda a, b: a != b),
    "+": _of_two(lambda a, b: a + b), "-": _of_two(lambda a, b: a - b), "*": _of_two(lambda a, b: a * b), "/": divided,
}  # fmt: skip


def mean(total: Any, count: int) -> Any:
    """Return the mean of numbers that are no NULL; of none NULL."""
    if not count:
        return None
    return divided(total, count) if isinstance(total, int) else total / count


def total(values: Sequence[Any]) -> Any:
    """Return the sum of values; of none NULL. One after the other, as the conditions add them up."""
    if not values:
        return None
    found = values[0]
    for value in values[1:]:
        found = found + value
    return found


HELPERS: Mapping[str, Any] = {"called": called, "mean": mean, "total": total}
