"""Functions of regular expressions (Rust's syntax; see headrace_columnar.patterns for what runs in Python instead)."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import polars as pl
from headrace_columnar import patterns
from headrace_columnar.registry import Call, function
from headrace_columnar.rowwise import map_rows


def _engine(call: Call, index: int = 1) -> str | None:
    """Return the engine for a constant pattern; None for a pattern that comes from a column."""
    if not call.is_constant(index) or call.constant(index) is None:
        return None
    try:
        return patterns.engine(str(call.constant(index)))
    except patterns.PatternError as error:
        raise call.error(index, str(error)) from None


@functools.lru_cache(maxsize=4096)
def _python(pattern: str) -> re.Pattern[str] | None:
    """Return the pattern for Python; None for one that is wrong (it came from a column: the result is NULL)."""
    try:
        return re.compile(patterns.python_pattern(pattern))
    except (re.error, OverflowError):
        return None


def _by_python(call: Call, function: Callable[..., Any], data_type: pl.DataType) -> pl.Expr:
    return map_rows(call.expressions(), functools.partial(_applied, function), data_type)


def _applied(function: Callable[..., Any], text: str, pattern: str, *others: Any) -> Any:
    compiled = _python(pattern)
    return None if compiled is None else function(compiled, text, *others)


@function(
    "regexp_like",
    "regexp",
    "rlike",
    signature="text string, pattern string -> boolean",
    summary="Whether the pattern matches somewhere in the text. Also written text RLIKE pattern.",
    examples=[
        ("regexp_like('k1=v1;k2=v2', 'k2*')", True),
        ("regexp('k1:v1', 'k3')", False),
        (r"regexp_like('a1', '^[a-z]\d$')", True),
    ],
)
def regexp_like(call: Call) -> pl.Expr:
    text, pattern = call.arguments
    return patterns.match(call.compiler, "regex", call.node, text, pattern, None)


@function(
    "regexp_extract",
    signature="text string, pattern string, [group integer] -> string",
    summary="What a group (0, the default: the whole) of the first match holds; NULL without a match (as in Flink).",
    examples=[
        ("regexp_extract('foothebar', 'foo(.*?)(bar)', 2)", "bar"),
        (r"regexp_extract('100-200', '(\d+)-(\d+)', 1)", "100"),
        ("regexp_extract('foothebar', 'foo(.*?)(bar)')", "foothebar"),
        ("regexp_extract('abc', 'x')", None),
    ],
)
def regexp_extract(call: Call) -> pl.Expr:
    group = call.constant(2, 0) if len(call) < 3 or call.is_constant(2) else None
    if _engine(call) == "rust" and isinstance(group, int):
        if not 0 <= group <= _groups(str(call.constant(1))):
            raise call.error(2, f"the pattern has no group {group}")
        return call[0].str.extract(str(call.constant(1)), group)
    return _by_python(call, _extracted, pl.String())


def _groups(pattern: str) -> int:
    groups = pl.Series([""]).str.extract_groups(pattern).dtype
    assert isinstance(groups, pl.Struct)
    return len(groups.fields)


def _extracted(pattern: re.Pattern[str], text: str, group: int = 0) -> str | None:
    found = pattern.search(text)
    if found is None or not 0 <= group <= pattern.groups:
        return None
    value: str | None = found[group]
    return value


@function(
    "regexp_extract_all",
    signature="text string, pattern string, [group integer] -> array<string>",
    summary="What a group (0, the default: the whole) of each match holds.",
    examples=[
        (r"regexp_extract_all('100-200', '\d+')", ["100", "200"]),
        (r"regexp_extract_all('a1b2', '([a-z])(\d)', 2)", ["1", "2"]),
    ],
)
def regexp_extract_all(call: Call) -> pl.Expr:
    if _engine(call) == "rust" and call.constant(2, 0) == 0:
        return call[0].str.extract_all(str(call.constant(1)))
    return _by_python(call, _extracted_all, pl.List(pl.String()))


def _extracted_all(pattern: re.Pattern[str], text: str, group: int = 0) -> list[str | None] | None:
    if not 0 <= group <= pattern.groups:
        return None
    return [found[group] for found in pattern.finditer(text)]


@function(
    "regexp_replace",
    signature="text string, pattern string, instead string -> string",
    summary="The text with every match replaced; $1 … stand for what the groups hold.",
    examples=[
        ("regexp_replace('2014-03-13', '-', '')", "20140313"),
        (r"regexp_replace('100-200', '(\d+)', 'num')", "num-num"),
        (r"regexp_replace('a=1', '(\w)=(\d)', '$2=$1')", "1=a"),
    ],
)
def regexp_replace(call: Call) -> pl.Expr:
    engine = _engine(call)
    if engine == "rust" and call.is_constant(2) and call.constant(2) is not None:
        return call[0].str.replace_all(str(call.constant(1)), _rust_template(str(call.constant(2))))
    return _by_python(call, _replaced, pl.String())


_TEMPLATE = re.compile(r"\\(.)|\$(\d)|\$\{(\w+)\}|(\$)", re.DOTALL)


def _rust_template(template: str) -> str:
    """Java's replacement text (``$1``, ``\\$``) in Rust's form, where a plain ``$`` is doubled."""

    def piece(found: re.Match[str]) -> str:
        if found[1] is not None:
            return "$$" if found[1] == "$" else found[1]
        name = found[2] or found[3]
        return "${" + name + "}" if name else "$$"

    return _TEMPLATE.sub(piece, template)


def _replaced(pattern: re.Pattern[str], text: str, template: str) -> str:
    def filled(match: re.Match[str]) -> str:
        def piece(found: re.Match[str]) -> str:
            if found[1] is not None:
                return str(found[1])
            name = found[2] or found[3]
            if name is None:
                return "$"
            try:
                return match[int(name) if name.isdecimal() else name] or ""
            except IndexError:
                # Rust, too, puts nothing for a group that is not there.
                return ""

        return _TEMPLATE.sub(piece, template)

    return pattern.sub(filled, text)


@function(
    "regexp_count",
    signature="text string, pattern string -> int64",
    summary="The number of matches.",
    examples=[(r"regexp_count('a1b22', '\d')", 3)],
)
def regexp_count(call: Call) -> pl.Expr:
    if _engine(call) == "rust":
        return call[0].str.count_matches(str(call.constant(1))).cast(pl.Int64)
    return _by_python(call, _counted, pl.Int64())


def _counted(pattern: re.Pattern[str], text: str) -> int:
    return sum(1 for _ in pattern.finditer(text))


@function(
    "regexp_substr",
    signature="text string, pattern string -> string",
    summary="The first match; NULL if there is none.",
    examples=[(r"regexp_substr('a1b22', '\d+')", "1"), ("regexp_substr('a', 'x')", None)],
)
def regexp_substr(call: Call) -> pl.Expr:
    if _engine(call) == "rust":
        return call[0].str.extract(str(call.constant(1)), 0)
    return _by_python(call, _extracted, pl.String())


@function(
    "regexp_instr",
    signature="text string, pattern string -> int64",
    summary="The place of the first match, counted from 1; 0 if there is none.",
    examples=[(r"regexp_instr('ab12', '\d')", 3), ("regexp_instr('a', 'x')", 0)],
)
def regexp_instr(call: Call) -> pl.Expr:
    _engine(call)
    return _by_python(call, _placed, pl.Int64())


def _placed(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return found.start() + 1 if found else 0
