"""Patterns that are made by chance give the same fields as Python's ``re``, line by line, whichever engine runs them."""

from __future__ import annotations

import re

import polars as pl
import pytest
from headrace_grok.filtering import hyperscan_is_installed
from headrace_grok.library import definitions_of
from headrace_grok.matching import Matcher, MatchOptions
from headrace_grok.programs import compiled
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

ALPHABET = 'abA1 -"é_:\n'
#: Patterns that references mean, also here for ``re``.
NAMES = {"INT": r"[+-]?[0-9]+", "WORD": r"\b\w+\b", "NOTSPACE": r"\S+", "DATA": r".*?", "AB": r"a|ab"}
ENGINES = [
    "polars",
    pytest.param("hyperscan", marks=pytest.mark.skipif(not hyperscan_is_installed(), reason="no hyperscan")),
]

characters = st.sampled_from(
    ["a", "b", "1", " ", "-", '"', "é", ":", r"\d", r"\w", r"\S", r"\s", "[ab]", "[^ab]", "[a-b1]", "."]
)
repeated = st.tuples(characters, st.sampled_from(["", "", "+", "*", "?", "{1,2}", "+?", "*?", "{2}"])).map("".join)
pieces = st.one_of(
    repeated,
    st.sampled_from(["^", "$", r"\b", "(?i:a)", "(?i:[ab1]+)", "(?i:[^b])", "(?i:b(?-i:a))"]),
    st.sampled_from([f"%{{{name}}}" for name in NAMES]),
    st.tuples(st.sampled_from(list(NAMES)), st.sampled_from("xyz")).map(lambda of: f"%{{{of[0]}:{of[1]}}}"),
    st.tuples(st.sampled_from("xyz"), repeated).map(lambda of: f"(?<{of[0]}>{of[1]})"),
    st.tuples(characters, characters).map(lambda of: f"(?:{of[0]}|{of[1]})"),
)
patterns = st.lists(st.lists(pieces, min_size=1, max_size=6).map("".join), min_size=1, max_size=4)
backtracking = st.sampled_from(["", "(?=a)", "(?!b)", "(?<=a)", "(?<! )", "(?>a|ab)", "a++"])
lines = st.lists(st.text(ALPHABET, max_size=12), min_size=1, max_size=12)


def by_re(pattern: str) -> tuple[re.Pattern[str], dict[str, str]]:
    """Return the pattern for ``re``, and the field of each of its groups."""
    groups: dict[str, str] = {}

    def group(field: str) -> str:
        groups[f"g{len(groups)}"] = field
        return f"(?P<g{len(groups) - 1}>"

    text = re.sub(
        r"%\{(\w+)(?::(\w+))?\}|\(\?<(\w)>",
        lambda found: group(found[3]) if found[3] else f"{group(found[2]) if found[2] else '(?:'}{NAMES[found[1]]})",
        pattern,
    )
    return re.compile(text, re.ASCII | re.MULTILINE | re.DOTALL), groups


def expected(patterns: list[str], line: str) -> dict[str, str] | None:
    """Return the fields of the first pattern that fits; None where none fits."""
    for pattern in patterns:
        compiled_pattern, groups = by_re(pattern)
        found = compiled_pattern.search(line)
        if found is not None:
            fields: dict[str, str] = {}
            for name, field in groups.items():
                if found[name]:
                    fields.setdefault(field, found[name])
            return fields
    return None


def check(patterns: list[str], lines: list[str], engine: str) -> None:
    programs = compiled(patterns, definitions_of({"AB": NAMES["AB"]}))
    matched = Matcher(programs, MatchOptions(engine=engine)).match(pl.Series(lines, dtype=pl.String))
    wanted = [expected(patterns, line) for line in lines]
    assert matched.bad_rows == [row for row, fields in enumerate(wanted) if fields is None]
    assert matched.rows.tolist() == [row for row, fields in enumerate(wanted) if fields is not None]
    found = [{name: value for name, value in row.items() if value is not None} for row in matched.frame.to_dicts()]
    if matched.frame.width:
        assert found == [fields for fields in wanted if fields is not None]
    assert all(reason.strip() for reason in matched.reasons)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(400), deadline=None)
@given(patterns, lines)
def test_columns_are_as_by_re(engine: str, patterns: list[str], lines: list[str]) -> None:
    check(patterns, lines, engine)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(150), deadline=None)
@given(patterns, backtracking, st.lists(pieces, min_size=1, max_size=3).map("".join), lines)
def test_patterns_with_look_around_are_as_by_re(
    engine: str, patterns: list[str], looking: str, behind: str, lines: list[str]
) -> None:
    check([*patterns[:2], looking + behind], lines, engine)
