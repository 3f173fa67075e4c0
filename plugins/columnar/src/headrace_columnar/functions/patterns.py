"""Functions of regular expressions (Rust's syntax; see headrace_columnar.regular_expressions for what else there is).

With a pattern from a column, rows are taken together by pattern and evaluated as with a constant one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import polars as pl
from headrace_columnar import patterns, regular_expressions
from headrace_columnar.functions.strings import LARGEST_PRODUCT
from headrace_columnar.registry import Call, function
from headrace_columnar.sql_types import Typed

#: A compiled pattern of the ``regex`` package, and its match.
_Pattern = Any
_Match = Any


def _compiled(
    call: Call,
    by_rust: Callable[..., pl.Expr | None] | None,
    by_backtracking: Callable[..., Any],
    data_type: pl.DataType,
) -> Typed:
    """Compile a call whose arguments are a text, a pattern and others.

    ``by_rust`` gets the text as an expression, the pattern and the others as values, and returns an expression, None for
    NULL; there may be none. ``by_backtracking`` gets the compiled pattern, a text, the seconds it may take, the others.
    """
    values, others = call.expressions(), call.arguments[2:]
    usable: Callable[[str], bool] = regular_expressions.is_column_pattern
    constant = str(call.constant(1)) if call.is_constant(1) and call.constant(1) is not None else None
    if constant is not None:
        engine = _engine(call, constant)
        if engine == "backtracking" or by_rust is None:
            del values[1]
            made = regular_expressions.backtracking(call.compiler, constant, by_backtracking, data_type, values)
            return Typed(made, data_type)
        if all(one.is_constant and one.constant is not None for one in others):
            answer = by_rust(call[0], constant, *(one.constant for one in others))
            return Typed(pl.lit(None, dtype=data_type) if answer is None else answer, data_type)
        usable = bool
    elif not call.is_constant(1):
        regular_expressions.refuse_patterns(call.compiler, call.function.name, call[0], call[1])
    if by_rust is None:
        made = regular_expressions.backtracking(call.compiler, None, by_backtracking, data_type, values)
        return Typed(made, data_type)
    build = functools.partial(_one_pattern, by_rust, usable)
    return Typed(regular_expressions.by_pattern(values, build, data_type), data_type)


def _engine(call: Call, pattern: str) -> str:
    try:
        return regular_expressions.engine(pattern)
    except regular_expressions.PatternError as error:
        raise call.error(1, str(error)) from None


def _one_pattern(
    by_rust: Callable[..., pl.Expr | None],
    usable: Callable[[str], bool],
    text: pl.Expr,
    pattern: str,
    *others: Any,
) -> pl.Expr | None:
    return by_rust(text, pattern, *others) if not pattern or usable(pattern) else None


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
    summary="The text of a group of the first match (0, the default, is the whole match); NULL without a match (as in Flink).",
    examples=[
        ("regexp_extract('foothebar', 'foo(.*?)(bar)', 2)", "bar"),
        (r"regexp_extract('100-200', '(\d+)-(\d+)', 1)", "100"),
        ("regexp_extract('foothebar', 'foo(.*?)(bar)')", "foothebar"),
        ("regexp_extract('abc', 'x')", None),
    ],
)
def regexp_extract(call: Call) -> Typed:
    pattern, group = call.constant(1), call.constant(2, 0)
    known = isinstance(pattern, str) and isinstance(group, int) and _engine(call, pattern) == "rust"
    if known and not 0 <= group <= _groups(pattern):
        raise call.error(2, f"the pattern has no group {group}")
    return _compiled(call, _extract, _extracted, pl.String())


def _extract(text: pl.Expr, pattern: str, group: int = 0) -> pl.Expr | None:
    return text.str.extract(pattern, group) if 0 <= group <= _groups(pattern) else None


def _groups(pattern: str) -> int:
    groups = pl.Series([""]).str.extract_groups(pattern).dtype
    assert isinstance(groups, pl.Struct)
    return len(groups.fields)


def _extracted(pattern: _Pattern, text: str, seconds: float, group: int = 0) -> str | None:
    found = pattern.search(text, timeout=seconds)
    if found is None or not 0 <= group <= pattern.groups:
        return None
    value: str | None = found[group]
    return value


@function(
    "regexp_extract_all",
    signature="text string, pattern string, [group integer] -> array<string>",
    summary="The text of a group of each match (0, the default, is the whole match).",
    examples=[
        (r"regexp_extract_all('100-200', '\d+')", ["100", "200"]),
        (r"regexp_extract_all('a1b2', '([a-z])(\d)', 2)", ["1", "2"]),
    ],
)
def regexp_extract_all(call: Call) -> Typed:
    whole = len(call) == 2 or (call.is_constant(2) and call.constant(2) == 0)
    # Rust, as polars has it, tells what groups hold of the first match only.
    return _compiled(call, _extract_all if whole else None, _extracted_all, pl.List(pl.String()))


def _extract_all(text: pl.Expr, pattern: str, group: int = 0) -> pl.Expr:
    return text.str.extract_all(pattern)


def _extracted_all(pattern: _Pattern, text: str, seconds: float, group: int = 0) -> list[str | None] | None:
    if not 0 <= group <= pattern.groups:
        return None
    return [found[group] for found in pattern.finditer(text, timeout=seconds)]


@function(
    "regexp_replace",
    signature="text string, pattern string, instead string -> string",
    summary="The text with every match replaced; $1 … are the texts of the groups. The same limit as for ``replace``.",
    examples=[
        ("regexp_replace('2014-03-13', '-', '')", "20140313"),
        (r"regexp_replace('100-200', '(\d+)', 'num')", "num-num"),
        (r"regexp_replace('a=1', '(\w)=(\d)', '$2=$1')", "1=a"),
    ],
)
def regexp_replace(call: Call) -> Typed:
    return _compiled(call, _replace if call.is_constant(2) else _replace_within_bounds, _replaced, pl.String())


def _replace(text: pl.Expr, pattern: str, template: str) -> pl.Expr:
    return text.str.replace_all(pattern, _rust_template(template))


def _replace_within_bounds(text: pl.Expr, pattern: str, template: str) -> pl.Expr:
    fits = text.str.len_bytes().cast(pl.Int64) * len(template) <= LARGEST_PRODUCT
    return _replace(pl.when(fits).then(text), pattern, template)


_TEMPLATE = re.compile(r"\\(.)|\$(\d)|\$\{(\w+)\}|(\$)", re.DOTALL)


def _rust_template(template: str) -> str:
    """Java's replacement text (``$1``, ``\\$``) in Rust's form, where a plain ``$`` is doubled."""

    def piece(found: re.Match[str]) -> str:
        if found[1] is not None:
            return "$$" if found[1] == "$" else found[1]
        name = found[2] or found[3]
        return "${" + name + "}" if name else "$$"

    return _TEMPLATE.sub(piece, template)


def _replaced(pattern: _Pattern, text: str, seconds: float, template: str) -> str | None:
    if len(text) * len(template) > LARGEST_PRODUCT:
        return None

    def filled(match: _Match) -> str:
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

    made: str = pattern.sub(filled, text, timeout=seconds)
    return made


@function(
    "regexp_count",
    signature="text string, pattern string -> int64",
    summary="The number of matches.",
    examples=[(r"regexp_count('a1b22', '\d')", 3)],
)
def regexp_count(call: Call) -> Typed:
    return _compiled(call, _count, _counted, pl.Int64())


def _count(text: pl.Expr, pattern: str) -> pl.Expr:
    return text.str.count_matches(pattern).cast(pl.Int64)


def _counted(pattern: _Pattern, text: str, seconds: float) -> int:
    return sum(1 for _ in pattern.finditer(text, timeout=seconds))


@function(
    "regexp_substr",
    signature="text string, pattern string -> string",
    summary="The first match; NULL if there is none.",
    examples=[(r"regexp_substr('a1b22', '\d+')", "1"), ("regexp_substr('a', 'x')", None)],
)
def regexp_substr(call: Call) -> Typed:
    return _compiled(call, _extract, _extracted, pl.String())


@function(
    "regexp_instr",
    signature="text string, pattern string -> int64",
    summary="The place of the first match, counted from 1; 0 if there is none.",
    examples=[(r"regexp_instr('ab12', '\d')", 3), ("regexp_instr('a', 'x')", 0)],
)
def regexp_instr(call: Call) -> Typed:
    return _compiled(call, _place, _placed, pl.Int64())


def _place(text: pl.Expr, pattern: str) -> pl.Expr:
    at = text.str.find(pattern)
    before = text.cast(pl.Binary).bin.slice(0, at).cast(pl.String).str.len_chars().cast(pl.Int64)
    return pl.when(text.is_not_null()).then(pl.when(at.is_not_null()).then(before + 1).otherwise(0))


def _placed(pattern: _Pattern, text: str, seconds: float) -> int:
    found = pattern.search(text, timeout=seconds)
    return found.start() + 1 if found else 0
