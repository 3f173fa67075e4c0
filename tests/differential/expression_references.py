"""What operations mean, in plain Python, from the documentation of Flink and docs/functions.md. No polars, no shared code.

A reference is called with the types of the operands, the type of the result and the operands' values of one row.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

#: The row fails; nothing is said here.
FAILS, SKIP = object(), object()
Reference = Callable[..., Any]
REFERENCES: dict[str, Reference] = {}


def reference(*names: str, kinds: str = "", nulls: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of the values. ``kinds`` are letters: s text, i integer, d decimal, f float, b boolean, D date,
    T time, * any; a last one repeats. Unless ``nulls``, NULL in, NULL out. Other types are skipped."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(types: Any, result: Any, *values: Any) -> Any:
            letters = kinds + kinds[-1:] * (len(values) - len(kinds))
            if not all(_is(letter, kind) for letter, kind in zip(letters, types, strict=False)):
                return SKIP
            if not nulls and any(value is None for value in values):
                return None
            return function(*values)

        for name in names:
            REFERENCES[name] = called
        return function

    return register


def _is(letter: str, kind: Any) -> bool:
    name = str(kind)
    return {
        "s": name == "String",
        "i": name in ("Int64", "Int8", "Int32", "Int16", "Null"),
        "x": name == "Int64",
        "d": name.startswith("Decimal"),
        "f": name == "Float64",
        "b": name == "Boolean",
        "D": name == "Date",
        "*": True,
    }[letter]


def wrapped(value: int) -> int:
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value


@reference("length", kinds="s")
def _length(text: str) -> int:
    return len(text)


@reference("reverse", kinds="s")
def _reverse(text: str) -> str:
    return text[::-1]


@reference("octet_length", kinds="s")
def _octets(text: str) -> int:
    return len(text.encode())


@reference("substring", kinds="sii")
def _substring(text: str, start: int, size: int | None = None) -> str:
    begin = start - 1 if start > 0 else 0 if start == 0 else len(text) + start
    if begin < 0:
        return ""
    return text[begin:] if size is None else text[begin : begin + max(size, 0)]


@reference("left", kinds="si")
def _left(text: str, count: int) -> str:
    return "".join(character for place, character in enumerate(text) if place < count)


@reference("right", kinds="si")
def _right(text: str, count: int) -> str:
    return "".join(character for place, character in enumerate(text) if place >= len(text) - count)


@reference("btrim", kinds="s")
def _btrim(text: str, characters: str = " ") -> str:
    return str(_rtrim(_ltrim(text, characters), characters))


@reference("ltrim", kinds="s")
def _ltrim(text: str, characters: str = " ") -> str:
    while text and text[0] in characters:
        text = text[1:]
    return text


@reference("rtrim", kinds="s")
def _rtrim(text: str, characters: str = " ") -> str:
    while text and text[-1] in characters:
        text = text[:-1]
    return text


def _filling(text: str, size: int, padding: str) -> str | None:
    if size < 0 or size > 100_000 or not padding:
        return None
    out = ""
    while len(text) + len(out) < size:
        out += padding[len(out) % len(padding)]
    return out


@reference("lpad", kinds="sis")
def _lpad(text: str, size: int, padding: str = " ") -> str | None:
    made = _filling(text, size, padding)
    return None if made is None else (made + text)[:size] if made else text[:size]


@reference("rpad", kinds="sis")
def _rpad(text: str, size: int, padding: str = " ") -> str | None:
    made = _filling(text, size, padding)
    return None if made is None else (text + made)[:size]


@reference("repeat", kinds="si")
def _repeat(text: str, count: int) -> str | None:
    return None if len(text) * count > 100_000 else "".join(text for _ in range(count)) if text else ""


@reference("replace", kinds="s")
def _replace(text: str, search: str, instead: str = "") -> str:
    return instead.join(text.split(search)) if search else text


@reference("translate", kinds="s")
def _translate(text: str, source: str, target: str) -> str:
    out = ""
    for character in text:
        place = source.find(character)
        out += character if place < 0 else target[place : place + 1]
    return out


@reference("locate", kinds="ssi")
def _locate(search: str, text: str, start: int = 1) -> int:
    return (
        next((at + 1 for at in range(max(start - 1, 0), len(text) + 1) if text[at:].startswith(search)), 0)
        if start > 0
        else 0
    )


@reference("instr", kinds="s")
def _instr(text: str, search: str) -> int:
    return int(_locate(search, text))


@reference("position", kinds="s")
def _position(search: str, text: str) -> int:
    return int(_locate(search, text))


@reference("startswith", kinds="s")
def _startswith(text: str, prefix: str) -> bool:
    return text[: len(prefix)] == prefix


@reference("endswith", kinds="s")
def _endswith(text: str, suffix: str) -> bool:
    return text[len(text) - len(suffix) :] == suffix if len(suffix) <= len(text) else False


@reference("contains", kinds="s")
def _contains(text: str, search: str) -> bool:
    return search in text


@reference("levenshtein", kinds="s")
def _levenshtein(left: str, right: str) -> Any:
    if len(left) * len(right) > 10_000:
        return SKIP
    above = list(range(len(right) + 1))
    for row, one in enumerate(left, start=1):
        current = [row]
        for column, other in enumerate(right, start=1):
            current.append(min(above[column] + 1, current[-1] + 1, above[column - 1] + (one != other)))
        above = current
    return above[-1]


@reference("||", "concat", kinds="s")
def _concat(*texts: str) -> str:
    return "".join(texts)


@reference("find_in_set", kinds="s")
def _find_in_set(search: str, listed: str) -> int:
    return next((place for place, piece in enumerate(listed.split(","), start=1) if piece == search), 0)


@reference("split_index", kinds="ssi")
def _split_index(text: str, separator: str, index: int) -> str | None:
    pieces = (text.split(separator) if separator else list(text)) if text else []
    return pieces[index] if 0 <= index < len(pieces) else None


@reference("+", kinds="x")
def _add(left: int, right: int) -> int:
    return wrapped(left + right)


@reference("-", kinds="x")
def _subtract(left: int, right: int) -> int:
    return wrapped(left - right)


@reference("*", kinds="x")
def _multiply(left: int, right: int) -> int:
    return wrapped(left * right)


def _cut(value: Fraction) -> int:
    return int(value)


@reference("/", "DIV", kinds="x")
def _divide(left: int, right: int) -> Any:
    return FAILS if right == 0 else wrapped(_cut(Fraction(left, right)))


@reference("%", "mod", kinds="x")
def _remainder(left: int, right: int) -> Any:
    return FAILS if right == 0 else wrapped(left - right * _cut(Fraction(left, right)))


@reference("pmod", kinds="i")
def _pmod(left: int, right: int) -> Any:
    return None if right == 0 else left - right * math.floor(Fraction(left, right))


@reference("&", kinds="x")
def _and_bits(left: int, right: int) -> int:
    return wrapped((left % 2**64) & (right % 2**64))


@reference("shiftleft", "<<", kinds="i")
def _shiftleft(value: int, places: int) -> int:
    return wrapped(value * 2 ** (places % 64))


@reference("shiftright", ">>", kinds="i")
def _shiftright(value: int, places: int) -> int:
    return math.floor(Fraction(value, 2 ** (places % 64)))


@reference("abs", kinds="x")
def _abs(value: int) -> int:
    return wrapped(value if value >= 0 else -value)


@reference("sign", kinds="i")
def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


@reference("factorial", kinds="i")
def _factorial(value: int) -> int | None:
    return math.prod(range(1, value + 1)) if 0 <= value <= 20 else None


@reference("bin", kinds="i")
def _bin(value: int) -> str:
    return format(value % 2**64, "b")


def _comparison(name: str, test: Callable[[Any, Any], bool]) -> None:
    for kinds in ("s", "x", "D", "b"):
        before = REFERENCES.get(name)
        reference(name, kinds=kinds)(test)
        REFERENCES[name] = _either(before, REFERENCES[name])


def _either(first: Reference | None, second: Reference) -> Reference:
    def called(*arguments: Any) -> Any:
        made = SKIP if first is None else first(*arguments)
        return second(*arguments) if made is SKIP else made

    return called


for _name, _test in {
    "=": lambda a, b: a == b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: not b < a,
    ">": lambda a, b: b < a, ">=": lambda a, b: not a < b,
}.items():  # fmt: skip
    _comparison(_name, _test)


@reference("AND", kinds="b", nulls=True)
def _and(left: bool | None, right: bool | None) -> bool | None:
    return False if left is False or right is False else None if left is None or right is None else True


@reference("OR", kinds="b", nulls=True)
def _or(left: bool | None, right: bool | None) -> bool | None:
    return True if left or right else None if left is None or right is None else False


@reference("LIKE", kinds="s")
def _like(text: str, pattern: str) -> bool:
    reached = {0}
    for character in pattern:
        if character == "%":
            reached = set(range(min(reached), len(text) + 1)) if reached else reached
        else:
            reached = {at + 1 for at in reached if at < len(text) and character in ("_", text[at])}
    return len(text) in reached


@reference("coalesce", "nvl", "COALESCE({}, {})", kinds="s", nulls=True)
def _coalesce(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


@reference("nullif", kinds="s", nulls=True)
def _nullif(value: Any, unwanted: Any) -> Any:
    return None if value == unwanted else value


@reference("greatest", kinds="s")
def _greatest(*values: str) -> str:
    return sorted(values)[-1]


@reference("least", kinds="s")
def _least(*values: str) -> str:
    return sorted(values)[0]


@reference("date_add", "dateadd", kinds="Di")
def _date_add(day: dt.date, days: int) -> Any:
    number = day.toordinal() + days
    return dt.date.fromordinal(number) if 1 <= number <= dt.date.max.toordinal() else None


@reference("add_months", kinds="Di")
def _add_months(day: dt.date, months: int) -> Any:
    number = day.year * 12 + day.month - 1 + months
    year, month = number // 12, number % 12 + 1
    if not 1 <= year <= 9999:
        return None
    return dt.date(year, month, min(day.day, calendar.monthrange(year, month)[1]))


@reference("last_day", kinds="D")
def _last_day(day: dt.date) -> dt.date:
    return dt.date(day.year, day.month, calendar.monthrange(day.year, day.month)[1])


@reference("datediff", kinds="D")
def _datediff(end: dt.date, start: dt.date) -> int:
    return end.toordinal() - start.toordinal()


@reference("EXTRACT(YEAR FROM {})", kinds="D")
def _year(day: dt.date) -> int:
    return day.year


def _to_integer(bits: int, strict: bool) -> Callable[[str], Any]:
    def cast(text: str) -> Any:
        # As in Flink, what stands behind a point is cut off.
        found = re.fullmatch(r"([+-]?[0-9]{1,40})(\.[0-9]*)?", re.sub(r"^([+-]?)(\.[0-9])", r"\g<1>0\2", text.strip()))
        fits = found is not None and -(2 ** (bits - 1)) <= int(found[1]) < 2 ** (bits - 1)
        return int(found[1]) if fits and found else FAILS if strict else None

    return cast


def _to_boolean(strict: bool) -> Callable[[str], Any]:
    def cast(text: str) -> Any:
        word = text.strip().lower()
        known = {
            **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
            **dict.fromkeys(("false", "f", "no", "n", "0"), False),
        }
        return known.get(word, FAILS if strict else None)

    return cast


for _word, _strict in (("CAST", True), ("TRY_CAST", False)):
    reference(f"{_word} BIGINT", kinds="s")(_to_integer(64, _strict))
    reference(f"{_word} TINYINT", kinds="s")(_to_integer(8, _strict))
    reference(f"{_word} BOOLEAN", kinds="s")(_to_boolean(_strict))


def _rounded(value: Fraction) -> int:
    whole = math.floor(abs(value) + Fraction(1, 2))
    return whole if value >= 0 else -whole


@reference("round", kinds="di")
def _round(value: Decimal, digits: int = 0) -> Any:
    return Decimal(_rounded(Fraction(value))) if digits == 0 and abs(value) < 10**37 else SKIP


@reference("ceil", kinds="d")
def _ceil(value: Decimal) -> Decimal:
    return Decimal(math.ceil(Fraction(value)))


@reference("floor", kinds="d")
def _floor(value: Decimal) -> Decimal:
    return Decimal(math.floor(Fraction(value)))
