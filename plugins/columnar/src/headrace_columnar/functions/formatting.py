"""``printf``: texts by the format of ``java.util.Formatter``, which Flink's PRINTF uses."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any

import polars as pl
from headrace_columnar.casts import to_text
from headrace_columnar.registry import Call, function
from headrace_columnar.rowwise import by_series
from headrace_columnar.sql_types import is_scalar
from sqlglot import exp

#: As java.util.Formatter reads it: place, flags, width, digits, conversion.
_PART = re.compile(r"%(?:(\d+)\$|(<))?([-#+ 0,(]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")


#: Enough for all digits of a double and those behind the point that a format may ask for.
_DIGITS_MAX = 1_000
_EXACT = Context(prec=400 + _DIGITS_MAX)


class _Unusable(Exception):
    """The format does not fit the values: the result is NULL."""


@function(
    "printf",
    signature="format string, [value any...] -> string",
    summary="Values in a text by a format: %d, %s, %5.2f, %x, %05d, %,d, %-8s, %2$s, %n, %%. NULL values are written null; "
    "NULL if the format does not fit the values.",
    examples=[
        ("printf('%d', 5)", "5"),
        ("printf('%05d|%-4s|%,d', 42, 'a', 1234567)", "00042|a   |1,234,567"),
        ("printf('%.2f %x', 2.345, 255)", "2.35 ff"),
        ("printf('%2$s %1$s', 'a', 'b')", "b a"),
        ("printf('%.0f %.1e', CAST(1e30 AS DOUBLE), CAST(1e30 AS DOUBLE))", "1000000000000000000000000000000 1.0e+30"),
        ("printf('%s %s', CAST(1e20 AS DOUBLE), CAST(0.1 AS FLOAT))", "1.0E20 0.1"),
        ("printf('%x %x', -1, CAST(-1 AS BIGINT))", "ffffffff ffffffffffffffff"),
        ("printf('%s', NULL)", "null"),
        ("printf('%d', 'x')", None),
    ],
    answers_null=True,
)
def printf(call: Call) -> pl.Expr:
    columns = [call[0]]
    texts: list[pl.Expr] = []
    numeric: list[int] = []
    floats: dict[int, int] = {}
    for index, argument in enumerate(call.arguments[1:], start=1):
        kind = argument.data_type
        is_number = kind.is_numeric() or isinstance(kind, pl.Boolean | pl.Null)
        if not is_scalar(kind):
            raise call.error(index, "takes values of simple types; write CAST(… AS VARCHAR)")
        is_int = isinstance(kind, pl.Int8 | pl.Int16 | pl.Int32) or _is_int_literal(call.node.expressions[index])
        numeric.append(32 if is_int else 64)
        columns.append(argument.expression if is_number else to_text(argument))
        if kind.is_float():
            floats[index - 1] = len(texts)
            texts.append(to_text(argument))
    return by_series([*columns, *texts], functools.partial(_formatted, tuple(numeric), floats), pl.String())


def _is_int_literal(node: Any) -> bool:
    """Return whether a number in the text is an INT to SQL, though it has 64 bits here."""
    if isinstance(node, exp.Neg | exp.Paren):
        return _is_int_literal(node.this)
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and int(node.name) < 2**31


class _Float(float):
    """A number with its text: that of CAST, which %s writes."""

    text: str


def _with_text(value: float | None, text: str | None) -> _Float | None:
    if value is None or text is None:
        return None
    made = _Float(value)
    made.text = text
    return made


def _formatted(bits: tuple[int, ...], floats: dict[int, int], formats: pl.Series, *values: pl.Series) -> pl.Series:
    """``floats``: of each number that is a float, which of the texts behind the values is its own."""
    lists: list[list[Any]] = [each.to_list() for each in values[: len(bits)]]
    for index, place in floats.items():
        texts = values[len(bits) + place].to_list()
        lists[index] = [_with_text(*each) for each in zip(lists[index], texts, strict=True)]
    made = []
    for row, text in enumerate(formats.to_list()):
        try:
            made.append(None if text is None else _text(text, [each[row] for each in lists], bits))
        except _Unusable:
            made.append(None)
    return pl.Series(formats.name, made, dtype=pl.String)


def _text(layout: str, values: Sequence[Any], bits: Sequence[int]) -> str:
    made, end, ordinary, last = [], 0, 0, None
    for found in _PART.finditer(layout):
        between = layout[end : found.start()]
        if "%" in between:
            raise _Unusable
        made.append(between)
        end = found.end()
        place, again, flags, width, digits, conversion = found.groups()
        if conversion in "%n":
            made.append(_filled("\n" if conversion == "n" else "%", flags, width))
            continue
        if again:
            index = last
        elif place:
            index = int(place) - 1
        else:
            index, ordinary = ordinary, ordinary + 1
        if index is None or not 0 <= index < len(values):
            raise _Unusable
        last = index
        made.append(_value(values[index], bits[index], flags, width, digits, conversion))
    if "%" in layout[end:]:
        raise _Unusable
    return "".join([*made, layout[end:]])


def _value(value: Any, bits: int, flags: str, width: str | None, digits: str | None, conversion: str) -> str:
    kind = conversion.lower()
    if kind == "b":
        text = "false" if value is None else str(value).lower() if isinstance(value, bool) else "true"
    elif value is None and kind in "sdoxefgc":
        text, flags = "null", flags.replace("0", "")
    elif kind == "s":
        text = _plain(value)
    elif kind in "dox":
        text = _whole(value, bits, flags, width, kind, digits)
    elif kind in "efg":
        if digits is not None and int(digits) > _DIGITS_MAX:
            raise _Unusable
        with localcontext(_EXACT):
            text = _fraction(value, flags, width, 6 if digits is None else int(digits), kind)
    elif kind == "c":
        text = _character(value)
    else:
        raise _Unusable
    if digits is not None and kind in "sb":
        text = text[: int(digits)]
    if digits is not None and kind == "c":
        raise _Unusable
    return _filled(text.upper() if conversion.isupper() else text, flags, width)


def _plain(value: Any) -> str:
    if isinstance(value, _Float):
        return value.text
    return str(value).lower() if isinstance(value, bool) else str(value)


def _character(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0x10FFFF:
        return chr(value)
    if isinstance(value, str) and len(value) == 1:
        return value
    raise _Unusable


def _whole(value: Any, bits: int, flags: str, width: str | None, kind: str, digits: str | None) -> str:
    if not isinstance(value, int) or isinstance(value, bool) or digits is not None:
        raise _Unusable
    if kind == "d":
        return _signed(value < 0, f"{abs(value):,}" if "," in flags else str(abs(value)), flags, width)
    # As Java: the bits of a negative number.
    text = format(value if value >= 0 else value + (1 << bits), kind)
    text = ("0x" if kind == "x" else "0") + text if "#" in flags else text
    return text.zfill(int(width)) if "0" in flags and width else text


def _fraction(value: Any, flags: str, width: str | None, digits: int, kind: str) -> str:
    if not isinstance(value, float | Decimal) or isinstance(value, bool):
        raise _Unusable
    number = Decimal(str(value)) if isinstance(value, float) else value
    if not number.is_finite():
        text = "NaN" if number.is_nan() else "Infinity"
        return _signed(not number.is_nan() and number < 0, text, flags.replace("0", ""), width)
    size = abs(number)
    if kind == "g":
        digits = max(1, digits)
        rounded = Decimal(f"{size:.{digits - 1}e}")
        # Java: %g has the form of %f for numbers from 0.0001 up to ten to the power of the digits.
        kind = "f" if rounded == 0 or Decimal("0.0001") <= rounded < Decimal(10) ** digits else "e"
        digits = digits - 1 if kind == "e" or rounded == 0 else max(0, digits - 1 - rounded.adjusted())
    if kind == "e":
        exponent = size.adjusted() if size else 0
        mantissa = size.scaleb(-exponent).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
        if mantissa >= 10:
            mantissa, exponent = (mantissa / 10).quantize(Decimal(1).scaleb(-digits)), exponent + 1
        text = f"{mantissa}e{exponent:+03d}"
    else:
        rounded = size.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
        text = f"{rounded:,f}" if "," in flags else f"{rounded:f}"
    return _signed(number < 0, text, flags, width)


def _signed(negative: bool, text: str, flags: str, width: str | None) -> str:
    before, behind = "", ""
    if negative:
        before, behind = ("(", ")") if "(" in flags else ("-", "")
    elif "+" in flags:
        before = "+"
    elif " " in flags:
        before = " "
    if "0" in flags and width:
        text = text.zfill(int(width) - len(before) - len(behind))
    return before + text + behind


def _filled(text: str, flags: str, width: str | None) -> str:
    if "-" in flags and width is None:
        raise _Unusable
    if width is None:
        return text
    return text.ljust(int(width)) if "-" in flags else text.rjust(int(width))
