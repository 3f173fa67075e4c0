"""A plain three-valued evaluator of SQL expressions in Python, written from the SQL standard, row by row.

The property tests make random trees, evaluate them here, and compare with what the compiler's expressions give. It
shares nothing with the compiler: no polars, no sqlglot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

Value = Any
Row = dict[str, Any]


class Failure(Exception):
    """The row fails: division by zero, a cast that is impossible."""


@dataclass(frozen=True)
class Tree:
    """An operation on subtrees; a leaf has the operation ``column`` or ``constant``."""

    operation: str
    parts: tuple[Any, ...]

    def sql(self) -> str:
        return _sql(self)

    def value(self, row: Row) -> Value:
        return _VALUES[self.operation](row, *self.parts)


def column(name: str) -> Tree:
    return Tree("column", (name,))


def constant(value: Value) -> Tree:
    return Tree("constant", (value,))


def literal(value: Value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value) if not isinstance(value, float) else f"{value!r}e0" if "e" not in repr(value) else repr(value)


_FORMS = {
    "and": "({} AND {})", "or": "({} OR {})", "not": "(NOT {})", "is null": "({} IS NULL)",
    "is not null": "({} IS NOT NULL)", "is true": "({} IS TRUE)", "is false": "({} IS FALSE)",
    "is not true": "({} IS NOT TRUE)", "is unknown": "({} IS UNKNOWN)",
    "=": "({} = {})", "<>": "({} <> {})", "<": "({} < {})", "<=": "({} <= {})", ">": "({} > {})", ">=": "({} >= {})",
    "<=>": "({} <=> {})", "distinct": "({} IS DISTINCT FROM {})", "not distinct": "({} IS NOT DISTINCT FROM {})",
    "between": "({} BETWEEN {} AND {})", "not between": "({} NOT BETWEEN {} AND {})",
    "+": "({} + {})", "-": "({} - {})", "*": "({} * {})", "/": "({} / {})", "%": "({} % {})", "negative": "(- {})",
    "if": "IF({}, {}, {})", "nullif": "NULLIF({}, {})", "concat": "({} || {})", "cast": "CAST({} AS BIGINT)",
    "try_cast": "TRY_CAST({} AS BIGINT)",
}  # fmt: skip


def _sql(tree: Tree) -> str:
    operation, parts = tree.operation, tree.parts
    if operation == "column":
        return str(parts[0])
    if operation == "constant":
        return literal(parts[0])
    if operation in _FORMS:
        return _FORMS[operation].format(*(part.sql() for part in parts))
    if operation in ("in", "not in"):
        return f"({parts[0].sql()} {operation.upper()} ({', '.join(item.sql() for item in parts[1])}))"
    if operation in ("like", "not like", "ilike"):
        escape = f" ESCAPE {literal(parts[2])}" if parts[2] else ""
        return f"({parts[0].sql()} {operation.upper()} {parts[1].sql()}{escape})"
    if operation == "coalesce":
        return f"COALESCE({', '.join(part.sql() for part in parts[0])})"
    subject, branches, default = parts
    head = f"CASE {subject.sql()}" if subject else "CASE"
    whens = " ".join(f"WHEN {condition.sql()} THEN {result.sql()}" for condition, result in branches)
    tail = f" ELSE {default.sql()}" if default else ""
    return f"({head} {whens}{tail} END)"


def negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _and(row: Row, left: Tree, right: Tree) -> Value:
    first = left.value(row)
    if first is False:
        return False
    second = right.value(row)
    if second is False:
        return False
    return None if first is None or second is None else True


def _or(row: Row, left: Tree, right: Tree) -> Value:
    first = left.value(row)
    if first is True:
        return True
    second = right.value(row)
    if second is True:
        return True
    return None if first is None or second is None else False


def _compared(row: Row, left: Tree, right: Tree, test: Any) -> Value:
    first, second = left.value(row), right.value(row)
    return None if first is None or second is None else test(first, second)


def _equal_items(value: Value, items: list[Value]) -> bool | None:
    if value is None:
        return None
    if any(item is not None and item == value for item in items):
        return True
    return None if None in items else False


def _in(row: Row, left: Tree, items: tuple[Tree, ...]) -> Value:
    return _equal_items(left.value(row), [item.value(row) for item in items])


def _between(row: Row, value: Tree, low: Tree, high: Tree) -> Value:
    lower = _compared(row, value, low, lambda a, b: a >= b)
    upper = _compared(row, value, high, lambda a, b: a <= b)
    if lower is False or upper is False:
        return False
    return None if lower is None or upper is None else True


def like_matches(text: str, pattern: str, escape: str | None, fold: bool = False) -> bool:
    """Match by dynamic programming over (character of the text, item of the pattern): nothing like a regex."""
    items: list[tuple[str, str]] = []
    place = 0
    while place < len(pattern):
        character = pattern[place]
        if escape and character == escape:
            place += 1
            items.append(("literal", pattern[place]))
        else:
            items.append({"%": ("any", ""), "_": ("one", "")}.get(character, ("literal", character)))
        place += 1
    if fold:
        text = text.lower()
        items = [(kind, one) for kind, character in items for one in (character.lower() or [character])]
    reachable = {0}
    for kind, character in items:
        following: set[int] = set()
        for position in reachable:
            if kind == "any":
                following.update(range(position, len(text) + 1))
            elif position < len(text) and (kind == "one" or text[position] == character):
                following.add(position + 1)
        reachable = following
    return len(text) in reachable


def _like(row: Row, text: Tree, pattern: Tree, escape: str | None) -> Value:
    return _compared(row, text, pattern, lambda a, b: like_matches(a, b, escape))


def _ilike(row: Row, text: Tree, pattern: Tree, escape: str | None) -> Value:
    return _compared(row, text, pattern, lambda a, b: like_matches(a, b, escape, fold=True))


def wrapped(value: int) -> int:
    """Cut to 64 bits as two's complement does."""
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value


def _arithmetic(row: Row, left: Tree, right: Tree, operation: str) -> Value:
    first, second = left.value(row), right.value(row)
    if first is not None and second == 0 and operation in "/%" and isinstance(first, int):
        raise Failure
    if first is None or second is None:
        return None
    if operation == "+":
        return wrapped(first + second)
    if operation == "-":
        return wrapped(first - second)
    if operation == "*":
        return wrapped(first * second)
    quotient = abs(first) // abs(second)
    quotient = quotient if (first < 0) == (second < 0) else -quotient
    return wrapped(quotient if operation == "/" else first - quotient * second)


def _case(row: Row, subject: Tree | None, branches: tuple[tuple[Tree, Tree], ...], default: Tree | None) -> Value:
    for condition, result in branches:
        chosen = condition.value(row) is True if subject is None else _equals(row, subject, condition) is True
        if chosen:
            return result.value(row)
    return default.value(row) if default else None


def _equals(row: Row, left: Tree, right: Tree) -> Value:
    return _compared(row, left, right, lambda a, b: a == b)


def _coalesce(row: Row, parts: tuple[Tree, ...]) -> Value:
    for part in parts:
        value = part.value(row)
        if value is not None:
            return value
    return None


def _cast(row: Row, part: Tree, strict: bool) -> Value:
    text = part.value(row)
    if text is None:
        return None
    trimmed = text.strip()
    if re.fullmatch(r"[+-]?[0-9]+", trimmed) and -(2**63) <= int(trimmed) < 2**63:
        return int(trimmed)
    if strict:
        raise Failure
    return None


def _negative(row: Row, part: Tree) -> Value:
    value = part.value(row)
    return None if value is None else wrapped(-value)


def _nullif(row: Row, left: Tree, right: Tree) -> Value:
    value = left.value(row)
    return None if _equals(row, left, right) is True else value


def _concat(row: Row, left: Tree, right: Tree) -> Value:
    return _compared(row, left, right, lambda a, b: a + b)


def _if(row: Row, condition: Tree, then: Tree, otherwise: Tree) -> Value:
    return then.value(row) if condition.value(row) is True else otherwise.value(row)


_VALUES: dict[str, Any] = {
    "column": lambda row, name: row[name],
    "constant": lambda row, value: value,
    "and": _and,
    "or": _or,
    "not": lambda row, part: negated(part.value(row)),
    "is null": lambda row, part: part.value(row) is None,
    "is not null": lambda row, part: part.value(row) is not None,
    "is true": lambda row, part: part.value(row) is True,
    "is false": lambda row, part: part.value(row) is False,
    "is not true": lambda row, part: part.value(row) is not True,
    "is unknown": lambda row, part: part.value(row) is None,
    "=": _equals,
    "<>": lambda row, a, b: _compared(row, a, b, lambda x, y: x != y),
    "<": lambda row, a, b: _compared(row, a, b, lambda x, y: x < y),
    "<=": lambda row, a, b: _compared(row, a, b, lambda x, y: x <= y),
    ">": lambda row, a, b: _compared(row, a, b, lambda x, y: x > y),
    ">=": lambda row, a, b: _compared(row, a, b, lambda x, y: x >= y),
    "<=>": lambda row, a, b: a.value(row) == b.value(row),
    "distinct": lambda row, a, b: a.value(row) != b.value(row),
    "not distinct": lambda row, a, b: a.value(row) == b.value(row),
    "between": _between,
    "not between": lambda row, *parts: negated(_between(row, *parts)),
    "in": _in,
    "not in": lambda row, *parts: negated(_in(row, *parts)),
    "like": _like,
    "not like": lambda row, *parts: negated(_like(row, *parts)),
    "ilike": _ilike,
    "+": lambda row, a, b: _arithmetic(row, a, b, "+"),
    "-": lambda row, a, b: _arithmetic(row, a, b, "-"),
    "*": lambda row, a, b: _arithmetic(row, a, b, "*"),
    "/": lambda row, a, b: _arithmetic(row, a, b, "/"),
    "%": lambda row, a, b: _arithmetic(row, a, b, "%"),
    "negative": _negative,
    "if": _if,
    "nullif": _nullif,
    "concat": _concat,
    "coalesce": _coalesce,
    "case": _case,
    "cast": lambda row, part: _cast(row, part, strict=True),
    "try_cast": lambda row, part: _cast(row, part, strict=False),
}
