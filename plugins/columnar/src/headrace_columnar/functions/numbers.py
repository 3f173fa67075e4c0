"""Functions of numbers. Those that give float64 follow IEEE 754: ln(0) is -infinity, sqrt(-1) is NaN."""

from __future__ import annotations

import functools
import math
from decimal import Context, Decimal
from typing import Literal

import polars as pl
from headrace_columnar import decimals, operators
from headrace_columnar.registry import Call, function
from headrace_columnar.rowwise import float_power, float_quotient, map_rows, map_values
from headrace_columnar.sql_types import Typed, is_integer, widen

#: Enough digits for every decimal of SQL at every step.
_EXACT = Context(prec=100)
_RoundMode = Literal["half_away_from_zero", "half_to_even"]


def _double(name: str, summary: str, sql: str, answer: float, *aliases: str) -> None:
    """Declare a function of one float64 that polars' method of the same name computes."""

    @function(name, *aliases, signature="x double -> float64", summary=summary, examples=[(sql, answer)])
    def build(call: Call) -> pl.Expr:
        made: pl.Expr = getattr(call[0], _METHODS.get(name, name))()
        return made


_METHODS = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}

_double("sqrt", "The square root.", "sqrt(16)", 4.0)
_double("cbrt", "The cube root.", "cbrt(27)", 3.0)
_double("exp", "e to the power of x.", "exp(0)", 1.0)
_double("sin", "The sine; x in radians.", "sin(0)", 0.0)
_double("cos", "The cosine; x in radians.", "cos(0)", 1.0)
_double("tan", "The tangent; x in radians.", "tan(0)", 0.0)
_double("cot", "The cotangent; x in radians.", "cot(1)", 1 / math.tan(1))
_double("asin", "The angle in radians whose sine is x.", "asin(1)", math.pi / 2)
_double("acos", "The angle in radians whose cosine is x.", "acos(1)", 0.0)
_double("atan", "The angle in radians whose tangent is x.", "atan(1)", math.pi / 4)
_double("sinh", "The hyperbolic sine.", "sinh(0)", 0.0)
_double("cosh", "The hyperbolic cosine.", "cosh(0)", 1.0)
_double("tanh", "The hyperbolic tangent.", "tanh(0)", 0.0)
_double("degrees", "Radians in degrees.", "degrees(pi())", 180.0)
_double("radians", "Degrees in radians.", "radians(180)", math.pi)


@function(
    "abs",
    signature="x number -> ?",
    summary="The absolute value, of the same type (int64 for integers).",
    examples=[("abs(-5)", 5), ("abs(-1.5)", Decimal("1.5"))],
)
def abs_(call: Call) -> Typed:
    argument = call.arguments[0]
    kind = pl.Int64() if is_integer(argument.data_type) else argument.data_type
    return Typed(widen(argument, kind).abs(), kind)


@function(
    "sign",
    "signum",
    signature="x number -> int64",
    summary="-1, 0 or 1; NULL for NaN.",
    examples=[("sign(-5)", -1), ("sign(0.0)", 0)],
)
def sign(call: Call) -> pl.Expr:
    # NaN has no counterpart among integers and becomes NULL.
    return call[0].sign().cast(pl.Int64, strict=False)


@function(
    "positive",
    signature="x number -> ?",
    summary="The number itself.",
    examples=[("positive(5)", 5)],
)
def positive(call: Call) -> Typed:
    return call.arguments[0]


def _whole(call: Call, direction: Literal["up", "down"]) -> Typed:
    argument = call.arguments[0]
    kind = argument.data_type
    if is_integer(kind):
        return Typed(widen(argument, pl.Int64()), pl.Int64())
    if isinstance(kind, pl.Decimal):
        target = pl.Decimal(min(38, kind.precision - kind.scale + 1), 0)
        return Typed(decimals.rounded(argument.expression, target, direction), target)
    return Typed(argument.expression.ceil() if direction == "up" else argument.expression.floor(), kind)


@function(
    "ceil",
    "ceiling",
    signature="x number -> ?",
    summary="The smallest whole number that is not below x: int64 for integers, decimal for decimals, float for floats.",
    examples=[("ceil(1.2)", Decimal(2)), ("ceil(-1.5e0)", -1.0), ("ceil(3)", 3)],
)
def ceil(call: Call) -> Typed:
    return _whole(call, "up")


@function(
    "floor",
    signature="x number -> ?",
    summary="The greatest whole number that is not above x: int64 for integers, decimal for decimals, float for floats.",
    examples=[("floor(1.2)", Decimal(1)), ("floor(-1.5e0)", -2.0), ("floor(3)", 3)],
)
def floor(call: Call) -> Typed:
    return _whole(call, "down")


@function(
    "round",
    signature="x number, [digits constant integer] -> ?",
    summary="Rounded to this number of decimal places (negative: to tens, hundreds, …); halves away from zero.",
    examples=[
        ("round(2.5)", Decimal(3)),
        ("round(-2.5)", Decimal(-3)),
        ("round(1234, -2)", 1200),
        ("round(2.345e0, 2)", 2.35),
    ],
)
def round_(call: Call) -> Typed:
    return _rounded(call, "half_away_from_zero")


@function(
    "bround",
    signature="x number, [digits constant integer] -> ?",
    summary="Rounded to this number of decimal places; halves to the even neighbour.",
    examples=[("bround(2.5)", Decimal(2)), ("bround(3.5e0)", 4.0)],
)
def bround(call: Call) -> Typed:
    return _rounded(call, "half_to_even")


def _rounded(call: Call, mode: _RoundMode) -> Typed:
    argument = call.arguments[0]
    kind, digits = argument.data_type, call.constant(1, 0)
    if digits is None:
        return Typed(pl.lit(None, dtype=kind), kind)
    if not -18 <= digits <= 38:
        raise call.error(1, f"digits must be between -18 and 38, not {digits}")
    if is_integer(kind):
        x = widen(argument, pl.Int64())
        return Typed(x if digits >= 0 else _rounded_integer(x, 10**-digits, mode), pl.Int64())
    if isinstance(kind, pl.Decimal):
        scale = min(kind.scale, max(digits, 0))
        target = pl.Decimal(min(38, kind.precision - kind.scale + scale + 1), scale)
        if digits < 0:
            return Typed(
                map_values(argument.expression, functools.partial(_rounded_decimal, digits, mode), target), target
            )
        return Typed(decimals.rounded(argument.expression, target, mode), target)
    if digits < 0:
        step = 10.0**-digits
        quotient = float_quotient(argument.expression, pl.lit(step)).round(0, mode=mode)
        return Typed((quotient * step).cast(kind), kind)
    return Typed(argument.expression.round(digits, mode=mode), kind)


def _rounded_integer(x: pl.Expr, step: int, mode: _RoundMode) -> pl.Expr:
    quotient, rest = operators.truncated(x, pl.lit(step))
    twice = rest.abs() * 2
    up = twice >= step if mode == "half_away_from_zero" else (twice > step) | ((twice == step) & (quotient % 2 != 0))
    return (quotient + pl.when(up).then(pl.when(x < 0).then(-1).otherwise(1)).otherwise(0)) * step


def _rounded_decimal(digits: int, mode: _RoundMode, value: Decimal) -> Decimal | None:
    rounding = "ROUND_HALF_UP" if mode == "half_away_from_zero" else "ROUND_HALF_EVEN"
    rounded = value.quantize(Decimal(1).scaleb(-digits), rounding, _EXACT).quantize(Decimal(1), context=_EXACT)
    return rounded if abs(rounded) < Decimal(10) ** 38 else None


@function(
    "truncate",
    "trunc_number",
    signature="x number, [digits constant integer] -> ?",
    summary="Cut to this number of decimal places, toward zero.",
    examples=[("truncate(42.345, 2)", Decimal("42.34")), ("truncate(-1.99e0)", -1.0)],
)
def truncate(call: Call) -> Typed:
    argument = call.arguments[0]
    kind, digits = argument.data_type, call.constant(1, 0)
    if digits is None:
        return Typed(pl.lit(None, dtype=kind), kind)
    if not -18 <= digits <= 38:
        raise call.error(1, f"digits must be between -18 and 38, not {digits}")
    if is_integer(kind):
        x = widen(argument, pl.Int64())
        return Typed(x if digits >= 0 else operators.truncated(x, pl.lit(10**-digits))[0] * 10**-digits, pl.Int64())
    if isinstance(kind, pl.Decimal):
        return Typed(map_values(argument.expression, functools.partial(_cut_decimal, digits), kind), kind)
    return Typed(map_values(argument.expression, functools.partial(_cut_float, digits), kind), kind)


def _cut_decimal(digits: int, value: Decimal) -> Decimal:
    step = Decimal(1).scaleb(-digits)
    return value.quantize(step, "ROUND_DOWN", _EXACT).quantize(value, context=_EXACT)


def _cut_float(digits: int, value: float) -> float:
    if not math.isfinite(value):
        return value
    # By the digits people see, not by the bits: 2.3 cut to one digit stays 2.3.
    return (
        float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), "ROUND_DOWN")) if abs(value) < 1e15 else value
    )


@function(
    "ln",
    signature="x double -> float64",
    summary="The natural logarithm.",
    examples=[("ln(1)", 0.0), ("ln(e())", 1.0)],
)
def ln(call: Call) -> pl.Expr:
    return call[0].log()


@function(
    "log",
    signature=["x double -> float64", "base double, x double -> float64"],
    summary="The natural logarithm, or the logarithm to a base.",
    examples=[("log(1)", 0.0), ("log(2, 8)", 3.0)],
)
def log(call: Call) -> pl.Expr:
    return call[0].log() if len(call) == 1 else float_quotient(call[1].log(), call[0].log())


@function("log2", signature="x double -> float64", summary="The logarithm to base 2.", examples=[("log2(8)", 3.0)])
def log2(call: Call) -> pl.Expr:
    return call[0].log(2)


@function(
    "log10", signature="x double -> float64", summary="The logarithm to base 10.", examples=[("log10(1000)", 3.0)]
)
def log10(call: Call) -> pl.Expr:
    return call[0].log10()


@function(
    "log1p", signature="x double -> float64", summary="ln(1 + x), exact for small x.", examples=[("log1p(0)", 0.0)]
)
def log1p(call: Call) -> pl.Expr:
    return call[0].log1p()


@function(
    "power",
    "pow",
    signature="base double, exponent double -> float64",
    summary="base to the power of exponent.",
    examples=[("power(2, 10)", 1024.0), ("pow(2, -1)", 0.5)],
)
def power(call: Call) -> pl.Expr:
    return float_power(call[0], call[1])


@function(
    "atan2",
    signature="y double, x double -> float64",
    summary="The angle in radians of the point (x, y).",
    examples=[("atan2(1, 1)", math.pi / 4)],
)
def atan2(call: Call) -> pl.Expr:
    return pl.arctan2(call[0], call[1])


@function(
    "hypot",
    signature="x double, y double -> float64",
    summary="The square root of x² + y².",
    examples=[("hypot(3, 4)", 5.0)],
)
def hypot(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), math.hypot, pl.Float64())


@function("pi", signature="-> float64", summary="The number π.", examples=[("pi()", math.pi)])
def pi(call: Call) -> Typed:
    return Typed(pl.lit(math.pi), pl.Float64(), call.node, math.pi)


@function("e", signature="-> float64", summary="The number e.", examples=[("e()", math.e)])
def e(call: Call) -> Typed:
    return Typed(pl.lit(math.e), pl.Float64(), call.node, math.e)


@function(
    "mod",
    signature="x number, y number -> ?",
    summary="The remainder of x / y, with the sign of x. Also written x % y.",
    examples=[("mod(-7, 3)", -1), ("mod(7.5, 2)", Decimal("1.5"))],
)
def mod(call: Call) -> Typed:
    return operators.arithmetic(call.compiler, call.node, "%", *call.arguments)


@function(
    "pmod",
    signature="x integer, y integer -> int64",
    summary="The remainder of x / y with the sign of y; NULL for y = 0.",
    examples=[("pmod(-7, 3)", 2), ("pmod(10, 3)", 1), ("pmod(1, 0)", None)],
)
def pmod(call: Call) -> pl.Expr:
    # The remainder of polars has the sign of the divisor, as asked here; it is NULL for 0.
    return call[0] % call[1]


@function(
    "try_divide",
    signature="x double, y double -> float64",
    summary="x / y as float64; NULL for y = 0.",
    examples=[("try_divide(3, 2)", 1.5), ("try_divide(1, 0)", None)],
)
def try_divide(call: Call) -> pl.Expr:
    return pl.when(call[1] != 0).then(float_quotient(call[0], call[1]))


@function(
    "factorial",
    signature="x integer -> int64",
    summary="x!; NULL below 0 and above 20.",
    examples=[("factorial(5)", 120), ("factorial(21)", None)],
)
def factorial(call: Call) -> pl.Expr:
    return map_values(call[0], _factorial, pl.Int64())


def _factorial(x: int) -> int | None:
    return math.factorial(x) if 0 <= x <= 20 else None


@function(
    "bin",
    signature="x integer -> string",
    summary="The binary digits (of the two's complement in 64 bits, for negative numbers).",
    examples=[("bin(13)", "1101"), ("bin(0)", "0")],
)
def bin_(call: Call) -> pl.Expr:
    return map_values(call[0], _binary_digits, pl.String())


def _binary_digits(x: int) -> str:
    return f"{x % 2**64:b}"


@function(
    "conv",
    signature="digits string, from_base constant integer, to_base constant integer -> string",
    summary="A whole number converted from one base (2 to 36) to another; NULL if the text is not a number in the first base.",
    examples=[("conv('ff', 16, 10)", "255"), ("conv('100', 2, 10)", "4")],
)
def conv(call: Call) -> pl.Expr:
    for index in (1, 2):
        if call.constant(index) is None or not 2 <= call.constant(index) <= 36:
            raise call.error(index, "a base must be between 2 and 36")
    return map_values(call[0], functools.partial(_converted, call.constant(1), call.constant(2)), pl.String())


def _converted(source: int, target: int, digits: str) -> str | None:
    if len(digits) > 128:
        return None
    try:
        number = int(digits, source)
    except ValueError:
        return None
    sign, number = ("-", -number) if number < 0 else ("", number)
    out = ""
    while True:
        number, rest = divmod(number, target)
        out = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[rest] + out
        if number == 0:
            return sign + out


@function(
    "bit_count",
    signature="x integer -> int64",
    summary="The number of bits that are 1.",
    examples=[("bit_count(7)", 3), ("bit_count(-1)", 64)],
)
def bit_count(call: Call) -> pl.Expr:
    return call[0].bitwise_count_ones().cast(pl.Int64)


@function(
    "shiftleft",
    signature="x integer, places integer -> int64",
    summary="The bits moved to the left (places modulo 64, as in Java). Also written x << places.",
    examples=[("shiftleft(2, 3)", 16), ("1 << 2", 4)],
)
def shiftleft(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _shifted_left, pl.Int64())


def _shifted_left(x: int, places: int) -> int:
    moved = (x << places % 64) % 2**64
    return moved - 2**64 if moved >= 2**63 else moved


@function(
    "shiftright",
    signature="x integer, places integer -> int64",
    summary="The bits moved to the right, the sign kept (places modulo 64). Also written x >> places.",
    examples=[("shiftright(-16, 2)", -4), ("16 >> 2", 4)],
)
def shiftright(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _shifted_right, pl.Int64())


def _shifted_right(x: int, places: int) -> int:
    return x >> places % 64


@function(
    "isnan",
    signature="x double -> boolean",
    summary="Whether x is NaN; false for NULL.",
    examples=[("isnan(sqrt(-1))", True), ("isnan(1)", False)],
    answers_null=True,
)
def isnan(call: Call) -> pl.Expr:
    return call[0].is_nan().fill_null(False)


@function(
    "nanvl",
    signature="x double, instead double -> float64",
    summary="The second number where the first is NaN.",
    examples=[("nanvl(sqrt(-1), 5)", 5.0)],
)
def nanvl(call: Call) -> pl.Expr:
    return pl.when(call[1].is_not_null()).then(pl.when(call[0].is_nan()).then(call[1]).otherwise(call[0]))


@function(
    "format_number",
    signature="x number, digits constant integer -> string",
    summary="The number with this number of decimal places, and commas between thousands.",
    examples=[("format_number(1234567.891, 2)", "1,234,567.89"), ("format_number(5, 0)", "5")],
)
def format_number(call: Call) -> pl.Expr:
    digits = call.constant(1)
    if digits is None or not 0 <= digits <= 30:
        raise call.error(1, "digits must be between 0 and 30")
    return map_values(call[0], functools.partial(_formatted, digits), pl.String())


def _formatted(digits: int, x: float | Decimal) -> str:
    return f"{x:,.{digits}f}"
