"""Many patterns over many lines: which one counts, what is said of lines that none fits."""

from __future__ import annotations

import headrace as hr
import numpy as np
import polars as pl
import pytest
from headrace_grok import filtering, searching
from headrace_grok.filtering import HyperscanFilter, TextFilter, hyperscan_is_installed, make_filter
from headrace_grok.library import definitions_of
from headrace_grok.matching import Matched, Matcher, MatchOptions
from headrace_grok.programs import compiled
from headrace_grok.values import converted

needs_hyperscan = pytest.mark.skipif(not hyperscan_is_installed(), reason="no hyperscan on this platform")


def match(patterns: list[str], lines: list[str], **options: object) -> Matched:
    return Matcher(compiled(patterns, definitions_of()), MatchOptions(**options)).match(pl.Series(lines))  # type: ignore[arg-type]


def test_the_first_pattern_that_fits_counts() -> None:
    found = match([r"^a(?<x>\w+)", "%{WORD:y}", "b"], ["ab", "b", "-"])
    assert found.frame.to_dicts() == [{"x": "b", "y": None}, {"x": None, "y": "b"}]
    assert found.bad_rows == [2]


def test_all_patterns_that_fit_can_add_their_fields() -> None:
    found = match(
        [r"user=%{WORD:user}", r"ip=%{IP:ip}", r"(?<user>\w+)@"],
        ["ip=10.0.0.1 x@ user=bob", "y@"],
        break_on_match=False,
    )
    assert found.frame.to_dicts() == [{"user": "bob", "ip": "10.0.0.1"}, {"user": "y", "ip": None}]


@pytest.mark.parametrize(
    ("patterns", "line", "reason"),
    [
        (["%{IP:client} %{WORD:method} %{INT:status}"], "10.0.0.1 GET x",
         'the pattern does not fit: the longest partial match is "10.0.0.1 GET" by %{IP:client} %{WORD:method}, '
         "which should be followed by ' %{INT:status}'"),
        (["^x"], "y", "the pattern does not fit, not even its first part"),
        (["%{INT:a} %{WORD:b}$", "%{INT:a} %{WORD:b} %{INT:c}"], "1 two three",
         'none of 2 patterns fits: the longest partial match of pattern 1 is "1 two" by %{INT:a} %{WORD:b}, '
         "which should be followed by '$'"),
        (["%{INT:a}", "^x%{DATA:b} %{WORD:c} %{WORD:d}", "x %{INT:e}"], "x y ",
         'none of 3 patterns fits: the longest partial match of pattern 2 is "x y" by ^x%{DATA:b} %{WORD:c}, '
         "which should be followed by ' %{WORD:d}'"),
        (["a", "^b"], "c", "none of 2 patterns fits, not even a first part"),
        (["(?=1)%{INT:a} (?:x|y)z"], "1 xx",
         'the pattern does not fit: the longest partial match is "1 x" by (?=1)%{INT:a} (?:x|y), '
         "which should be followed by 'z'"),
    ],
)  # fmt: skip
def test_the_reason_is_the_longest_partial_match(patterns: list[str], line: str, reason: str) -> None:
    assert match(patterns, [line]).reasons == [reason]
    assert match(patterns, ["10.0.0.1 GET 7", line, line], engine="polars").reasons[-2:] == [reason] * 2


def test_a_wrong_value_is_named() -> None:
    found = match(
        ["%{NOTSPACE:n:int} %{NOTSPACE:f:float} %{WORD:b:bool}"],
        ["1 2 no", "x 1 true", "9223372036854775808 1 true", "1 1e999 true"],
    )
    assert found.reasons == [
        "field 'b': expected boolean, found \"no\"",
        "field 'n': expected int64, found \"x\"",
        "field 'n': expected int64, found \"9223372036854775808\"",
        "field 'f': expected float64, found \"1e999\"",
    ]


def test_lines_that_no_pattern_fits_can_be_nulls() -> None:
    found = match(["^%{INT:n:int}$"], ["1", "x"], null_rows=True)
    assert (found.frame.to_dicts(), found.bad_rows) == ([{"n": 1}, {"n": None}], [])


def test_a_search_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is bad, also where a later pattern would fit. Hyperscan, which is linear, would have told that the first one does not."""
    monkeypatch.setattr(searching, "_SECONDS_MAX", 0.001)
    found = match(["^(?=x)(?:x|xx)+$", "%{WORD:w}"], ["x" * 60 + "-", "word"], engine="polars")
    assert found.frame.to_dicts() == [{"w": "word"}]
    assert found.reasons == ["the search for the pattern takes too long in this line"]


def test_a_line_that_is_given_up_gives_its_fields_to_no_other_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many lines are left as the first pattern fits, but not the same ones."""
    monkeypatch.setattr(searching, "_SECONDS_MAX", 0.001)
    lines = ["a1", "x" * 60 + "-a2", "x"]
    found = match([r"a(?<n>\d)", "^(?=x)(?:x|xx)+$"], lines, engine="polars", break_on_match=False)
    assert (found.rows.tolist(), found.frame.to_dicts()) == ([0, 2], [{"n": "1"}, {"n": None}])
    assert found.bad_rows == [1]


@needs_hyperscan
def test_patterns_that_hyperscan_does_not_know_can_fit_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = compiled(["(?i)ONE", r"\p{Lu}x", "two", "never"], definitions_of())
    assert [program.filter is None for program in programs] == [False, True, False, False]
    lines = pl.Series(["one", "two", ""])
    candidates = HyperscanFilter(programs).candidates(lines)
    every = np.arange(3)
    # Hyperscan does not look at an empty line: all patterns may fit it.
    assert [candidates.among(number, every).tolist() for number in range(4)] == [[0, 2], [0, 1, 2], [1, 2], [2]]


@needs_hyperscan
def test_a_pattern_that_hyperscan_refuses_is_left_out_alone() -> None:
    from dataclasses import replace

    programs = list(compiled(["a", "b"], definitions_of()))
    programs[0] = replace(programs[0], filter="(")
    candidates = HyperscanFilter(programs).candidates(pl.Series(["b", "c"]))
    assert [candidates.among(number, np.arange(2)).tolist() for number in range(2)] == [[0, 1], [0]]


def test_every_line_of_a_pattern_contains_texts() -> None:
    programs = compiled(
        [
            "a (?:long|longer) text: %{INT:n}",
            "%{INT:n}",
            "(?:only)?",
            "(?i)other",
            "(?:ab|(?<x>[a-z]))",
            "(?:no)+(?=x)",
        ],
        definitions_of(),
    )
    assert [program.required for program in programs] == [
        (("a ",), ("long", "longer"), (" text: ",)), (), (), (), (), (("no",),),
    ]  # fmt: skip


def test_texts_of_other_patterns_do_not_make_candidates() -> None:
    """What all patterns have is looked for in vain, as is a single character; a pattern without a text of its own can fit every line."""
    programs = compiled(
        ["^begin: failed (?:a|b)", "^begin: (?:opened|closed) x", "^begin: .*", "done$"], definitions_of()
    )
    lines = pl.Series(["begin: failed a", "begin: closed x", "done", "", "x opened: begin: x done"])
    candidates = TextFilter(programs).candidates(lines)
    every = np.arange(len(lines))
    assert [candidates.among(number, every).tolist() for number in range(4)] == [[0], [1, 4], [0, 1, 4], [2, 4]]
    assert candidates.among(1, np.array([0, 4])).tolist() == [4]


def test_many_patterns_have_texts_of_their_own() -> None:
    """More choices than a number has bits."""
    programs = compiled([f"^p{number}: text of {number}$" for number in range(150)], definitions_of())
    lines = pl.Series([f"p{number}: text of {number}" for number in (149, 3, 64, 63)])
    candidates = TextFilter(programs).candidates(lines)
    found = {number: candidates.among(number, np.arange(4)).tolist() for number in range(150)}
    assert [found[number] for number in (149, 64, 63)] == [[0], [2], [3]]
    assert 1 in found[3]
    assert Matcher(programs).match(lines).bad_rows == []


@needs_hyperscan
def test_hyperscan_is_for_patterns_without_texts_of_their_own() -> None:
    without, having = ["%{INT:n} %{WORD:w}"] * 7, [f"text {number}" for number in range(40)]
    assert isinstance(make_filter(compiled([*without, *having], definitions_of())), HyperscanFilter)
    assert isinstance(make_filter(compiled(having, definitions_of())), TextFilter)
    assert isinstance(make_filter(compiled(having, definitions_of()), "hyperscan"), HyperscanFilter)


def test_without_hyperscan_texts_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = compiled(["%{INT:n} %{WORD:w}"] * 7, definitions_of())
    monkeypatch.setattr(filtering, "hyperscan_is_installed", lambda: False)
    assert isinstance(make_filter(programs), TextFilter)
    with pytest.raises(hr.OptionError, match="hyperscan is not installed"):
        match(["a"], ["a"], engine="hyperscan")


def test_numbers_are_what_they_are_written_as() -> None:
    """What polars takes for a number is what the page says, and no more."""
    whole = ["+5", "-5", "00012", "9223372036854775807"]
    assert converted(pl.Series(whole), pl.Int64())[0].to_list() == [5, -5, 12, 9223372036854775807]
    real = ["+.5", "5.", "1e5", "1E+5", "-0.25"]
    assert converted(pl.Series(real), pl.Float64())[0].to_list() == [0.5, 5.0, 1e5, 1e5, -0.25]
    none = [" 5", "5 ", "1_000", "0x1", "5.0", "1e3", "", "٣", "+", "+-5", "5\n", "300"]
    assert converted(pl.Series(none), pl.Int8())[1].tolist() == [True] * len(none)  # type: ignore[union-attr]
    none = [
        " 1",
        "1 ",
        "inf",
        "-inf",
        "nan",
        "Infinity",
        "1_0",
        "0x1p3",
        "1e",
        "e5",
        ".",
        "",
        "1e999",
        "1f",
        "٣",
        "1,5",
    ]
    assert converted(pl.Series(none), pl.Float64())[1].tolist() == [True] * len(none)  # type: ignore[union-attr]
    assert converted(pl.Series(["1", None]), pl.Int64())[1] is None
