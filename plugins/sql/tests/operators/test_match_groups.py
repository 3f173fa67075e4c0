"""Patterns with groups and alternatives: the same matches as Python's backtracking ``re`` finds in the letters of the rows."""

from __future__ import annotations

import itertools
import re
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, Watermark
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, ExpressionError
from headrace_sql.compiling.pattern_groups import needs_groups, program
from headrace_sql.operators.match_operator import MatchRecognize, PatternPart
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

#: The letters for which a row can stand for a variable: some for several of them.
LETTERS = {"A": "ax", "B": "bx", "C": "cy", "D": "dxy"}
SCHEMA = Schema({"k": pl.String(), "v": pl.String(), "ts": pl.Datetime("us")})


def fails(reason: str) -> Exception:
    return ValueError(reason)


def spec_of(text: str, *, skip: str = "PAST LAST ROW", within_us: int | None = None) -> MatchRecognize:
    made = program(text, str, fails)
    definitions = {}
    for name, letters in LETTERS.items():
        tests: list[tuple[Any, ...]] = [("=", ("LAST", name, "v", 0), ("value", letter)) for letter in letters]
        test = tests[0]
        for other in tests[1:]:
            test = ("or", test, other)
        definitions[name] = test
    return MatchRecognize(
        keys=("k",), on="ts", order=(), pattern=tuple(PatternPart(each, 1, 1) for each in made.variables),
        definitions={name: test for name, test in definitions.items() if name in made.variables},
        measures={"first": ("FIRST", None, "v", 0), "n": ("COUNT", None, None, 0), "a": ("COUNT", "A", None, 0)},
        types={"first": pl.String(), "n": pl.Int64(), "a": pl.Int64()}, skip=(skip, ""), within_us=within_us, program=made,
    )  # fmt: skip


def matches(spec: MatchRecognize, letters: str, size: int, *, restores: bool = False) -> list[tuple[str, int]]:
    """Return (first letter, number of rows) of what a spec finds in rows of these letters, one a second."""
    operator = spec.open(SCHEMA)
    found: list[tuple[str, int]] = []
    stored: list[bytes] = []
    for begin in range(0, len(letters), size):
        rows = [("k", letter, begin + at) for at, letter in enumerate(letters[begin : begin + size])]
        frame = pl.DataFrame(rows, schema={"k": pl.String, "v": pl.String, "ts": pl.Int64}, orient="row")
        frame = frame.with_columns(
            (pl.col("ts") * 1_000_000).cast(pl.Datetime("us")), pl.lit(None, dtype=pl.Int64).alias(WATERMARK)
        )
        given = [*operator.process(Batch(Queue("q"), frame))]
        given += operator.on_system(Watermark(Queue("q"), (rows[-1][2] + 1) * 1_000_000))
        found += [
            row[:2] for each in given if isinstance(each, Batch) for row in each.frame.select("first", "n").rows()
        ]
        if restores:
            stored.append(operator.delta())
            operator = spec.open(SCHEMA)
            for state in filter(None, stored):
                operator.apply(state)
    ends = [each for each in operator.on_system(EndOfInput()) if isinstance(each, Batch)]
    return found + [row[:2] for each in ends for row in each.frame.select("first", "n").rows()]


QUANTIFIERS = st.sampled_from(["", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}", "{2,}", "{1,3}?"])
PATTERNS = st.recursive(
    st.sampled_from("ABCD"),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: "(" + " ".join(parts) + ")"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + " | ".join(parts) + ")"),
        st.tuples(inner, QUANTIFIERS).map(lambda pair: f"({pair[0]}){pair[1]}"),
    ), max_leaves=6,
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(PATTERNS, st.text("abcdxy", max_size=12), st.integers(1, 5), st.booleans())
def test_the_preferred_match_is_that_of_backtracking(text: str, letters: str, size: int, restores: bool) -> None:
    expression = re.sub(r"[A-D]", lambda found: f"[{LETTERS[found[0]]}]", text).replace(" ", "")
    try:
        compiled = re.compile(expression)
    except re.error:
        return  # Python refuses some repeated quantifiers
    if compiled.match(""):
        with pytest.raises(ValueError, match="matches no row"):
            spec_of(text)
        return
    spec = spec_of(text)
    wanted = [(found[0][0], len(found[0])) for found in compiled.finditer(letters)]
    assert matches(spec, letters, size, restores=restores) == wanted


def test_skipping_to_the_next_row_finds_matches_that_overlap() -> None:
    assert matches(spec_of("(A B)+", skip="TO NEXT ROW"), "ababab", 2) == [("a", 6), ("a", 4), ("a", 2)]


def test_permuted_parts_are_tried_in_their_order() -> None:
    for letters in map("".join, itertools.permutations("abc")):
        assert matches(spec_of("PERMUTE(A, B, C)"), letters, 1) == [(letters[0], 3)]
    assert matches(spec_of("PERMUTE(A, B)"), "xxx", 3) == [("x", 2)]


def test_a_match_within_a_time_is_given_when_it_is_over() -> None:
    spec = spec_of("(A | B)+", within_us=3_000_000)
    operator = spec.open(SCHEMA)
    rows = [("k", letter, second * 1_000_000) for letter, second in [("a", 0), ("b", 2), ("a", 3)]]
    frame = pl.DataFrame(rows, schema={"k": pl.String, "v": pl.String, "ts": pl.Int64}, orient="row").with_columns(
        pl.col("ts").cast(pl.Datetime("us")), pl.lit(None, dtype=pl.Int64).alias(WATERMARK)
    )
    list(operator.process(Batch(Queue("q"), frame)))
    given = [*operator.on_system(Watermark(Queue("q"), 4_000_000))]
    (batch,) = [each for each in given if isinstance(each, Batch)]
    assert batch.frame.select("first", "n").rows() == [("a", 2)], "the third row comes too late for it"
    assert [each.time_us for each in given if isinstance(each, Watermark)] == [2_999_999], "the third row is still held"
    (last,) = [each for each in operator.on_system(Watermark(Queue("q"), 6_000_000)) if isinstance(each, Batch)]
    assert last.frame.select("first", "n").rows() == [("a", 1)]
    assert operator.state_rows() == 0


def test_too_many_ways_end_the_job_with_the_reason() -> None:
    """Only where DEFINE looks at rows behind: else ways in one state are one way."""
    text = "((A | B | D)+ C | (A | B | D)+ D)+ C"
    assert matches(spec_of(text), "x" * 30, 30) == []
    spec = spec_of(text)
    spec.definitions = {**spec.definitions, "C": ("=", ("FIRST", "B", "v", 0), ("value", "none"))}
    with pytest.raises(DataError, match="in more than 10000 ways"):
        matches(spec, "x" * 30, 30)


@pytest.mark.parametrize("with_groups", [False, True])
@pytest.mark.parametrize("skip", ["TO NEXT ROW", "PAST LAST ROW"])
@pytest.mark.parametrize("size", [10_000, 500])
def test_a_run_in_vain_is_walked_once_and_not_from_each_of_its_rows(with_groups: bool, skip: str, size: int) -> None:
    spec = spec_of("(A | D)+ B", skip=skip)
    if not with_groups:
        spec.program, spec.pattern = None, (PatternPart("A", 1, None), PatternPart("B", 1, 1))
    operator = spec.open(SCHEMA)
    walked_rows = 0

    def counted(walk: Any) -> Any:
        def counting(rows: Any, first: int, at: int, *rest: Any) -> Any:
            nonlocal walked_rows
            made = walk(rows, first, at, *rest)
            walked_rows += made[0] - at
            return made

        return counting

    matcher: Any = operator._matcher  # type: ignore[attr-defined]
    matcher._walk, matcher._trace = counted(matcher._walk), counted(matcher._trace)
    letters = "a" * 3000 + "c"
    for begin in range(0, len(letters), size):
        rows = [("k", letter, begin + at) for at, letter in enumerate(letters[begin : begin + size])]
        frame = pl.DataFrame(rows, schema={"k": pl.String, "v": pl.String, "ts": pl.Int64}, orient="row")
        frame = frame.with_columns(
            (pl.col("ts") * 1_000_000).cast(pl.Datetime("us")), pl.lit(None, dtype=pl.Int64).alias(WATERMARK)
        )
        list(operator.process(Batch(Queue("q"), frame)))
        list(operator.on_system(Watermark(Queue("q"), (rows[-1][2] + 1) * 1_000_000)))
    assert operator.state_rows() == 0
    assert walked_rows < 6 * len(letters)


@pytest.mark.parametrize(
    ("text", "is_needed"),
    [
        ("A B+ C*?", False),
        ("(A B) C", False),
        ("(A B)+ C", True),
        ("A | B", True),
        ("A B A", True),
        ("PERMUTE(A, B)", True),
    ],
)
def test_which_patterns_go_by_these_rules(text: str, is_needed: bool) -> None:
    assert needs_groups(text) is is_needed


TEXT = """
SELECT * FROM t MATCH_RECOGNIZE (
  ORDER BY p MEASURES FIRST(UP.v) AS low, LAST(UP.v) AS high, COUNT(DOWN.v) AS downs, LAST(v) AS last
  AFTER MATCH SKIP PAST LAST ROW PATTERN ({}) DEFINE UP AS v > LAST(UP.v, 1) OR LAST(UP.v, 1) IS NULL, DOWN AS v < LAST(UP.v))
"""


def test_a_text_with_groups() -> None:
    """Prices that rise, fall, and rise again; DEFINE looks at the rows before."""
    hr.register("prices", pl.DataFrame({"v": [1, 3, 5, 4, 2, 6, 7, 3, 1]}))
    view = "CREATE VIEW t AS SELECT v, PROCTIME() AS p FROM prices;"
    assert hr.sql(view + TEXT.format("(UP+ DOWN+){2}")).collect().rows() == [(1, 7, 4, 1)]
    assert hr.sql(view + TEXT.format("UP UP (UP | DOWN)")).collect().rows() == [(1, 5, 0, 5), (2, 7, 0, 7)]
    with pytest.raises(ExpressionError, match="matches no row at all"):
        hr.sql(view + TEXT.format("(UP | DOWN)*"))
    with pytest.raises(ExpressionError, match="a variable is missing"):
        hr.sql(view + TEXT.format("UP | "))
