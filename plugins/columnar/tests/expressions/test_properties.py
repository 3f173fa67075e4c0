"""Random expressions over random rows: the compiler must give what the plain evaluator of oracle.py gives."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace_columnar.expressions import compile_expression, compile_predicate, evaluate
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

from .oracle import Failure, Tree, column, constant, like_matches, literal

SCHEMA = Schema(
    {
        "i": pl.Int64(),
        "j": pl.Int64(),
        "k": pl.Int32(),
        "s": pl.String(),
        "t": pl.String(),
        "p": pl.Boolean(),
        "q": pl.Boolean(),
    }
)
# Few and awkward characters, so that patterns and texts meet; K is the Kelvin sign.
ALPHABET = "aAbk%_\\\n'ßÄéK🙂.*[("
texts = st.text(ALPHABET, max_size=6)
integers = st.integers(-4, 4) | st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1, 2**31])
smalls = st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3)
rows = st.fixed_dictionaries(
    {
        "i": st.none() | integers,
        "j": st.none() | integers,
        "k": st.none() | smalls,
        "s": st.none() | texts | st.sampled_from(["12", " 7 ", "x1", "-0", "9" * 19]),
        "t": st.none() | texts,
        "p": st.none() | st.booleans(),
        "q": st.none() | st.booleans(),
    }
)
frames = st.lists(rows, max_size=12)


def tree(operation: str, *parts: Any) -> Tree:
    return Tree(operation, parts)


# A literal -2**63 is written as minus 2**63, whose magnitude alone is no int64: the compiler must see both together.
integer_leaves = st.sampled_from(["i", "j", "k"]).map(column) | (st.none() | integers).map(constant)
text_leaves = st.sampled_from(["s", "t"]).map(column) | (st.none() | texts).map(constant)
boolean_leaves = st.sampled_from(["p", "q"]).map(column) | st.sampled_from([None, True, False]).map(constant)


@st.composite
def escaped_patterns(draw: st.DrawFn) -> tuple[str, str | None]:
    """A LIKE pattern that is valid with its escape character."""
    escape = draw(st.sampled_from([None, None, "\\", "!", "a"]))
    items = st.text([c for c in ALPHABET if c != escape], min_size=1, max_size=1)
    if escape:
        items = items | st.sampled_from([escape + "%", escape + "_", escape + escape])
    return "".join(draw(st.lists(items, max_size=7))), escape


def integer_trees(depth: int) -> st.SearchStrategy[Tree]:
    if depth == 0:
        return integer_leaves
    below = integer_trees(depth - 1)
    return (
        integer_leaves
        | st.builds(tree, st.sampled_from(["+", "-", "*", "/", "%", "nullif"]), below, below)
        | st.builds(tree, st.just("negative"), below)
        | st.builds(tree, st.just("if"), boolean_trees(depth - 1), below, below)
        | st.builds(tree, st.just("coalesce"), st.tuples(below, below, below))
        | st.builds(tree, st.sampled_from(["cast", "try_cast"]), text_trees(depth - 1))
        | cases(below, depth)
    )


def text_trees(depth: int) -> st.SearchStrategy[Tree]:
    if depth == 0:
        return text_leaves
    below = text_trees(depth - 1)
    return (
        text_leaves
        | st.builds(tree, st.sampled_from(["concat", "nullif"]), below, below)
        | st.builds(tree, st.just("coalesce"), st.tuples(below, below))
        | cases(below, depth)
    )


def cases(results: st.SearchStrategy[Tree], depth: int) -> st.SearchStrategy[Tree]:
    searched = st.tuples(boolean_trees(depth - 1), results)
    simple = st.tuples(integer_leaves, results)
    return st.builds(
        lambda branches, default: tree("case", None, tuple(branches), default),
        st.lists(searched, min_size=1, max_size=3),
        st.none() | results,
    ) | st.builds(
        lambda subject, branches, default: tree("case", subject, tuple(branches), default),
        integer_leaves,
        st.lists(simple, min_size=1, max_size=3),
        st.none() | results,
    )


def boolean_trees(depth: int) -> st.SearchStrategy[Tree]:
    if depth == 0:
        return boolean_leaves
    below, numbers, strings = boolean_trees(depth - 1), integer_trees(depth - 1), text_trees(depth - 1)
    comparisons = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>", "distinct", "not distinct"])
    return (
        boolean_leaves
        | st.builds(tree, st.sampled_from(["and", "or"]), below, below)
        | st.builds(tree, st.sampled_from(["not", "is true", "is false", "is not true", "is unknown"]), below)
        | st.builds(tree, st.sampled_from(["is null", "is not null"]), numbers | strings | below)
        | st.builds(tree, comparisons, numbers, numbers)
        | st.builds(tree, comparisons, strings, strings)
        | st.builds(tree, comparisons, below, below)
        | st.builds(tree, st.sampled_from(["between", "not between"]), numbers, numbers, numbers)
        | st.builds(tree, st.sampled_from(["between", "not between"]), strings, strings, strings)
        | membership(numbers)
        | membership(strings)
        | st.builds(
            lambda operation, text, pattern: tree(operation, text, constant(pattern[0]), pattern[1]),
            st.sampled_from(["like", "not like", "ilike"]),
            strings,
            escaped_patterns(),
        )
        | st.builds(lambda text, pattern: tree("like", text, pattern, None), strings, strings)
        | cases(below, depth)
    )


def membership(operands: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    items = st.lists(operands, min_size=1, max_size=4).map(tuple)
    return st.builds(tree, st.sampled_from(["in", "not in"]), operands, items)


def expected(made: Tree, found: list[dict[str, Any]]) -> tuple[list[Any], list[int]]:
    values: list[Any] = []
    failed: list[int] = []
    for place, row in enumerate(found):
        try:
            values.append(made.value(row))
        except Failure:
            failed.append(place)
            values.append(None)
    return values, failed


def check(made: Tree, found: list[dict[str, Any]]) -> None:
    frame = pl.DataFrame(found, schema=dict(SCHEMA))
    try:
        compiled = compile_expression(made.sql(), SCHEMA)
    except ExpressionError as error:
        # A literal 0 as divisor, and a literal that cannot be cast, are refused when the job is built.
        if not re.search("division by zero|cannot be read as int64", str(error)):
            raise
        return
    values, failed = expected(made, found)

    series, failures = evaluate(compiled, frame)

    assert series.dtype == compiled.data_type
    assert [row for row, _ in failures] == failed, made.sql()
    assert series.to_list() == values, made.sql()
    assert compiled.columns <= set(SCHEMA)
    for place in range(len(found)):
        alone, failures = evaluate(compiled, frame[place : place + 1])
        assert alone.to_list() == [values[place]]
        assert bool(failures) == (place in failed)


@settings(max_examples=examples(400), deadline=None)
@given(boolean_trees(3), frames)
def test_conditions(made: Tree, found: list[dict[str, Any]]) -> None:
    check(made, found)


@settings(max_examples=examples(250), deadline=None)
@given(integer_trees(3), frames)
def test_numbers(made: Tree, found: list[dict[str, Any]]) -> None:
    check(made, found)


@settings(max_examples=examples(150), deadline=None)
@given(text_trees(3), frames)
def test_texts(made: Tree, found: list[dict[str, Any]]) -> None:
    check(made, found)


@settings(max_examples=examples(150), deadline=None)
@given(boolean_trees(2), frames)
def test_a_predicate_keeps_the_rows_that_are_true(made: Tree, found: list[dict[str, Any]]) -> None:
    try:
        compiled = compile_predicate(made.sql(), SCHEMA)
    except ExpressionError:
        return
    values, _ = expected(made, found)
    series, _ = evaluate(compiled, pl.DataFrame(found, schema=dict(SCHEMA)))
    assert series.to_list() == [value is True for value in values]


@settings(max_examples=examples(600), deadline=None)
@given(texts, escaped_patterns())
def test_like(text: str, pattern: tuple[str, str | None]) -> None:
    source, escape = pattern
    wanted = like_matches(text, source, escape)
    frame = pl.DataFrame({"s": [text, None, text]})
    sql = f"s LIKE {literal(source)}" + (f" ESCAPE {literal(escape)}" if escape else "")
    compiled = compile_expression(sql, Schema({"s": pl.String()}))
    assert evaluate(compiled, frame)[0].to_list() == [wanted, None, wanted]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.none() | texts, st.none() | texts), max_size=8))
def test_like_with_the_pattern_in_a_column(pairs: list[tuple[str | None, str | None]]) -> None:
    frame = pl.DataFrame(pairs, schema={"s": pl.String, "t": pl.String}, orient="row")
    compiled = compile_expression("s LIKE t", Schema({"s": pl.String(), "t": pl.String()}))
    wanted = [None if s is None or t is None else like_matches(s, t, None) for s, t in pairs]
    assert evaluate(compiled, frame)[0].to_list() == wanted


@settings(max_examples=examples(200), deadline=None)
@given(st.text(max_size=40))
def test_no_text_makes_the_parser_fail_in_another_way(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        compile_expression(text, SCHEMA)
