"""The values of expressions in MEASURES and DEFINE: of the rows that stand for each variable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError
from headrace_columnar.evaluation import evaluate_all
from headrace_columnar.expressions import CompiledExpression, compile_expression

#: (kind, …): operators over other nodes; ("LAST", variable, column, distance) and its like; ("value", constant).
Node = tuple[Any, ...]


def evaluated(node: Node, view: Mapping[str | None, list[dict[str, Any]]]) -> Any:
    """Return the value of a node, with SQL's logic of NULL."""
    kind = node[0]
    if kind == "value":
        return node[1]
    if kind == "interval":
        return timedelta(microseconds=node[1])
    if kind == "null":
        return evaluated(node[1], view) is None
    if kind == "not":
        value = evaluated(node[1], view)
        return None if value is None else not value
    if kind in ("and", "or"):
        left = evaluated(node[1], view)
        if left is (kind == "or"):
            return left
        right = evaluated(node[2], view)
        if right is (kind == "or"):
            return right
        return None if left is None or right is None else kind == "and"
    if kind in _AGGREGATED:
        return _aggregated(kind, node, view)
    if kind == "case":
        for at in range(1, len(node) - 1, 2):
            if evaluated(node[at], view) is True:
                return evaluated(node[at + 1], view)
        return evaluated(node[-1], view)
    if kind == "call":
        return _called(node, view)
    left, right = evaluated(node[1], view), evaluated(node[2], view)
    return None if left is None or right is None else _BINARY[kind](*_alike(left, right))


def _called(node: Node, view: Mapping[str | None, list[dict[str, Any]]]) -> Any:
    """Evaluate a function of values that come of several rows."""
    _, text, kinds, *parts = node
    values = {name: [evaluated(part, view)] for name, part in zip(kinds, parts, strict=True)}
    frame = pl.DataFrame(values, schema=kinds) if kinds else pl.DataFrame({"__none": [0]})
    made, failures = evaluate_all([_compiled(text, tuple(kinds.items()))], frame, ["value"])
    return None if failures else made["value"].to_list()[0]


@lru_cache(maxsize=256)
def _compiled(text: str, kinds: tuple[tuple[str, pl.DataType], ...]) -> CompiledExpression:
    return compile_expression(text, Schema(dict(kinds)), None)


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two numbers that Python can calculate with: of a Decimal and a float two floats."""
    if isinstance(left, Decimal) and isinstance(right, float):
        return float(left), right
    return (left, float(right)) if isinstance(left, float) and isinstance(right, Decimal) else (left, right)


def _divided(left: Any, right: Any) -> Any:
    if not right:
        if isinstance(left, float) or isinstance(right, float):
            return math.nan if not left or math.isnan(left) else math.copysign(math.inf, left)
        raise JobError("MATCH_RECOGNIZE divides by zero", hint="x / NULLIF(y, 0)")
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return left / right


_BINARY: Mapping[str, Any] = {
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b, "<>": lambda a, b: a != b, "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": _divided,
}  # fmt: skip
_AGGREGATED = ("COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST", "LAST")


def _aggregated(kind: str, node: Node, view: Mapping[str | None, list[dict[str, Any]]]) -> Any:
    _, variable, column, distance = node
    rows = view.get(variable, [])
    if kind == "COUNT":
        return len(rows) if column is None else sum(1 for row in rows if row[column] is not None)
    if kind in ("FIRST", "LAST"):
        at = distance if kind == "FIRST" else len(rows) - 1 - distance
        return rows[at][column] if 0 <= at < len(rows) else None
    values = [row[column] for row in rows if row[column] is not None]
    if not values:
        return None
    if kind in ("MIN", "MAX"):
        return min(values) if kind == "MIN" else max(values)
    total = sum(values[1:], values[0])
    return total if kind == "SUM" else _divided(total, len(values)) if isinstance(total, int) else total / len(values)
