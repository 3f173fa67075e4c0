"""Literals that must be in every text that a pattern matches."""

from __future__ import annotations

import re
import sys
from functools import cache

import polars as pl
import pytest
from headrace_rules.literals import (
    GUARDS,
    Fold,
    caseless_runs,
    literal_candidates,
    regex_candidates,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples


@cache
def characters() -> pl.Series:
    """Return all characters beyond ASCII."""
    return pl.Series([chr(code) for code in range(0x80, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000])


def texts(pattern: str, *, python: bool = False) -> list[set[str]]:
    return [{literal.text for literal in candidate} for candidate in regex_candidates(pattern, python=python)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("curl.*sh", [{"curl"}, {"sh"}]),
        ("^abc$", [{"abc"}]),
        ("ab+c", [{"ab"}, {"c"}]),
        ("ab*c", [{"a"}, {"c"}]),
        ("ab?c", [{"a"}, {"c"}]),
        ("ab{0,3}c", [{"a"}, {"c"}]),
        ("ab{2}c", [{"ab"}, {"c"}]),
        ("a(?:bc|de)f", [{"a"}, {"bc", "de"}, {"f"}]),
        ("(foo|bar)", [{"foo", "bar"}]),
        ("(foo|b*)", []),
        ("(foo)?x", [{"x"}]),
        (r"a\.b\x41", [{"a.bA"}]),
        (r"\bcurl\b", [{"curl"}]),
        (r"x\d+y", [{"x"}, {"y"}]),
        ("[[:alpha:]]xy", [{"xy"}]),
        ("[]a]xy", [{"xy"}]),
        ("[a&&[b]]xy", [{"xy"}]),
        (r"[\]]xy", [{"xy"}]),
        ("(?i)Foo", [{"Foo"}]),
        ("a(?i)b", [{"a"}, {"b"}]),
        ("(?i:a)b", [{"a"}, {"b"}]),
        (r"\pLxy", []),
        ("(?x) a b", []),
        (r"\<ab", []),
        ("a+?b", [{"a"}, {"b"}]),
        ("a+?*b", [{"b"}]),
        ("", []),
        ("a||b", []),
    ],
)
def test_rust_patterns(pattern: str, expected: list[set[str]]) -> None:
    pl.Series([""]).str.contains(pattern, strict=True) if pattern != r"a+?*b" else None
    assert texts(pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("(?<!x)foo(?=bar)baz", [{"foobaz"}]),
        (r"(foo)\1bar", []),
        ("(?>foo)bar", [{"foo"}, {"bar"}]),
        ("(?#no)foo", [{"foo"}]),
        ("[[]foo", [{"foo"}]),
        ("(?(1)a|b)", []),
        ("(?!foo)bar", [{"bar"}]),
    ],
)
def test_python_patterns(pattern: str, expected: list[set[str]]) -> None:
    assert texts(pattern, python=True) == expected


ATOMS = st.sampled_from(
    ["a", "b", "k", "s", "ß", "é", r"\.", ".", "[ab]", "[^a]", r"\d", r"\w", r"\s", "(?i)", "^", "$", r"\b", "K", "日"]
)
QUANTIFIERS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,1}", "{1,}", "*?", "+?"])


@st.composite
def regexes(draw: st.DrawFn, depth: int = 2) -> str:
    out = ""
    for _ in range(draw(st.integers(1, 4))):
        if depth and draw(st.integers(0, 3)) == 0:
            opening = draw(st.sampled_from(["(", "(?:", "(?i:"]))
            atom = opening + draw(regexes(depth=depth - 1)) + ")"
        else:
            atom = draw(ATOMS)
        out += atom if atom in ("(?i)", "^", "$", r"\b") else atom + draw(QUANTIFIERS)
    if depth and draw(st.booleans()):
        out += "|" + draw(regexes(depth=depth - 1))
    return out


VALUES = st.lists(st.text("abkKsſ\u212aſßSéÉ.日 1\n", max_size=8), min_size=1, max_size=20)


@settings(max_examples=examples(200), deadline=None)
@given(regexes(), VALUES)
def test_whatever_matches_holds_a_literal_of_each_candidate(pattern: str, values: list[str]) -> None:
    candidates = regex_candidates(pattern)
    for value in pl.Series(values).filter(pl.Series(values).str.contains(pattern)).to_list():
        special = any(guard in value for guard in GUARDS[Fold.ANY])
        for candidate in candidates:
            assert any(
                literal.text in value
                or (literal.folded and (special or literal.text.lower() in "".join(map(_ascii_lower, value))))
                for literal in candidate
            ), (pattern, value, candidate)


def _ascii_lower(character: str) -> str:
    return character.lower() if character.isascii() else character


def test_the_guards_are_all_characters_that_change_into_ascii_letters() -> None:
    changing = characters().filter(
        characters().str.to_lowercase().str.contains("[a-z]") | characters().str.to_uppercase().str.contains("[A-Z]")
    )
    lower, upper = changing.str.to_lowercase(), changing.str.to_uppercase()
    like_letters = characters().filter(characters().str.contains("(?i)[a-z]")).to_list()
    special = pl.Series(sorted({*like_letters, *re.findall("(?i)[a-z]", "".join(characters()))}))
    for letter in "abcdefghijklmnopqrstuvwxyz":
        assert set(changing.filter(lower.str.contains(letter))) == guards(letter, Fold.LOWER)
        assert set(changing.filter(upper.str.contains(letter.upper()))) == guards(letter, Fold.UPPER)
        found = set(special.filter(special.str.contains(f"(?i){letter}")))
        found |= {one for one in special if re.search(f"(?i){letter}", one)}
        assert found == guards(letter, Fold.ANY)


def guards(letter: str, fold: Fold) -> set[str]:
    return {guard for guard, letters in GUARDS[fold].items() if letter in letters}


def test_what_is_kept_of_a_text_without_case_has_no_case() -> None:
    kept = pl.Series([c for c in characters().to_list() if caseless_runs(c) == [c]])
    assert len(kept) > 100_000  # most of the world's letters have no case
    assert kept.str.to_lowercase().equals(kept)
    assert kept.str.to_uppercase().equals(kept)
    others = characters().filter(~characters().is_in(kept.implode()))
    changed = pl.concat([others.str.to_lowercase(), others.str.to_uppercase()]).str.split("").explode().unique()
    assert not set(changed.to_list()) & set(kept.to_list())


def test_texts_are_cut_where_a_scanner_would_stop() -> None:
    assert [set(c) for c in literal_candidates("ab\0cd")] == [
        {*candidate} for candidate in (literal_candidates("ab")[0], literal_candidates("cd")[0])
    ]
    assert len(next(iter(literal_candidates("x" * 1000)[0])).text) == 48
