"""Expressions and aggregates over rows that are dicts, with SQL's NULL."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

from tests.differential.streams.plan import Aggregate, Expression, Row

_EXACT = Context(prec=60)


def evaluate(expression: Expression, row: Row) -> Any:
    """Return the value of an expression for a row."""
    operator, *operands = expression
    if operator == "column":
        return row[operands[0]]
    if operator == "constant":
        return operands[0]
    if operator == "and":
        return _and(evaluate(operands[0], row), evaluate(operands[1], row))
    if operator == "or":
        return _not(_and(_not(evaluate(operands[0], row)), _not(evaluate(operands[1], row))))
    if operator == "case":
        condition, then, otherwise = operands
        return evaluate(then if evaluate(condition, row) is True else otherwise, row)
    if operator == "coalesce":
        return next((value for each in operands if (value := evaluate(each, row)) is not None), None)
    values = [evaluate(each, row) for each in operands]
    if operator in ("row", "array"):
        return tuple(values)
    if operator == "map":
        return tuple((f"k{at}", value) for at, value in enumerate(values))
    if operator == "is null":
        return values[0] is None
    if operator == "not":
        return _not(values[0])
    if None in values:
        return None
    return _STRICT[operator](*values)


_STRICT: dict[str, Callable[..., Any]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "upper": lambda a: a.upper(),
    "char_length": len,
}


def _not(value: Any) -> Any:
    return None if value is None else not value


def _and(one: Any, other: Any) -> Any:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def is_true(expression: Expression | None, row: Row) -> bool:
    """Whether a condition holds: it is neither false nor NULL. Without a condition it does."""
    return expression is None or evaluate(expression, row) is True


def key_of(row: Row, columns: Sequence[str]) -> tuple[Any, ...]:
    """Return the values of key columns; lists as tuples."""
    return tuple(tuple(row[name]) if isinstance(row[name], list) else row[name] for name in columns)


def _different(values: Sequence[Any]) -> list[Any]:
    """Return different values, each where it came first. Arrays are compared by their values."""
    first: dict[Any, Any] = {}
    for value in values:
        first.setdefault(tuple(value) if isinstance(value, list) else value, value)
    return list(first.values())


def aggregate(what: Aggregate, rows: Sequence[Row], *, sql: bool) -> Any:
    """Return an aggregate of rows in the order in which they came. ``sql``: by the rules of Flink's SQL."""
    rows = [row for row in rows if is_true(what.condition, row)]
    if what.column is None:
        return len(rows)
    values = [row[what.column] for row in rows]
    if what.function == "array_agg":
        return values or None
    values = [value for value in values if value is not None]
    if what.distinct:
        values = _different(values)
    if what.function == "count":
        return len(values)
    if what.function == "collect":
        return values
    if what.function == "collect_set":
        return _different(values)
    if not values:
        return None
    return _OF_VALUES[what.function](values, sql)


def _sum(values: list[Any], sql: bool) -> Any:
    if isinstance(values[0], float):
        return float(sum(Fraction(value) for value in values))
    return sum(values[1:], values[0])


def _avg(values: list[Any], sql: bool) -> Any:
    if isinstance(values[0], float):
        return float(sum(Fraction(value) for value in values) / len(values))
    if isinstance(values[0], Decimal):
        total = sum(values, Decimal(0))
        return _EXACT.divide(total, len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    exact = Fraction(sum(values), len(values))
    return int(exact) if sql else float(exact)  # int() cuts toward zero


def _variance(values: list[Any], ddof: int) -> float | None:
    exact = [Fraction(value) for value in values]
    if len(exact) <= ddof:
        return None
    mean = sum(exact) / len(exact)
    return float(sum((each - mean) ** 2 for each in exact) / (len(exact) - ddof))


def _spread(values: list[Any], sql: bool) -> int:
    return int(max(values) - min(values))


def _root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


def _slow_hash(values: list[Any], sql: bool) -> int:
    return sum(value * value % 97 for value in values)


_OF_VALUES: dict[str, Callable[[list[Any], bool], Any]] = {
    "sum": _sum,
    "avg": _avg,
    "min": lambda values, sql: min(values),
    "max": lambda values, sql: max(values),
    "first": lambda values, sql: values[0],
    "last": lambda values, sql: values[-1],
    "first_value": lambda values, sql: values[0],
    "last_value": lambda values, sql: values[-1],
    "listagg": lambda values, sql: ",".join(values),
    "bool_and": lambda values, sql: all(values),
    "bool_or": lambda values, sql: any(values),
    "stddev": lambda values, sql: _root(_variance(values, 1)),
    "stddev_pop": lambda values, sql: _root(_variance(values, 0)),
    "variance": lambda values, sql: _variance(values, 1),
    "var_pop": lambda values, sql: _variance(values, 0),
    # User aggregates of the generated jobs.
    "spread": _spread,
    "square_sum": _slow_hash,
}
