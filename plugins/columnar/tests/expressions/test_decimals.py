"""Decimals against fractions: exact at every edge, rounded once, NULL only where the type cannot hold the result."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace_columnar.expressions import compile_expression, evaluate

KINDS = [(10, 2), (12, 3), (38, 0), (38, 10), (38, 18), (38, 37), (5, 5), (19, 0)]
ROWS = 200


def decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def column(chance: random.Random, precision: int, scale: int) -> pl.Series:
    """Values of every size, and the edges."""
    edge = 10**precision - 1
    made = [edge, -edge, edge - 1, 1, -1, 5, 25, -125, 10**scale if scale < precision else 1, 0]
    while len(made) < ROWS:
        digits = chance.randint(1, precision)
        made.append(chance.choice([1, -1]) * chance.randint(0, 10**digits - 1))
    chance.shuffle(made)
    return pl.Series([decimal(each, scale) for each in made], dtype=pl.Decimal(precision, scale))


def cut(value: Fraction) -> int:
    whole = abs(value.numerator) // value.denominator
    return whole if value >= 0 else -whole


def exact(operation: str, left: Fraction, right: Fraction) -> Fraction:
    if operation in ("+", "-", "*"):
        return {"+": left + right, "-": left - right, "*": left * right}[operation]
    if operation == "/":
        return left / right
    return left - right * cut(left / right)


def held(value: Fraction, kind: pl.DataType) -> Decimal | None:
    """The value with the type's digits, halves away from zero; None if it has no room."""
    assert isinstance(kind, pl.Decimal)
    scaled = abs(value) * 10**kind.scale
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    whole += 2 * rest >= scaled.denominator
    return None if whole >= 10**kind.precision else decimal(whole if value >= 0 else -whole, kind.scale)


@pytest.mark.parametrize("operation", ["+", "-", "*", "/", "%"])
@pytest.mark.parametrize("left", KINDS)
def test_arithmetic(operation: str, left: tuple[int, int]) -> None:
    for number, right in enumerate(KINDS):
        chance = random.Random(f"{operation}{left}{number}")
        frame = pl.DataFrame({"a": column(chance, *left), "b": column(chance, *right)})
        compiled = compile_expression(f"a {operation} b", Schema(dict(frame.schema)))
        values, failures = evaluate(compiled, frame)
        failed = {row for row, _ in failures}
        for row, (a, b) in enumerate(frame.iter_rows()):
            assert (row in failed) == (operation in "/%" and b == 0)
            if row not in failed:
                wanted = held(exact(operation, Fraction(a), Fraction(b)), compiled.data_type)
                assert values[row] == wanted, f"{a} {operation} {b}"


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", [(38, 0), (38, 18), (10, 2), (3, 1), (38, 37)])
def test_casts_of_decimals_and_texts(source: tuple[int, int], target: tuple[int, int]) -> None:
    given = column(random.Random(f"{source}{target}"), *source)
    frame = pl.DataFrame(
        {"a": given, "s": [f"{each:f}" for each in given.to_list()], "e": [f"{each:e}" for each in given.to_list()]}
    )
    wanted = [held(Fraction(each), pl.Decimal(*target)) for each in given.to_list()]
    for name in "ase":
        text = f"TRY_CAST({name} AS DECIMAL({target[0]}, {target[1]}))"
        assert evaluate(compile_expression(text, Schema(dict(frame.schema))), frame)[0].to_list() == wanted


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize(
    ("call", "away"), [("round(a)", "half"), ("round(a, 1)", "half"), ("ceil(a)", "up"), ("floor(a)", "down")]
)
def test_rounding(source: tuple[int, int], call: str, away: str) -> None:
    frame = pl.DataFrame({"a": column(random.Random(f"{source}{call}"), *source)})
    compiled = compile_expression(call, Schema(dict(frame.schema)))
    values, failures = evaluate(compiled, frame)
    assert failures == []
    for (value,), made in zip(frame.iter_rows(), values.to_list(), strict=True):
        exactly = Fraction(value)
        rounded = {"half": exactly, "up": Fraction(-(-exactly // 1)), "down": Fraction(exactly // 1)}[away]
        assert made == held(rounded, compiled.data_type), f"{call} of {value}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0.12499999999", "0.12"), ("0.125", "0.13"), ("-0.125", "-0.13"), ("1e3", "1000.00"), ("1E-3", "0.00"), (".5", "0.50"),
        ("5.", "5.00"),
        (" +5 ", "5.00"), ("-0", "0.00"), ("1_000", None), ("0x1F", None), ("", None), ("９", None), ("NaN", None), ("inf", None),
        ("1e999999999", None), ("1e-999999999", "0.00"), ("1e9999999999", None), ("9" * 36 + ".99", "9" * 36 + ".99"),
        ("9" * 36 + ".995", None), ("0" * 50 + "1", "1.00"), ("0." + "0" * 900 + "1", "0.00"), ("-", None), (".", None), ("1 2", None),
    ],
)  # fmt: skip
def test_texts(text: str, wanted: str | None) -> None:
    frame = pl.DataFrame({"s": [None, text, "1"]})
    values, _ = evaluate(compile_expression("TRY_CAST(s AS DECIMAL(38, 2))", Schema({"s": pl.String()})), frame)
    assert values.to_list() == [None, None if wanted is None else Decimal(wanted), Decimal(1)]
