"""What random expressions have found wrong (tests/differential): each as the smallest expression and row that shows it."""

from __future__ import annotations

import datetime as dt
import math
import random
import re
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace_columnar.expressions import compile_expression, evaluate

EDGE = Decimal("9" * 28 + "." + "9" * 10)
ROW: dict[str, tuple[pl.DataType, Any]] = {
    "none_of_day": (pl.Date(), None),
    "moment": (pl.Datetime("us"), dt.datetime(2025, 12, 28, 7, 8, 9)),
    "x": (pl.Float64(), -1.0),
    "none": (pl.Float64(), None),
    "none_of_text": (pl.String(), None),
    "none_of_whole": (pl.Int64(), None),
    "unsigned": (pl.UInt64(), 1),
    "most": (pl.UInt64(), 2**64 - 1),
    "span": (pl.Duration("us"), dt.timedelta(days=-1, microseconds=1)),
    "edge": (pl.Decimal(38, 10), EDGE),
    "fraction": (pl.Decimal(38, 37), Decimal("9." + "9" * 37)),
    "half": (pl.Decimal(10, 2), Decimal("-0.50")),
    "narrow": (pl.Float32(), 149.0),
    "nested": (pl.List(pl.List(pl.Int64())), [[1, 2], None]),
    "texts": (pl.List(pl.String()), ["a", None]),
    "entries": (pl.List(pl.Struct({"key": pl.String(), "value": pl.Int64()})), [{"key": "a", "value": 7}]),
}
SCHEMA = Schema({name: kind for name, (kind, _) in ROW.items()})
FRAME = pl.DataFrame([pl.Series(name, [value], dtype=kind) for name, (kind, value) in ROW.items()])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("timestampdiff(QUARTER, moment, none_of_day)", None),
        ("most * span", None),
        ("entries['a']", 7),
        ("entries['b'] IS NULL AND entries[1].value = 7", True),
        ("span * most", None),
        ("unsigned * span", dt.timedelta(days=-1, microseconds=1)),
        ("timestampdiff(MONTH, none_of_day, moment)", None),
        ("nanvl(x, none)", None),
        ("CAST(nanvl(CAST(FALSE AS DOUBLE), -0.0e0) AS STRING)", "0.0"),
        ("CAST(IF(isnan(0.0e0), 0.0e0, -0.0e0) AS STRING)", "-0.0"),
        ("- unsigned", -1),
        ("round(edge)", Decimal(10) ** 28),
        ("ceil(edge)", Decimal(10) ** 28),
        ("bround(edge, 1)", Decimal(10) ** 28),
        ("CAST(edge AS DECIMAL(38, 0))", Decimal(10) ** 28),
        ("TRY_CAST(edge AS DECIMAL(38, 18))", None),
        ("edge + 1", Decimal("10000000000000000000000000001")),
        ("fraction DIV half", -19),
        ("bround(narrow, -2)", 100.0),
        ("replace('a', 'a', none_of_text)", None),
        ("replace(split_part('a', 'b', unsigned), 'a', split_part('a', 'b', none_of_whole))", None),
        ("array_remove(array(x, sqrt(x)), sqrt(x))", [-1.0]),
        ("array_position(array(x, sqrt(x)), sqrt(x))", 2),
        ("array_intersect(array(sqrt(x)), array(sqrt(x)))", [math.nan]),
        ("array_except(array(sqrt(x), x), array(sqrt(x)))", [-1.0]),
        ("arrays_overlap(array(sqrt(x)), array(sqrt(x)))", True),
    ],
)
def test_finding(text: str, wanted: Any) -> None:
    compiled = compile_expression(text, SCHEMA)
    values, failures = evaluate(compiled, FRAME)
    assert failures == []
    assert repr(values.to_list()) == repr([wanted]) or values.to_list() == [wanted]
    assert values.dtype == compiled.data_type


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nested < nested", "array<array<int64>> has no order (<)"),
        ("texts BETWEEN texts AND texts", "array<string> has no order (>=)"),
        ("greatest(texts, texts)", "greatest: the values must be of a simple type"),
        ("array_min(nested)", "array_min: the elements must be of a simple type"),
        ("array_max(nested)", "array_max: the elements must be of a simple type"),
    ],
)
def test_what_has_no_order_is_refused_when_the_job_is_built(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=re.escape(message)):
        compile_expression(text, SCHEMA)


@pytest.mark.parametrize(
    "text", ["levenshtein(s, reverse(s))", "array_except(split(s, ''), split(reverse(s), ''))", "arrays_overlap(a, b)"]
)
def test_long_values_take_time_in_proportion(text: str) -> None:
    """With the product of both lengths in steps of Python, these would take minutes and pytest's own limit would end them."""
    long = "".join(chr(97 + place % 26) for place in range(20_000))
    schema = Schema({"s": pl.String(), "a": pl.List(pl.Int64()), "b": pl.List(pl.Int64())})
    frame = pl.DataFrame(
        {"s": [long] * 3, "a": [list(range(50_000))] * 3, "b": [list(range(-50_000, 0))] * 3}, schema=dict(schema)
    )
    values, failures = evaluate(compile_expression(text, schema), frame)
    assert failures == []
    assert values.null_count() == 0


def test_texts_that_are_too_long_to_compare_are_null() -> None:
    frame = pl.DataFrame({"s": ["a" * 20_000, "a" * 20_001]})
    values, _ = evaluate(compile_expression("levenshtein(s, 'b')", Schema({"s": pl.String()})), frame)
    assert values.to_list() == [20_000, None]


@pytest.mark.parametrize("text", ["pow(x, y)", "pow(x, 6)", "pow(2.675e0, y)"])
def test_powers_do_not_depend_on_the_batch(text: str) -> None:
    chance = random.Random(5)
    frame = pl.DataFrame(
        {
            "x": [2.675, *(chance.uniform(-9, 9) for _ in range(500))],
            "y": [6.0, *(float(chance.randint(-9, 9)) for _ in range(500))],
        }
    )
    compiled = compile_expression(text, Schema({"x": pl.Float64(), "y": pl.Float64()}))
    whole = evaluate(compiled, frame)[0].to_list()
    assert [evaluate(compiled, frame[row : row + 1])[0].item() for row in range(frame.height)] == whole
    for row in range(0, frame.height, 50):
        x, y = frame.row(row)
        constant = compile_expression(text.replace("x", f"{x!r}e0").replace("y", f"{y!r}e0"), Schema({}))
        assert evaluate(constant, frame[:1])[0].item() == whole[row]


@pytest.mark.parametrize("text", ["replace(s, 'a', t)", "replace(s, u, t)", "regexp_replace(s, 'a', t)", "regexp_replace(s, u, t)",
                                  "regexp_replace(s, '(?=a)a', t)", "array_repeat(s, 10000)"])  # fmt: skip
def test_a_row_cannot_ask_for_all_the_memory(text: str) -> None:
    long = "a" * 100_000
    frame = pl.DataFrame({"s": [long, "ab"], "t": [long, "c"], "u": ["a", "a"]})
    compiled = compile_expression(text, Schema(dict(frame.schema)))
    values, failures = evaluate(compiled, frame)
    assert failures == []
    assert values[0] is None
    assert values[1] is not None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("map_keys(array_append(m, NULL))", ["a"]),
        ("map_values(array_prepend(m, NULL))", [1]),
        ("map_union(array_append(m, NULL), map('b', 2))", [{"key": "a", "value": 1}, {"key": "b", "value": 2}]),
        ("map_value(array_prepend(m, NULL), k)", 1),
        ("map_value(array_prepend(m, NULL), 'a')", 1),
    ],
)
def test_a_null_among_the_entries_of_a_map_is_no_entry(text: str, value: Any) -> None:
    entries = pl.List(pl.Struct({"key": pl.String(), "value": pl.Int64()}))
    frame = pl.DataFrame({"m": [[{"key": "a", "value": 1}]], "k": ["a"]}, schema={"m": entries, "k": pl.String()})
    values, failures = evaluate(compile_expression(text, Schema(dict(frame.schema))), frame)
    assert (values.to_list(), failures) == ([value], [])


def test_a_key_of_json_is_of_a_simple_type() -> None:
    with pytest.raises(ExpressionError, match="key must be a value of any simple type, not array<int64>"):
        compile_expression("json_key(array(1))", Schema({}))
