"""LIKE, ILIKE, SIMILAR TO and regular expressions: each pattern becomes the cheapest test that gives the same answer.

Regular expressions are those of the Rust regex crate, which run in linear time. A pattern with look-around, a back
reference or an atomic group is none of these: it runs in Python's ``re``, row by row, more slowly.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace_columnar.rowwise import map_values
from headrace_columnar.sql_types import Typed, is_text, shown

if TYPE_CHECKING:
    from headrace_columnar.compiler import Compiler

_NAMES = {"like": "LIKE", "ilike": "ILIKE", "similar": "SIMILAR TO", "regex": "RLIKE"}
_ONLY_PYTHON = ("look-around", "backreferences are not supported", "unrecognized flag", "unrecognized escape sequence")
ANY, ONE = "%", "_"


class PatternError(ValueError):
    """A pattern that cannot be understood; the text says why."""


def split_like(pattern: str, escape: str | None) -> list[str | None]:
    """Return the parts of a LIKE pattern: literal texts, ``None`` for ``%`` and ``""`` for ``_``."""
    parts: list[str | None] = []
    literal = ""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None or following not in (ANY, ONE, escape):
                raise PatternError(f"the escape character {escape!r} must stand before %, _ or itself")
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
                raise PatternError(f"the escape character {escape!r} stands at the end")
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


@functools.lru_cache(maxsize=1024)
def engine(pattern: str) -> str:
    """Return which engine runs a regular expression, ``"rust"`` or ``"python"``. Raises PatternError if neither can."""
    try:
        pl.Series([""]).str.contains(pattern, strict=True)
    except pl.exceptions.ComputeError as error:
        reason = _reason(str(error))
        if not any(words in reason for words in _ONLY_PYTHON):
            raise PatternError(reason) from None
        try:
            re.compile(python_pattern(pattern))
        except re.error as python_error:
            raise PatternError(f"{reason}; and in Python's re: {python_error}") from None
        return "python"
    return "rust"


def _reason(message: str) -> str:
    for line in message.splitlines():
        if line.startswith("error: "):
            return line.removeprefix("error: ")
    first = message.splitlines()[0] if message else "not a regular expression"
    return first.removeprefix("regex error: ").removeprefix("error: ")


def python_pattern(pattern: str) -> str:
    """Return the pattern for Python's ``re`` with the meaning it would have in Rust: ``$`` only at the very end."""
    out: list[str] = []
    in_class = False
    multiline = re.match(r"\(\?[a-zA-Z]*m", pattern) is not None
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            pair = pattern[position : position + 2]
            out.append(r"\Z" if pair == r"\z" and not in_class else pair)
            position += 2
            continue
        if character == "[" and not in_class:
            in_class = True
            # A bracket right behind the opening one is an ordinary character.
            head = re.match(r"\[\^?\]?", pattern[position:])
            assert head is not None
            out.append(head[0])
            position += len(head[0])
            continue
        if character == "]":
            in_class = False
        out.append(r"\Z" if character == "$" and not in_class and not multiline else character)
        position += 1
    return "".join(out)


def regex_find(value: pl.Expr, pattern: str) -> pl.Expr:
    """Return whether the regular expression matches somewhere in the value. Raises PatternError."""
    if engine(pattern) == "rust":
        return value.str.contains(pattern)
    search = re.compile(python_pattern(pattern)).search
    return map_values(value, functools.partial(_found, search), pl.Boolean())


def _found(search: Callable[[str], Any], value: str) -> bool:
    return search(value) is not None


def match(compiler: Compiler, kind: str, node: Any, value: Typed, pattern: Typed, escape: str | None) -> pl.Expr:
    """Compile value LIKE pattern and its relatives; ``kind`` is like, ilike, similar or regex."""
    for operand in (value, pattern):
        if not is_text(operand.data_type) and not operand.is_null:
            raise compiler.error(operand.node, f"{_NAMES[kind]} needs text, not {shown(operand.data_type)}")
    if any(operand.is_null or (operand.is_constant and operand.constant is None) for operand in (value, pattern)):
        return pl.lit(None, dtype=pl.Boolean)
    text = value.expression if isinstance(value.data_type, pl.String) else value.expression.cast(pl.String)
    if not pattern.is_constant:
        return pl.map_batches(
            [text, pattern.expression],
            functools.partial(_match_pairs, kind, escape),
            return_dtype=pl.Boolean,
            is_elementwise=True,
        )
    try:
        return _constant_match(kind, text, str(pattern.constant), escape)
    except PatternError as error:
        raise compiler.error(pattern.node, f"{_NAMES[kind]}: {error}") from None


def _constant_match(kind: str, text: pl.Expr, pattern: str, escape: str | None) -> pl.Expr:
    if kind == "like":
        return like(text, pattern, escape)
    if kind == "ilike":
        return ilike(text, pattern, escape)
    return regex_find(text, similar_regex(pattern, escape) if kind == "similar" else pattern)


def lower(text: str) -> str:
    """Return the text in lower case exactly as the column's own lower-casing does it."""
    return str(pl.Series([text]).str.to_lowercase()[0])


@functools.lru_cache(maxsize=4096)
def _matcher(kind: str, pattern: str, escape: str | None) -> tuple[str, str] | None:
    """Return (engine, regular expression) for a pattern from a column; None if it cannot be understood."""
    try:
        if kind in ("like", "ilike"):
            parts = split_like(pattern, escape)
            return "rust", _rust_like_regex(_in_lower_case(parts) if kind == "ilike" else parts)
        source = similar_regex(pattern, escape) if kind == "similar" else pattern
        return engine(source), source
    except PatternError:
        return None


def _match_pairs(kind: str, escape: str | None, columns: list[pl.Series]) -> pl.Series:
    """Match values with patterns of the same row, one distinct pattern at a time. A bad pattern gives NULL."""
    values, patterns_of_rows = columns
    if kind == "ilike":
        values = values.str.to_lowercase()
    height = max(len(values), len(patterns_of_rows)) if len(values) and len(patterns_of_rows) else 0
    frame = pl.DataFrame({"value": pl.Series([], dtype=pl.String), "pattern": pl.Series([], dtype=pl.String)})
    if height:
        stretched = [one if len(one) == height else one.new_from_index(0, height) for one in (values, patterns_of_rows)]
        frame = pl.DataFrame({"value": stretched[0], "pattern": stretched[1].cast(pl.String)})
    results = pl.Series("matched", [None], dtype=pl.Boolean).new_from_index(0, height) if height else None
    if results is None:
        return pl.Series([], dtype=pl.Boolean)
    for (pattern,), part in frame.with_row_index("row").drop_nulls().group_by(["pattern"], maintain_order=True):
        found = _matcher(kind, str(pattern), escape)
        if found is None:
            continue
        matched = part.select(regex_find(pl.col("value"), found[1]))["value"]
        results = results.scatter(part["row"], matched)
    return results
