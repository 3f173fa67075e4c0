"""Constant intervals: ``INTERVAL '5' SECOND``, their sums and multiples."""

from __future__ import annotations

import re

from sqlglot import exp

from headrace_sql.binding.constants import factor
from headrace_sql.binding.scope import error_at

_UNIT_US = {"MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000, "DAY": 86_400_000_000,
            "WEEK": 604_800_000_000}  # fmt: skip
_UNIT_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def interval_length(node: exp.Expr, text: str) -> tuple[int, int]:
    """Return a constant interval as (months, microseconds): a literal, or a sum, difference or multiple of some.

    Raises ExpressionError.
    """
    if isinstance(node, exp.Paren):
        return interval_length(node.this, text)
    if isinstance(node, exp.Neg):
        months, micros = interval_length(node.this, text)
        return -months, -micros
    if isinstance(node, exp.Add | exp.Sub):
        sign = 1 if isinstance(node, exp.Add) else -1
        (months, micros), (more, further) = (interval_length(each, text) for each in (node.left, node.right))
        return months + sign * more, micros + sign * further
    if isinstance(node, exp.Mul | exp.Div):
        return _multiple(node, text)
    if not isinstance(node, exp.Interval):
        raise error_at(node, text, "expected INTERVAL '…' unit")
    value, unit = node.this, node.args.get("unit")
    words = str(value.name if isinstance(value, exp.Expr) else value).strip()
    if isinstance(unit, exp.IntervalSpan):
        return _span_length(node, words, unit.this.name.upper(), unit.expression.name.upper(), text)
    name = (unit.name if unit is not None else "").upper()
    name = name if name in _UNIT_US or name in _UNIT_MONTHS else name.removesuffix("S")
    if not re.fullmatch(r"[+-]?\d+(\.\d+)?", words):
        raise error_at(node, text, f"{words!r} is not a number of {name.lower()}s")
    if name in _UNIT_MONTHS:
        return round(float(words) * _UNIT_MONTHS[name]), 0
    if name not in _UNIT_US:
        raise error_at(
            node, text, f"unknown unit {name!r} of an interval", f"units: {', '.join([*_UNIT_US, *_UNIT_MONTHS])}"
        )
    return 0, round(float(words) * _UNIT_US[name])


def _multiple(node: exp.Mul | exp.Div, text: str) -> tuple[int, int]:
    of, by = node.left, node.right
    if isinstance(node, exp.Mul) and next(of.find_all(exp.Interval), None) is None:
        of, by = by, of
    months, micros = interval_length(of, text)
    number = factor(by, text)
    if isinstance(node, exp.Div):
        if not number:
            raise error_at(node, text, "division by zero")
        return int(months / number), int(micros / number)
    return round(months * number), round(micros * number)


def interval_us(node: exp.Expr, text: str, what: str) -> int:
    """Return a constant interval in microseconds. Raises ExpressionError, also for months, which have no fixed length."""
    months, micros = interval_length(node, text)
    if months:
        raise error_at(node, text, f"{what}: months have no fixed length", "use days and smaller units")
    return micros


def _span_length(node: exp.Expr, words: str, first: str, last: str, text: str) -> tuple[int, int]:
    sign = -1 if words.startswith("-") else 1
    numbers = [float(each) for each in re.findall(r"\d+(?:\.\d+)?", words)]
    if (first, last) == ("YEAR", "MONTH") and len(numbers) == 2:
        return sign * round(numbers[0] * 12 + numbers[1]), 0
    order = ["DAY", "HOUR", "MINUTE", "SECOND"]
    if first in order and last in order:
        units = order[order.index(first) : order.index(last) + 1]
        if len(units) == len(numbers):
            return 0, sign * round(sum(n * _UNIT_US[u] for n, u in zip(numbers, units, strict=True)))
    raise error_at(node, text, f"{words!r} is not an interval of {first} TO {last}")
