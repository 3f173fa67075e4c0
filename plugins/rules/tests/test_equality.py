"""The engine gives what evaluating each rule on each row gives, whatever its triggers and its scanner."""

from __future__ import annotations

import headrace as hr
import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace_rules.engine import EngineOptions, RuleEngine
from hypothesis import given, settings
from hypothesis import strategies as st
from rules_world import (
    CONSTANT,
    PATTERN,
    REGEX,
    ROW,
    SCANNERS,
    SCHEMA,
    VALUE,
    engine_of,
    of_engine,
    plainly,
    quoted,
)

from tests.effort import examples


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    if depth and draw(st.integers(0, 2)) > 0:
        parts = [draw(conditions(depth=depth - 1)) for _ in range(draw(st.integers(2, 3)))]
        kind = draw(st.sampled_from(["AND", "AND", "OR", "NOT", "IS"]))
        if kind == "NOT":
            return f"NOT ({parts[0]})"
        if kind == "IS":
            return f"(({parts[0]}) IS {draw(st.sampled_from(['TRUE', 'NOT TRUE', 'FALSE', 'NOT FALSE']))})"
        return "(" + f" {kind} ".join(parts) + ")"
    value = draw(VALUE)
    negated = draw(st.sampled_from(["", "", "", "NOT "]))
    text: str = draw(
        st.one_of(
            PATTERN.map(lambda p: f"{value} {negated}LIKE {p}"),
            PATTERN.map(lambda p: f"{value} {negated}ILIKE {p}"),
            REGEX.map(lambda p: f"{value} {negated}RLIKE {p}"),
            st.tuples(st.sampled_from(["=", "<>", "<", ">=", "<=>"]), CONSTANT).map(lambda p: f"{value} {p[0]} {p[1]}"),
            st.lists(CONSTANT, min_size=1, max_size=3).map(lambda p: f"{value} {negated}IN ({', '.join(p)})"),
            st.tuples(st.lists(PATTERN, min_size=1, max_size=4), st.sampled_from(["LIKE ANY", "ILIKE ANY", "LIKE ALL", "ILIKE ALL"]))
            .map(lambda p: f"{value} {p[1]} ({', '.join(p[0])})"),
            PATTERN.map(lambda p: f"{value} {negated}ILIKE {p} ESCAPE '!'"),
            PATTERN.map(lambda p: f"CAST({value} AS STRING) {negated}ILIKE {p}"),
            st.lists(CONSTANT, min_size=1, max_size=3).map(lambda p: f"CAST({value} AS STRING) IN ({', '.join(p)})"),
            CONSTANT.map(lambda p: f"{value} IN ({p}, NULL)"),
            CONSTANT.map(lambda p: f"contains({value}, {p})"),
            CONSTANT.map(lambda p: f"startswith({value}, {p})"),
            st.sampled_from([
                "n = 1", "n IN (0, 2)", "n BETWEEN 0 AND 2", "n > -1", "1 < n", "u = 18446744073709551615", "u = 1", "f", "NOT f",
                "f = TRUE", "a IS NULL", "b IS NOT NULL", "x > 1", "x = 1.5", "n = u", "a = b", "length(a) > 3", "n <> 1",
                "CAST(a AS int) > 1", "CAST(b AS int) = 12", "coalesce(a, b) = 'foo'", "TRUE", "n IS NULL",
                "CAST(n AS STRING) = '1'", "CAST(n AS STRING) IN ('1', '02', '-1')",
                "CAST(u AS STRING) = '18446744073709551615'", "NOT (CAST(n AS STRING) = '+1')", "CAST(f AS STRING) = 'true'",
                "CAST(f AS STRING) ILIKE 'T%'", "CAST(n AS STRING) LIKE '%1'",
                "CASE WHEN f THEN a LIKE '%foo%' ELSE b LIKE '%foo%' END", "a SIMILAR TO '%(foo|日本)%'", "'foo' = a",
            ]),
        )
    )  # fmt: skip
    return text


RULES = st.lists(conditions(), min_size=1, max_size=5)
ROWS = st.lists(ROW, min_size=1, max_size=12)


@pytest.mark.parametrize("scanner", SCANNERS)
@settings(max_examples=examples(100, least=5), deadline=None)
@given(rules=RULES, rows=ROWS)
def test_equal_to_plain_evaluation(scanner: str, rules: list[str], rows: list[dict[str, object]]) -> None:
    frame = pl.DataFrame(rows, schema=SCHEMA)
    expected = plainly(rules, frame)
    engine = engine_of(rules, frame, scanner=scanner)
    engine.use_triggers()  # a trigger for every rule that can have one
    assert of_engine(engine, frame) == expected
    engine.use_triggers(engine.choose_triggers(frame.head(2)))  # what two rows tell
    assert of_engine(engine, frame) == expected


@settings(max_examples=examples(15), deadline=None)
@given(rules=RULES, rows=ROWS, repeat=st.integers(20, 60))
def test_equal_to_plain_evaluation_of_many_rows(rules: list[str], rows: list[dict[str, object]], repeat: int) -> None:
    """Many candidates are first tried by their equalities, all at once."""
    frame = pl.concat([pl.DataFrame(rows, schema=SCHEMA)] * repeat)
    rules = [f"({rule}) AND b = 'foo'" for rule in rules] + [f"a = 'foo' AND ({rule})" for rule in rules] + rules
    engine = engine_of(rules, frame)
    engine.use_triggers()
    assert of_engine(engine, frame) == plainly(rules, frame)


calls: list[str] = []


@hr.udf(returns="boolean")
def looks_bad(text: str | None) -> bool | None:
    calls.append(str(text))
    if text == "12":
        raise ValueError("twelve")
    return None if text is None else "foo" in text


@pytest.mark.parametrize("entries", [0, 1000])
def test_user_functions_are_called_where_plain_evaluation_calls_them(entries: int) -> None:
    rules = [
        "looks_bad(a)",
        "b LIKE '%foo%' AND looks_bad(a)",
        "looks_bad(a) AND b LIKE '%foo%'",
        "n = 1 AND looks_bad(b)",
    ]
    values = ["foo", "12", None, "xfoo", "y"]
    frame = pl.DataFrame(
        [{"a": a, "b": b, "n": n} for a in values for b in values for n in (None, 1, 2)],
        schema={"a": pl.String(), "b": pl.String(), "n": pl.Int64()},
    )
    functions = {"looks_bad": looks_bad}
    expected = plainly(rules, frame, functions)
    options = EngineOptions(cache=False, background=False, verdict_cache_entries=entries)
    engine = RuleEngine(rules, Schema(frame.schema), functions, options)
    engine.use_triggers()
    assert of_engine(engine, frame) == expected
    calls.clear()
    assert of_engine(engine, frame) == expected
    if entries:
        assert set(calls) == {"12"}, "only what failed is asked again"


def test_a_user_function_that_is_called_like_a_built_in_is_no_trigger() -> None:
    @hr.udf(returns="boolean", name="contains")
    def always(text: str | None, part: str) -> bool:
        return True

    frame = pl.DataFrame({"a": ["x", None]})
    engine = RuleEngine(["contains(a, 'foo')"], Schema(frame.schema), {"contains": always}, EngineOptions(cache=False))
    engine.use_triggers()
    assert of_engine(engine, frame)[0] == {(0, 0), (1, 0)}


@pytest.mark.parametrize("scanner", SCANNERS)
@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("lower(a) LIKE '%k8s%'", "\u212a8S"),
        ("a ILIKE '%8K%'", "8\u212a"),
        ("a RLIKE '(?i)soon'", "ſoon"),
        ("a RLIKE '(?i)kilo'", "\u212ailo"),
        ("lower(a) LIKE 'i%x'", "İx"),
        ("upper(a) LIKE '%STRASSE%'", "Straße"),
        ("upper(a) = 'FIN'", "ﬁn"),
        ("upper(a) LIKE '%I%'", "ı"),
        ("lower(a) LIKE '%büro-kosten%'", "BÜRO-KOSTEN"),
        ("a ILIKE '%😀%'", "x😀y"),
        ("a ILIKE '%ΟΔΌΣ'", "οδός"),
        ("a ILIKE '%ς%'", "ΑΣ"),
        ("a ILIKE '%привет%'", "ПРИвет"),
        ("a ILIKE '%å%'", "\u212b"),
        ("a ILIKE '%ß%'", "ẞ"),
        ("a ILIKE '%i\u0307x%'", "İX"),
        ("a ILIKE '–ⓐ'", "–Ⓐ"),
        ("CAST(a AS STRING) ILIKE '%foo'", "xFOO"),
        ("CAST(a AS STRING) IN ('4624', '4625')", "4625"),
        ("upper(a) LIKE '%😀É%'", "x😀é"),
        ("a LIKE 'a\nb%'", "a\nbc"),
        ("a LIKE '%\0x%'", "b\0x"),
        ("a RLIKE '^b$'", "b"),
        ("a RLIKE '(?m)^b$'", "a\nb"),
    ],
)
def test_texts_that_a_careless_scan_would_miss(scanner: str, rule: str, value: str) -> None:
    frame = pl.DataFrame({"a": ["zzz", None, value, "", value + "\n"]})
    matches, failures = plainly([rule], frame)
    assert (2, 0) in matches
    engine = engine_of([rule], frame, scanner=scanner)
    engine.use_triggers()
    assert engine.evaluate(frame.head(0)).pairs.tolist() == []
    assert engine.plan is not None
    assert engine.plan.atoms[0] is not None, "there is no trigger: nothing is tested"
    assert of_engine(engine, frame) == (matches, failures)


LETTERS = st.text(
    st.one_of(st.sampled_from("ßẞİıſ\u212aK\u212bÅåΣσςǅǆŉǰﬁi\u0307😀Ⓐⓐkis"), st.characters(exclude_categories=["Cs"])),
    max_size=6,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(LETTERS, min_size=1, max_size=8), LETTERS, st.data())
def test_letters_of_all_scripts_without_case(values: list[str], wanted: str, data: st.DataObject) -> None:
    wanted = "".join(data.draw(st.sampled_from([letter, letter.lower(), letter.upper()])) for letter in wanted)
    values += [f"x{wanted}", f"{wanted.upper()}x", wanted.lower(), wanted.swapcase(), f"{wanted}\u0307"]
    texts = [quoted(one.replace("!", "!!").replace("%", "!%").replace("_", "!_")) for one in (f"{wanted}", wanted[1:])]
    rules = [f"a ILIKE '%{texts[0][1:-1]}%' ESCAPE '!'", f"a ILIKE ANY ({texts[0]}, {texts[1]}) ESCAPE '!'"]
    rules += [f"{fold}(a) LIKE '%{text[1:-1]}%' ESCAPE '!'" for fold in ("lower", "upper") for text in texts]
    frame = pl.DataFrame({"a": values}, schema={"a": pl.String()})
    engine = engine_of(rules, frame)
    engine.use_triggers()
    assert of_engine(engine, frame) == plainly(rules, frame)


@pytest.mark.parametrize("scanner", SCANNERS)
@pytest.mark.parametrize(("value", "matches"), [("ix", True), ("IX", True), ("İx", True), ("ıx", False), ("iy", False)])
def test_letters_without_case_before_a_look_ahead(scanner: str, value: str, matches: bool) -> None:
    """Patterns with look-around have another engine, which counts other letters as one: no scan may decide for it."""
    frame = pl.DataFrame({"a": ["zzz", None, value, ""]})
    rules = ["a RLIKE '(?i)i(?=x)'"]
    engine = engine_of(rules, frame, scanner=scanner)
    engine.use_triggers()
    assert of_engine(engine, frame) == plainly(rules, frame) == ({(2, 0)} if matches else set(), set())


def test_columns_next_to_each_other_in_the_buffer_are_not_one_text() -> None:
    frame = pl.DataFrame({"a": ["cu", "rl", None, "x\ncu", "rl"]})
    engine = engine_of(["a LIKE '%curl%'", "a LIKE '%cu\nrl%'", "a LIKE '%u%l%'"], frame)
    engine.use_triggers()
    assert of_engine(engine, frame) == (set(), set())
