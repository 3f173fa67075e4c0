"""Decimals computed exactly, at every edge: a result is NULL only where its type cannot hold it.

polars computes with 128 bits, rounds halves to even, and raises for results of more than 38 digits. So each operation is
done by polars for the rows of which floats say that this is exact, and by Python's ``decimal`` for the others.
"""

from __future__ import annotations

import decimal
import functools
import re
from decimal import Decimal
from typing import Literal

import polars as pl
from headrace_columnar.rowwise import by_series

Rounding = Literal["half_away_from_zero", "half_to_even", "up", "down"]

#: Enough digits for every step; no operation of two decimals of 38 digits needs more.
EXACT = decimal.Context(prec=200, Emax=10_000, Emin=-10_000)
_MODES = {
    "half_away_from_zero": decimal.ROUND_HALF_UP,
    "half_to_even": decimal.ROUND_HALF_EVEN,
    "up": decimal.ROUND_CEILING,
    "down": decimal.ROUND_FLOOR,
}
#: Floats are near their decimals, but not equal: the last part of a range is left to Python.
_SURE = 1 - 1e-9


def rounded(value: pl.Expr, target: pl.Decimal, rounding: Rounding = "half_away_from_zero") -> pl.Expr:
    """Return decimals rounded to the target's scale; NULL where the target is too narrow."""
    return by_series([value], functools.partial(_rounded, target, rounding), target)


def _rounded(target: pl.Decimal, rounding: Rounding, values: pl.Series) -> pl.Series:
    source = values.dtype
    if not isinstance(source, pl.Decimal):
        return values.cast(target, strict=False)
    sure = values.cast(pl.Float64).abs() < (10.0 ** (38 - source.scale) - 1) * _SURE
    value = pl.when(pl.col("sure")).then(pl.col("value").cast(pl.Decimal(38, source.scale)))
    whole = {"up": value.ceil, "down": value.floor}.get(rounding)
    made = whole() if whole is not None else value.round(target.scale, mode=rounding)  # type: ignore[arg-type]
    frame = pl.DataFrame({"value": values, "sure": sure})
    result = frame.select(made.cast(target, strict=False)).to_series()
    places = (~sure.fill_null(True)).arg_true()
    return _mended(result, places, [fitted(value, target, rounding) for value in values.gather(places)], target)


def _mended(result: pl.Series, places: pl.Series, exact: list[Decimal | None], target: pl.Decimal) -> pl.Series:
    return result.scatter(places, pl.Series(exact, dtype=target)) if len(places) else result


def fitted(value: Decimal, target: pl.Decimal, rounding: Rounding = "half_away_from_zero") -> Decimal | None:
    """Return the value rounded to the target's scale, or None if the target is too narrow."""
    assert target.precision is not None
    if value and value.adjusted() > 38:
        return None
    made = value.quantize(Decimal((0, (1,), -target.scale)), _MODES[rounding], EXACT)
    return made if made.copy_abs().compare(Decimal((0, (1,), target.precision - target.scale)), EXACT) < 0 else None


def computed(operation: str, left: pl.Expr, right: pl.Expr, scales: tuple[int, int], kind: pl.Decimal) -> pl.Expr:
    """Return ``left operation right`` (``+ - * / % DIV``) of decimals or integers with these scales, rounded to ``kind``.

    NULL where ``kind`` cannot hold the result, and for a divisor of 0.
    """
    return by_series([left, right], functools.partial(_computed, operation, scales, kind), kind)


def _computed(
    operation: str, scales: tuple[int, int], kind: pl.Decimal, left: pl.Series, right: pl.Series
) -> pl.Series:
    scale = _working_scale(operation, scales, kind)
    frame = pl.DataFrame({"l": left, "r": right})
    frame = frame.select("l", "r", x=pl.col("l").cast(pl.Float64), y=pl.col("r").cast(pl.Float64))
    known = frame["l"].is_not_null() & frame["r"].is_not_null()
    if operation in ("/", "%", "DIV"):
        known &= frame["y"] != 0
    if scale > 37:
        # Of these, floats say nothing.
        result = pl.Series([None], dtype=kind).new_from_index(0, frame.height)
        places = known.arg_true()
    else:
        sure, made = _by_polars(operation, scale)
        frame = frame.with_columns(sure.fill_null(False).alias("sure"))
        working, right_kind = pl.Decimal(38, scale), pl.Decimal(38, scales[1])
        operands = {
            "a": pl.when("sure").then(pl.col("l").cast(working, strict=False)),
            "b": pl.when("sure").then(pl.col("r").cast(right_kind, strict=False)),
        }
        fine = frame.with_columns(**operands).select("sure", made=made)
        result = _rounded(kind, "half_away_from_zero", fine["made"])
        unsure = ~fine["sure"]
        if operation == "/":
            # Rounded twice, which is right unless the first time gave a half.
            unit = pl.lit(Decimal((0, (1, 0), -kind.scale - 1)), dtype=working)
            half = pl.lit(Decimal((0, (5,), -kind.scale - 1)), dtype=working)
            unsure |= fine.select((pl.col("made").abs() % unit == half).fill_null(False)).to_series()
        places = (known & unsure).arg_true()
    rows = frame[places].select("l", "r").iter_rows()
    return _mended(result, places, [_by_python(operation, Decimal(a), Decimal(b), kind) for a, b in rows], kind)


def _working_scale(operation: str, scales: tuple[int, int], kind: pl.Decimal) -> int:
    """Return the scale at which polars' result is exact, or, for a quotient, has more digits than are wanted."""
    if operation == "*":
        return sum(scales)
    # With four digits more, one quotient in ten thousand has a half after the last digit and is computed again.
    return max(*scales, min(max(kind.scale + 1, 37), kind.scale + 4) if operation == "/" else 0)


def _by_polars(operation: str, scale: int) -> tuple[pl.Expr, pl.Expr]:
    """Return in which rows polars computes exactly, by the operands as floats, and how, of decimals ``a`` and ``b``."""
    a, b, x, y = (pl.col(name) for name in "abxy")
    limit = 10.0 ** (38 - scale) * _SURE
    if operation in ("+", "-"):
        return x.abs() + y.abs() < limit, a + b if operation == "+" else a - b
    if operation == "*":
        return ((x * y).abs() < limit) & (x.abs() < limit), a * b
    if operation == "/":
        return (y != 0) & (x.abs() < limit) & ((x / y).abs() < limit), a / b
    positive = a.abs() % b.abs()
    remainder = pl.when(x < 0).then(-positive).otherwise(positive)
    sure = (y != 0) & (x.abs() < limit) & (y.abs() < limit)
    if operation == "%":
        return sure, remainder
    return sure & ((x / y).abs() < limit), (a - remainder) / b


def _by_python(operation: str, left: Decimal, right: Decimal, kind: pl.Decimal) -> Decimal | None:
    compute = {
        "+": EXACT.add,
        "-": EXACT.subtract,
        "*": EXACT.multiply,
        "/": EXACT.divide,
        "%": EXACT.remainder,
        "DIV": EXACT.divide_int,
    }[operation]
    return fitted(compute(left, right), kind)


#: A number as SQL writes it.
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
#: Texts of numbers are read up to this length; no decimal of SQL needs more than 39 characters.
_TEXT_MAX = 1_000


def from_text(text: pl.Expr, target: pl.Decimal) -> pl.Expr:
    """Return the decimals that texts without spaces around them hold, rounded to the target's scale; else NULL."""
    return by_series([text], functools.partial(_from_text, target), target)


def _from_text(target: pl.Decimal, texts: pl.Series) -> pl.Series:
    result = pl.Series([None], dtype=target).new_from_index(0, len(texts))
    unsure = texts.is_not_null()
    if target.scale < 37:
        # polars rounds halves to even, so it may only read texts with at most one digit more than wanted.
        digits = target.scale + 1
        plain = texts.str.contains(rf"^[+-]?(?:[0-9]+(?:\.[0-9]{{0,{digits}}})?|\.[0-9]{{1,{digits}}})$")
        made = texts.cast(pl.Decimal(38, digits), strict=False)
        made = made.zip_with(plain.fill_null(False), made.clear(1).new_from_index(0, len(made)))
        result, unsure = _rounded(target, "half_away_from_zero", made), unsure & made.is_null()
    places = unsure.arg_true()
    return _mended(result, places, [parsed(value, target) for value in texts.gather(places)], target)


def parsed(text: str, target: pl.Decimal) -> Decimal | None:
    """Return the decimal that a text holds, rounded to the target's scale; None for another text, or one too great."""
    if len(text) > _TEXT_MAX or _NUMBER.fullmatch(text) is None:
        return None
    value = Decimal(text)
    if value and value.adjusted() < -60:
        value = Decimal(0)
    return fitted(value, target)
