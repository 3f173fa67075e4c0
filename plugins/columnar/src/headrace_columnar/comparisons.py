"""Comparisons with SQL's three-valued logic: = < IN BETWEEN IS, and the operators that match patterns."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace_columnar import casts, patterns
from headrace_columnar.sql_types import (
    MonthInterval,
    Typed,
    common_type,
    integer_type,
    is_decimal,
    is_integer,
    is_number,
    is_text,
    shown,
    widen,
)
from sqlglot import exp

if TYPE_CHECKING:
    from headrace_columnar.compiler import Compiler

_OPERATIONS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<=>": lambda left, right: left.eq_missing(right),
    "IS DISTINCT FROM": lambda left, right: left.ne_missing(right),
}
_NUMBER = r"[+-]?\d+(\.\d+)?"
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
_MIRRORED["IS DISTINCT FROM"] = "IS DISTINCT FROM"
_TEMPORAL = (pl.Date, pl.Datetime, pl.Time)


def compare(compiler: Compiler, node: Any, operation: str, left: Typed, right: Typed) -> Typed:
    """Compare two operands. NULL on either side gives NULL, but for <=> and IS [NOT] DISTINCT FROM.

    NaN equals NaN and is greater than every other number, as in Spark.
    """
    left_expression, right_expression = aligned(compiler, node, operation, left, right)
    if left.is_constant and not right.is_constant:
        # polars 2.1: a literal on the left, compared with a CASE that chose one constant for a whole batch, gives one
        # row instead of one per row. The literal on the right is safe.
        result = _OPERATIONS[_MIRRORED[operation]](right_expression, left_expression)
    else:
        result = _OPERATIONS[operation](left_expression, right_expression)
    null = any(side.is_constant and side.constant is None for side in (left, right))
    if null and operation not in ("<=>", "IS DISTINCT FROM"):
        return Typed(pl.lit(None, dtype=pl.Boolean), pl.Boolean(), node, None)
    return Typed(result, pl.Boolean(), node)


def aligned(compiler: Compiler, node: Any, operation: str, left: Typed, right: Typed) -> tuple[pl.Expr, pl.Expr]:
    """Return both operands in types that polars compares exactly. Raises ExpressionError for types that differ."""
    left, right = _literal_to_time(compiler, left, right), _literal_to_time(compiler, right, left)
    kinds = left.data_type, right.data_type
    common = common_type(*kinds)
    if common is None or isinstance(common, MonthInterval):
        raise compiler.error(
            node,
            f"cannot compare {shown(kinds[0])} with {shown(kinds[1])} ({operation})",
            hint=_how_to_mend(left, right),
        )
    if common.is_nested() and operation in ("<", "<=", ">", ">="):
        raise compiler.error(node, f"{shown(common)} has no order ({operation})")
    if is_number(kinds[0]) and is_number(kinds[1]):
        return _aligned_number(left, right, common), _aligned_number(right, left, common)
    return widen(left, common), widen(right, common)


def _how_to_mend(left: Typed, right: Typed) -> str:
    text, other = (left, right) if is_text(left.data_type) else (right, left)
    if isinstance(text.constant, str) and is_number(other.data_type) and re.fullmatch(_NUMBER, text.constant):
        return f"write the number without quotes: {text.constant}"
    if is_text(text.data_type):
        return f"CAST one of them, for example CAST(… AS {shown(other.data_type)})"
    return "CAST one of them"


def _aligned_number(operand: Typed, other: Typed, common: pl.DataType) -> pl.Expr:
    """polars compares decimals of different scale exactly; integers are given 64 bits or more, so that none wraps."""
    if is_decimal(common):
        if is_integer(operand.data_type):
            digits = 20 if isinstance(operand.data_type, pl.UInt64) else 38 if operand.data_type.is_(pl.Int128) else 19
            return operand.expression.cast(pl.Decimal(digits, 0))
        return operand.expression
    if is_integer(common):
        wide = integer_type(operand.data_type, other.data_type)
        if isinstance(wide, pl.Int64):
            return operand.expression
        return widen(operand, wide)
    return widen(operand, common)


def _literal_to_time(compiler: Compiler, operand: Typed, other: Typed) -> Typed:
    """A string literal beside a date or time is read as one: ts >= '2024-05-06'. Read when the job is built."""
    if not (operand.is_constant and isinstance(operand.constant, str) and isinstance(other.data_type, _TEMPORAL)):
        return operand
    target = other.data_type
    if isinstance(target, pl.Date) and len(operand.constant.strip()) > 10:
        target = pl.Datetime("us", "UTC")
    converted = casts.convert(operand, target)
    value = pl.select(converted).item() if converted is not None else None
    if value is None:
        raise compiler.error(operand.node, f"{operand.constant!r} cannot be read as {shown(target)}")
    return Typed(pl.lit(value, dtype=target), target, operand.node, value)


def _comparison(operation: str) -> Callable[[Compiler, Any], Typed]:
    def handle(compiler: Compiler, node: exp.Binary) -> Typed:
        left, right = compiler.compile(node.left), compiler.compile(node.right)
        return compare(compiler, node, operation, left, right)

    return handle


def _between(compiler: Compiler, node: exp.Between) -> Typed:
    value = compiler.compile(node.this)
    low, high = compiler.compile(node.args["low"]), compiler.compile(node.args["high"])

    def within(least: Typed, most: Typed) -> pl.Expr:
        above = compare(compiler, node, ">=", value, least).expression
        return above & compare(compiler, node, "<=", value, most).expression

    result = within(low, high)
    if node.args.get("symmetric"):
        result = result | within(high, low)
    return Typed(result, pl.Boolean(), node)


def _in(compiler: Compiler, node: exp.In) -> Typed:
    if node.args.get("query") is not None or node.args.get("unnest") is not None or node.args.get("field") is not None:
        raise compiler.error(node, "IN needs a list of values here, not a subquery")
    value = compiler.compile(node.this)
    items = [compiler.compile(item) for item in node.expressions]
    if not items:
        raise compiler.error(node, "the list of IN is empty")
    return Typed(_in_list(compiler, node, value, items), pl.Boolean(), node)


def _in_list(compiler: Compiler, node: Any, value: Typed, items: list[Typed]) -> pl.Expr:
    """True if equal to an item; else NULL if the value or any item is NULL; else false."""
    items = [_literal_to_time(compiler, item, value) for item in items]
    fast = value.data_type.is_integer() or is_text(value.data_type) or isinstance(value.data_type, pl.Date)
    known = [item for item in items if not (item.is_constant and item.constant is None)]
    if not (fast and all(item.is_constant and common_type(value.data_type, item.data_type) for item in known)):
        matched = [compare(compiler, item.node, "=", value, item).expression for item in items]
        return matched[0] if len(matched) == 1 else pl.any_horizontal(matched)
    if not known:
        return pl.lit(None, dtype=pl.Boolean)
    target = value.data_type
    for item in known:
        target = common_type(target, item.data_type) or target
    if not (is_integer(target) or is_text(target) or isinstance(target, pl.Date)):
        matched = [compare(compiler, item.node, "=", value, item).expression for item in items]
        return pl.any_horizontal(matched)
    constants = pl.Series([item.constant for item in known], dtype=pl.String() if is_text(target) else target)
    found = widen(value, target).is_in(constants.implode())
    if len(known) < len(items):
        return pl.when(found).then(True).otherwise(None)
    return found


def _is(compiler: Compiler, node: exp.Is) -> Typed:
    operand, what = node.this, node.expression
    if isinstance(what, exp.Null):
        return Typed(compiler.compile(operand).expression.is_null(), pl.Boolean(), node)
    if isinstance(what, exp.Boolean):
        value = compiler.boolean(operand, "the operand of IS TRUE").expression
        wanted = value if what.this else ~value
        return Typed(wanted.fill_null(False), pl.Boolean(), node)
    raise compiler.error(node, "IS is followed by [NOT] NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")


def _pattern_operator(kind: str) -> Callable[[Compiler, Any], Typed]:
    def handle(compiler: Compiler, node: Any, escape: exp.Expr | None = None) -> Typed:
        value = compiler.compile(node.this)
        right = node.expression
        if isinstance(right, exp.Any | exp.All):
            result = _quantified(compiler, kind, node, value, right, escape)
        else:
            result = patterns.match(compiler, kind, node, value, compiler.compile(right), _escape(compiler, escape))
        if node.args.get("negate"):
            result = ~result
        return Typed(result, pl.Boolean(), node)

    return handle


def _quantified(
    compiler: Compiler, kind: str, node: Any, value: Typed, listed: exp.Any | exp.All, escape: exp.Expr | None
) -> pl.Expr:
    items = listed.this.expressions if isinstance(listed.this, exp.Tuple) else [listed.this.unnest()]
    character = _escape(compiler, escape)
    matched = [patterns.match(compiler, kind, node, value, compiler.compile(item), character) for item in items]
    if node.args.get("negate"):
        # NOT LIKE ALL means: like none of them; NOT LIKE ANY: unlike at least one. The caller negates the whole.
        return pl.any_horizontal(matched) if isinstance(listed, exp.All) else pl.all_horizontal(matched)
    return pl.all_horizontal(matched) if isinstance(listed, exp.All) else pl.any_horizontal(matched)


def _escape(compiler: Compiler, node: exp.Expr | None) -> str | None:
    if node is None:
        return None
    if not (isinstance(node, exp.Literal) and node.is_string and len(node.this) == 1):
        raise compiler.error(node, "ESCAPE takes one character in quotes")
    return str(node.this)


def _with_escape(compiler: Compiler, node: exp.Escape) -> Typed:
    for kind, handler in _PATTERN_OPERATORS.items():
        if isinstance(node.this, kind):
            made: Typed = handler(compiler, node.this, node.expression)  # type: ignore[call-arg]
            return made
    raise compiler.error(node, "ESCAPE belongs to LIKE, ILIKE or SIMILAR TO")


_PATTERN_OPERATORS: dict[type[exp.Expr], Callable[[Compiler, Any], Typed]] = {
    exp.Like: _pattern_operator("like"),
    exp.ILike: _pattern_operator("ilike"),
    exp.SimilarTo: _pattern_operator("similar"),
}

HANDLERS: dict[type[exp.Expr], Callable[[Compiler, Any], Typed]] = {
    exp.EQ: _comparison("="), exp.NEQ: _comparison("<>"), exp.LT: _comparison("<"), exp.LTE: _comparison("<="),
    exp.GT: _comparison(">"), exp.GTE: _comparison(">="), exp.NullSafeEQ: _comparison("<=>"),
    exp.NullSafeNEQ: _comparison("IS DISTINCT FROM"), exp.Between: _between, exp.In: _in, exp.Is: _is,
    exp.Escape: _with_escape, exp.RegexpLike: _pattern_operator("regex"), **_PATTERN_OPERATORS,
}  # fmt: skip
