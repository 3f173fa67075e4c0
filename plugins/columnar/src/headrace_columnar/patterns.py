"""LIKE, ILIKE, SIMILAR TO and RLIKE: each pattern becomes the cheapest test that gives the same answer."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace_columnar.regular_expressions import (
    COLUMN_REFUSAL,
    PatternError,
    backtracking,
    by_pattern,
    engine,
    is_column_pattern,
    refuse_patterns,
)
from headrace_columnar.search_patterns import shortened
from headrace_columnar.sql_types import Typed, is_text, shown

if TYPE_CHECKING:
    from headrace_columnar.compiler import Compiler

_NAMES = {"like": "LIKE", "ilike": "ILIKE", "similar": "SIMILAR TO", "regex": "RLIKE"}
_LIKE_REFUSAL = "is not a pattern: the escape character must be followed by %, _ or itself"
_REFUSALS = {"like": _LIKE_REFUSAL, "ilike": _LIKE_REFUSAL, "similar": COLUMN_REFUSAL, "regex": COLUMN_REFUSAL}
ANY, ONE = "%", "_"


def split_like(pattern: str, escape: str | None) -> list[str | None]:
    """Return the parts of a LIKE pattern: literal texts, ``None`` for ``%`` and ``""`` for ``_``."""
    parts: list[str | None] = []
    literal = ""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None or following not in (ANY, ONE, escape):
                raise PatternError(f"the escape character {escape!r} must be followed by %, _ or itself")
            literal += following
        elif character in (ANY, ONE):
            if literal:
                parts.append(literal)
                literal = ""
            parts.append(None if character == ANY else "")
        else:
            literal += character
    if literal:
        parts.append(literal)
    # Neighbouring % mean one; _ before % and after it are the same, so that %_ becomes _%.
    tidy: list[str | None] = []
    for part in parts:
        if part is None and tidy and tidy[-1] is None:
            continue
        if part == "" and tidy and tidy[-1] is None:
            tidy.insert(len(tidy) - 1, "")
            continue
        tidy.append(part)
    return tidy


def _rust_like_regex(parts: list[str | None]) -> str:
    pieces = [".*" if part is None else "." if part == "" else pl.escape_regex(part) for part in parts]
    body = "".join(pieces)
    # A search that may begin or end anywhere is said by leaving the anchor out, which is faster than .*
    start = "" if body.startswith(".*") else "^"
    end = "" if body.endswith(".*") else "$"
    return "(?s)" + start + body.removeprefix(".*").removesuffix(".*") + end


def like(value: pl.Expr, pattern: str, escape: str | None) -> pl.Expr:
    """Return the test of a LIKE pattern that is known now. ``%`` and ``_`` match line breaks too."""
    return _like_parts(value, split_like(pattern, escape))


def ilike(value: pl.Expr, pattern: str, escape: str | None) -> pl.Expr:
    """As ``like``, with both sides in lower case, which is how Spark defines ILIKE."""
    return _like_parts(value.str.to_lowercase(), _in_lower_case(split_like(pattern, escape)))


def _in_lower_case(parts: list[str | None]) -> list[str | None]:
    return [lower(part) if part else part for part in parts]


def _like_parts(value: pl.Expr, parts: list[str | None]) -> pl.Expr:
    literals = [part for part in parts if part]
    if not parts:
        return value == ""
    if parts == [None]:
        return pl.when(value.is_not_null()).then(True)
    if parts == literals:
        return value == literals[0]
    if len(literals) == 1 and "" not in parts:
        literal = literals[0]
        if len(parts) == 3:
            return value.str.contains(literal, literal=True)
        return value.str.starts_with(literal) if parts[0] else value.str.ends_with(literal)
    if len(parts) == 3 and parts[1] is None and parts[0] and parts[2]:
        # prefix%suffix: the two must not overlap.
        long_enough = value.str.len_bytes() >= len(parts[0].encode()) + len(parts[2].encode())
        return value.str.starts_with(parts[0]) & value.str.ends_with(parts[2]) & long_enough
    return value.str.contains(_rust_like_regex(parts))


def similar_regex(pattern: str, escape: str | None) -> str:
    """Translate a SIMILAR TO pattern into a regular expression for a whole string. Raises PatternError."""
    out: list[str] = []
    in_class = False
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                raise PatternError(f"the escape character {escape!r} must not be the last character")
            out.append(pl.escape_regex(following))
        elif in_class:
            in_class = character != "]"
            out.append(character if character not in "[&~" else "\\" + character)
        elif character == "[":
            in_class = True
            out.append(character)
        elif character in (ANY, ONE):
            out.append(".*" if character == ANY else ".")
        else:
            out.append(character if character in "|*+?{}()" else pl.escape_regex(character))
    if in_class:
        raise PatternError("'[' has no ']'")
    return "(?s)^(?:" + "".join(out) + ")$"


def regex_find(compiler: Compiler, value: pl.Expr, pattern: str) -> pl.Expr:
    """Compile whether the regular expression matches somewhere in the value. Raises PatternError."""
    if engine(pattern) == "rust":
        return value.str.contains(shortened(pattern))
    return backtracking(compiler, pattern, _found, pl.Boolean(), [value])


def _found(pattern: Any, text: str, seconds: float) -> bool:
    return pattern.search(text, timeout=seconds) is not None


def match(compiler: Compiler, kind: str, node: Any, value: Typed, pattern: Typed, escape: str | None) -> pl.Expr:
    """Compile value LIKE pattern and its relatives; ``kind`` is like, ilike, similar or regex."""
    for operand in (value, pattern):
        if not is_text(operand.data_type) and not operand.is_null:
            raise compiler.error(operand.node, f"{_NAMES[kind]} needs text, not {shown(operand.data_type)}")
    if any(operand.is_null or (operand.is_constant and operand.constant is None) for operand in (value, pattern)):
        return pl.lit(None, dtype=pl.Boolean)
    text = value.expression if isinstance(value.data_type, pl.String) else value.expression.cast(pl.String)
    if not pattern.is_constant:
        refuse_patterns(
            compiler,
            _NAMES[kind],
            text,
            pattern.expression,
            functools.partial(_is_usable, kind, escape),
            _REFUSALS[kind],
        )
        # ILIKE compares in lower case: all values at once, not once per pattern.
        texts = text.str.to_lowercase() if kind == "ilike" else text
        return by_pattern([texts, pattern.expression], functools.partial(_matched, kind, escape), pl.Boolean())
    try:
        return _constant_match(compiler, kind, text, str(pattern.constant), escape)
    except PatternError as error:
        raise compiler.error(pattern.node, f"{_NAMES[kind]}: {error}") from None


def _constant_match(compiler: Compiler, kind: str, text: pl.Expr, pattern: str, escape: str | None) -> pl.Expr:
    if kind == "like":
        return like(text, pattern, escape)
    if kind == "ilike":
        return ilike(text, pattern, escape)
    return regex_find(compiler, text, similar_regex(pattern, escape) if kind == "similar" else pattern)


def lower(text: str) -> str:
    """Return the text in lower case exactly as the column's own lower-casing does it."""
    return text.lower() if text.isascii() else str(pl.Series([text]).str.to_lowercase()[0])


def _is_usable(kind: str, escape: str | None, pattern: str) -> bool:
    """Return whether a pattern from a column is run."""
    try:
        if kind in ("like", "ilike"):
            split_like(pattern, escape)
            return True
        return is_column_pattern(similar_regex(pattern, escape) if kind == "similar" else pattern)
    except PatternError:
        return False


def _matched(kind: str, escape: str | None, text: pl.Expr, pattern: str) -> pl.Expr | None:
    if not _is_usable(kind, escape, pattern):
        return None
    if kind in ("like", "ilike"):
        parts = split_like(pattern, escape)
        return _like_parts(text, _in_lower_case(parts) if kind == "ilike" else parts)
    return text.str.contains(similar_regex(pattern, escape) if kind == "similar" else pattern)
