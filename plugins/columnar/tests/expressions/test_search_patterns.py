"""A shortened pattern is found in exactly the texts in which the whole pattern is."""

from __future__ import annotations

import polars as pl
import pytest
from headrace_columnar.search_patterns import shortened
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples


@pytest.mark.parametrize(
    ("pattern", "short"),
    [
        (r"-k\s\w{1,64}(?:\s?(?:-p|-s))?", r"-k\s\w"),
        (r"a\w{2,5}", r"a\w{2}"),
        (r"a\d{0,3}", "a"),
        (r"a(b|c)*", "a"),
        (r"x|a(?:b)?", "x|a"),
        (r"(?i)(b)?", "(?i)"),
        (r"a\)?", r"a\)?"),
        (r"[(]b?", "[(]b?"),
        (r"a(b)?$", "a(b)?$"),
        (r"a(b)?c", "a(b)?c"),
        (r"\\w{1,64}", r"\\w{1,64}"),
        ("(?x) a (b)? ", "(?x) a (b)? "),
        (r"(a(?:b)?)", r"(a(?:b)?)"),
        (r"a(?:[)(]x)?", "a"),
    ],
)
def test_what_is_left_out(pattern: str, short: str) -> None:
    assert shortened(pattern) == short


PIECES = st.sampled_from([
    "a", "b", "-", r"\w", r"\d", r"\s", r"\\", r"\)", r"\(", "[ab(]", "[^)]", "[]a]", "(", "(?:", "(?i:",
    ")", ")?", ")*", ")+", "){0,2}", "){2}", "?", "*", "+", "{1,3}", "{2,}", "{0,4}", "??", "|", "^", "$", ".", r"\b", "é", "{", "}",
])  # fmt: skip
TEXTS = st.lists(st.text(alphabet="ab-1 ()\\é\n{2", max_size=8), min_size=1, max_size=12)


@settings(max_examples=examples(400), deadline=None)
@given(pieces=st.lists(PIECES, max_size=8), texts=TEXTS)
def test_it_is_found_in_the_same_texts(pieces: list[str], texts: list[str]) -> None:
    pattern = "".join(pieces)
    column = pl.Series(texts, dtype=pl.String)
    try:
        expected = column.str.contains(pattern)
    except pl.exceptions.ComputeError:
        return  # no pattern
    assert column.str.contains(shortened(pattern)).to_list() == expected.to_list(), shortened(pattern)
