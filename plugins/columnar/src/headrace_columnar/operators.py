"""Arithmetic with SQL's meaning: whole division, sign of the remainder, exact decimals, times and intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace_columnar import decimals
from headrace_columnar.rowwise import by_series, float_quotient, float_remainder
from headrace_columnar.sql_types import (
    MonthInterval,
    Typed,
    common_type,
    decimal_digits,
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

_TIMES = (pl.Date, pl.Datetime)


def arithmetic(compiler: Compiler, node: Any, operation: str, left: Typed, right: Typed) -> Typed:
    """Compile ``left operation right`` (one of ``+ - * / % DIV``).

    Integers give int64 and wrap around at 64 bits (as in Flink); ``/`` of integers cuts toward zero and ``%`` has the
    sign of the dividend. Decimals are exact with Spark's and Flink's rules for their digits, NULL where 38 are not
    enough. Floats follow IEEE 754; float32 with integers is float32. A row that divides an integer or decimal by zero fails.
    """
    from headrace_columnar import intervals

    kinds = (left.data_type, right.data_type)
    if any(isinstance(kind, (*_TIMES, pl.Time, pl.Duration, MonthInterval)) for kind in kinds):
        return intervals.arithmetic(compiler, node, operation, left, right)
    if left.is_null and right.is_null:
        return Typed(pl.lit(None, dtype=pl.Int64), pl.Int64(), node, None)
    if left.is_null:
        left = Typed(pl.lit(None, dtype=right.data_type), right.data_type, left.node)
    if right.is_null:
        right = Typed(pl.lit(None, dtype=left.data_type), left.data_type, right.node)
    if not (is_number(left.data_type) and is_number(right.data_type)):
        bad = left if not is_number(left.data_type) else right
        hint = "texts are joined with ||" if operation == "+" and is_text(bad.data_type) else "CAST it to a number"
        raise compiler.error(bad.node, f"{operation} needs numbers, not {shown(bad.data_type)}", hint=hint)
    if left.data_type.is_float() or right.data_type.is_float():
        return _floats(node, operation, left, right)
    if is_decimal(left.data_type) or is_decimal(right.data_type):
        return _decimals(compiler, node, operation, left, right)
    return _integers(compiler, node, operation, left, right)


def _floats(node: Any, operation: str, left: Typed, right: Typed) -> Typed:
    kind = common_type(left.data_type, right.data_type) or pl.Float64()
    if operation in "+-*":
        a, b = widen(left, kind), widen(right, kind)
        return Typed({"+": a + b, "-": a - b, "*": a * b}[operation], kind, node)
    # Quotients and remainders of float32 are computed in float64 and rounded once more, which changes none.
    a, b = widen(left, kind).cast(pl.Float64), widen(right, kind).cast(pl.Float64)
    if operation == "%":
        return Typed(float_remainder(a, b).cast(kind), kind, node)
    quotient = float_quotient(a, b)
    if operation == "DIV":
        return Typed(quotient.cast(pl.Int64, strict=False), pl.Int64(), node)
    return Typed(quotient.cast(kind), kind, node)


def _integers(compiler: Compiler, node: Any, operation: str, left: Typed, right: Typed) -> Typed:
    kind = integer_type(left.data_type, right.data_type)
    a, b = widen(left, kind), widen(right, kind)
    if operation in "+-*":
        return Typed({"+": a + b, "-": a - b, "*": a * b}[operation], kind, node)
    _refuse_zero(compiler, node, left, right)
    return Typed(by_series([a, b], _remainder if operation == "%" else _quotient, kind), kind, node)


def truncated(a: pl.Expr, b: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Return quotient cut toward zero and remainder with the dividend's sign; polars rounds down. NULL for b = 0.

    Both are integers of one type: int64 or int128.
    """
    return by_series([a, b], _quotient, pl.Int64()), by_series([a, b], _remainder, pl.Int64())


def _divided(a: pl.Series, b: pl.Series) -> pl.DataFrame:
    frame = pl.DataFrame({"a": a, "b": b}).with_columns((pl.col("a") // pl.col("b")).alias("floor"))
    frame = frame.with_columns((pl.col("a") - pl.col("floor") * pl.col("b")).alias("rest"))
    return frame.with_columns(((pl.col("rest") != 0) & ((pl.col("a") < 0) != (pl.col("b") < 0))).alias("off"))


def _quotient(a: pl.Series, b: pl.Series) -> pl.Series:
    floor = pl.col("floor")
    return _divided(a, b).select(floor + pl.col("off").cast(a.dtype)).to_series()


def _remainder(a: pl.Series, b: pl.Series) -> pl.Series:
    rest = pl.col("rest")
    return _divided(a, b).select(pl.when("off").then(rest - pl.col("b")).otherwise(rest)).to_series()


def _refuse_zero(compiler: Compiler, node: Any, left: Typed, right: Typed) -> None:
    if right.is_constant and right.constant is not None:
        if right.constant == 0:
            raise compiler.error(node, "division by zero")
        return
    divides = (right.expression == 0) & left.expression.is_not_null()
    compiler.fail_when(divides, "division by zero ({value} divided by 0)", left.expression)


def _decimals(compiler: Compiler, node: Any, operation: str, left: Typed, right: Typed) -> Typed:
    (whole1, scale1), (whole2, scale2) = _digits(left), _digits(right)
    precision1, precision2 = whole1 + scale1, whole2 + scale2
    if operation in "+-":
        scale = max(scale1, scale2)
        kind = _bounded(max(whole1, whole2) + scale + 1, scale)
    elif operation == "*":
        kind = _bounded(precision1 + precision2 + 1, scale1 + scale2)
    elif operation == "/":
        scale = max(6, scale1 + precision2 + 1)
        kind = _bounded(whole1 + scale2 + scale, scale)
    else:
        kind = _bounded(min(whole1, whole2) + max(scale1, scale2), max(scale1, scale2))
    if operation in ("/", "%", "DIV"):
        _refuse_zero(compiler, node, left, right)
    if operation == "DIV":
        return Typed(_exact("DIV", left, right, pl.Decimal(38, 0)).cast(pl.Int64, strict=False), pl.Int64(), node)
    return Typed(_exact(operation, left, right, kind), kind, node)


def _digits(operand: Typed) -> tuple[int, int]:
    """Return the digits before and behind the point; a literal that fits 32 bits counts as such, as in Flink."""
    if operand.is_constant and isinstance(operand.constant, int) and abs(operand.constant) < 2**31:
        return 10, 0
    return decimal_digits(operand.data_type)


def _bounded(precision: int, scale: int) -> pl.Decimal:
    """Fit a result into 38 digits as Spark and Flink do: digits behind the point are given up first, down to six."""
    if precision <= 38:
        return pl.Decimal(precision, scale)
    return pl.Decimal(38, max(38 - (precision - scale), min(scale, 6)))


def _exact(operation: str, left: Typed, right: Typed, kind: pl.Decimal) -> pl.Expr:
    scales = decimal_digits(left.data_type)[1], decimal_digits(right.data_type)[1]
    return decimals.computed(operation, left.expression, right.expression, scales, kind)


def _binary(operation: str) -> Callable[[Compiler, Any], Typed]:
    def handle(compiler: Compiler, node: exp.Binary) -> Typed:
        return arithmetic(compiler, node, operation, compiler.compile(node.left), compiler.compile(node.right))

    return handle


def _negative(compiler: Compiler, node: exp.Neg) -> Typed:
    from headrace_columnar.compiler import number

    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return number(compiler, node, "-" + node.this.this)
    operand = compiler.compile(node.this)
    if operand.is_null:
        return Typed(pl.lit(None, dtype=pl.Int64), pl.Int64(), node, None)
    if isinstance(operand.data_type, pl.Duration):
        return Typed(-operand.expression, operand.data_type, node)
    if isinstance(operand.data_type, MonthInterval):
        return Typed(operand.expression, operand.data_type, node, -operand.constant)
    if not is_number(operand.data_type):
        raise compiler.error(node, f"- needs a number, not {shown(operand.data_type)}")
    if is_integer(operand.data_type):
        kind = integer_type(operand.data_type, pl.Int64())
        # polars negates no int128.
        return Typed(pl.lit(0, dtype=kind) - widen(operand, kind), kind, node)
    return Typed(-operand.expression, operand.data_type, node)


def _bits(operation: str) -> Callable[[Compiler, Any], Typed]:
    def handle(compiler: Compiler, node: exp.Binary) -> Typed:
        left, right = compiler.compile(node.left), compiler.compile(node.right)
        for operand in (left, right):
            if not (is_integer(operand.data_type) or operand.is_null):
                raise compiler.error(operand.node, f"{operation} needs whole numbers, not {shown(operand.data_type)}")
        a, b = widen(left, pl.Int64()), widen(right, pl.Int64())
        made = {"&": lambda: a & b, "|": lambda: a | b, "^": lambda: a.xor(b)}[operation]()
        return Typed(made, pl.Int64(), node)

    return handle


def _inverted(compiler: Compiler, node: exp.BitwiseNot) -> Typed:
    operand = compiler.compile(node.this)
    if not (is_integer(operand.data_type) or operand.is_null):
        raise compiler.error(node, f"~ needs a whole number, not {shown(operand.data_type)}")
    return Typed(-widen(operand, pl.Int64()) - 1, pl.Int64(), node)


def _shift(operation: str) -> Callable[[Compiler, Any], Typed]:
    def handle(compiler: Compiler, node: exp.Binary) -> Typed:
        from headrace_columnar.compiler import call_function

        return call_function(compiler, node, operation, [node.left, node.right])

    return handle


def element_at(array: pl.Expr, index: pl.Expr) -> pl.Expr:
    """Return the element at a place counted from 1, from the end if negative; NULL where there is none."""
    place = pl.when(index > 0).then(index - 1).when(index < 0).then(index)
    inside = pl.when(place.is_between(-(2**31), 2**31)).then(place)
    return array.list.get(inside, null_on_oob=True)


HANDLERS: dict[type[exp.Expr], Callable[[Compiler, Any], Typed]] = {
    exp.Add: _binary("+"), exp.Sub: _binary("-"), exp.Mul: _binary("*"), exp.Div: _binary("/"), exp.Mod: _binary("%"),
    exp.IntDiv: _binary("DIV"), exp.Neg: _negative, exp.BitwiseAnd: _bits("&"), exp.BitwiseOr: _bits("|"),
    exp.BitwiseXor: _bits("^"), exp.BitwiseNot: _inverted, exp.BitwiseLeftShift: _shift("shiftleft"),
    exp.BitwiseRightShift: _shift("shiftright"),
}  # fmt: skip
