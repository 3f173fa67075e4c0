"""What is searched and evaluated once for each value of a column gives what evaluating each rule on each row gives."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace_columnar import dialect
from headrace_columnar.expressions import compile_predicate
from headrace_rules import coded_columns, distinct_values, trigger_plan, verification
from headrace_rules.coded_columns import CodedColumns, ColumnHabits
from headrace_rules.needed_columns import needed_columns
from hypothesis import HealthCheck, given, settings
from rules_world import SCHEMA, engine_of, of_engine, plainly
from test_equality import ROWS, RULES, conditions

from tests.effort import examples


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use values wherever it is possible, however few rows there are."""
    monkeypatch.setattr(coded_columns, "ROWS_MIN", 1)
    monkeypatch.setattr(distinct_values, "ROWS_MIN", 1)
    monkeypatch.setattr(coded_columns, "_DISTINCT_MAX", 1.0)
    monkeypatch.setattr(distinct_values, "_MANY", 1)
    monkeypatch.setattr(distinct_values, "_ROWS_PER_VALUE", 0)
    monkeypatch.setattr(trigger_plan, "_OFTEN", -1.0)
    monkeypatch.setattr(verification, "_WIDE", 0)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules=RULES, rows=ROWS)
def test_equal_to_plain_evaluation(rules: list[str], rows: list[dict[str, object]]) -> None:
    frame = pl.DataFrame(rows, schema=SCHEMA)
    expected = plainly(rules, frame)
    engine = engine_of(rules, frame)
    engine.use_triggers()
    assert of_engine(engine, frame) == expected
    assert of_engine(engine, frame) == expected, "values are scanned from the second batch on"
    engine.use_triggers(engine.choose_triggers(frame.head(2)))
    assert of_engine(engine, frame) == expected


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rule=conditions(depth=3), rows=ROWS)
def test_a_condition_is_never_true_without_a_column_that_it_needs(rule: str, rows: list[dict[str, object]]) -> None:
    schema = Schema(SCHEMA)
    compiled = compile_predicate(rule, schema, {})
    frame = pl.DataFrame(rows, schema=SCHEMA)
    for name in needed_columns(dialect.parse(rule), schema, {}):
        without = frame.with_columns(pl.lit(None, dtype=SCHEMA[name]).alias(name))
        if not compiled.can_fail:
            assert plainly([rule], without) == (set(), set())


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("a = 'x'", "a"),
        ("a = b", "ab"),
        ("a LIKE 'x%' AND NOT (b RLIKE 'x')", "ab"),
        ("a = 'x' OR lower(a) LIKE '%y%'", "a"),
        ("a = 'x' OR b = 'x'", ""),
        ("a IS NULL", ""),
        ("a IS NOT NULL", "a"),
        ("(a = 'x') IS NOT TRUE", ""),
        ("NOT (a = 'x' AND b = 'y')", ""),
        ("a <=> 'x'", ""),
        ("CAST(n AS STRING) ILIKE ANY ('1', '2')", "n"),
    ],
)
def test_columns_that_a_condition_needs(text: str, needed: str) -> None:
    assert needed_columns(dialect.parse(text), Schema(SCHEMA), {}) == set(needed)


def test_rows_and_their_values() -> None:
    frame = pl.DataFrame({"a": ["x", None, "y", "x", None], "b": ["1", "1", "1", "2", "1"]})
    coded = CodedColumns(frame)
    for names in (("a",), ("b",), ("a", "b")):
        found = coded.of(*names)
        assert found is not None
        assert found.values[found.codes].equals(frame.select(names))
        places = np.arange(found.values.height)[::-1]
        rows, indexes = found.rows_of(places)
        assert sorted(rows.tolist()) == list(range(frame.height))
        assert (found.codes[rows] == places[indexes]).all()
    assert coded.present(frozenset({"a", "b"})).tolist() == [True, False, True, True, False]


def test_a_column_of_many_values_is_left_alone_for_some_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coded_columns, "_DISTINCT_MAX", 0.25)
    many, few = pl.DataFrame({"a": [f"{n}" for n in range(300)]}), pl.DataFrame({"a": ["x"] * 300})
    habits = ColumnHabits()
    assert CodedColumns(many, habits).of("a") is None
    tried = [CodedColumns(few, habits).of("a") is not None for _ in range(10)]
    assert tried == [False] * 8 + [True] * 2
