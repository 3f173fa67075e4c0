"""The verb ``script``."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Batch, Queue
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace_columnar.verbs.script import Script

SCHEMA = Schema.of({"a": "int64", "b": "string"})
ROWS = [{"a": 1, "b": "x"}, {"a": 5, "b": "y"}, {"a": None, "b": None}, {"a": 9, "b": "z;"}]


def run(text: str) -> list[dict[str, Any]]:
    frame = pl.DataFrame(ROWS, schema=dict(SCHEMA)).with_columns(
        pl.int_range(4, dtype=pl.Int64).alias(OFFSET), pl.lit(0, dtype=pl.Int32).alias(INDEX)
    )
    results = list(Script(text).open(SCHEMA).process(Batch(Queue("q"), frame)))
    return [row for result in results if isinstance(result, Batch) for row in result.user_frame().to_dicts()]


def test_statements_see_those_before_them() -> None:
    assert [row["d"] for row in run("c = a + 1; d = c * 2; DROP c;")] == [4, 12, None, 20]


def test_separators_inside_texts_and_comments_are_left_alone() -> None:
    assert [row["c"] for row in run("c = b = 'z;' -- not; here\n; where a > 1")] == [False, True]


def test_conditions_are_decided_once() -> None:
    rows = run("IF a > 1 THEN a = 0; b = 'changed'; END")
    assert rows == [ROWS[0], {"a": 0, "b": "changed"}, ROWS[2], {"a": 0, "b": "changed"}]


def test_branches_exclude_each_other_and_null_is_not_true() -> None:
    rows = run("IF a > 4 THEN k = 'big'; ELSEIF a > 0 THEN k = 'small'; ELSE k = 'none'; END;")
    assert [row["k"] for row in rows] == ["small", "big", "none", "big"]


def test_a_column_made_in_a_branch_is_null_elsewhere() -> None:
    assert [row["k"] for row in run("IF a > 4 THEN k = a; END")] == [None, 5, None, 9]


def test_conditions_nest() -> None:
    text = (
        "IF a > 1 THEN IF b = 'y' THEN k = 1; ELSE k = 2; END; m = 7; END; n = CASE WHEN k = 1 THEN 'one' ELSE 'no' END"
    )
    rows = run(text)
    assert [(row["k"], row["m"], row["n"]) for row in rows] == [
        (None, None, "no"), (1, 7, "one"), (None, None, "no"), (2, 7, "no"),
    ]  # fmt: skip
    assert list(rows[0]) == ["a", "b", "k", "m", "n"]


def test_an_expression_is_not_evaluated_where_its_branch_is_not_taken() -> None:
    assert next(row["k"] for row in run("k = 0; IF a <> 1 THEN k = 8 / (a - 1); END")) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("c = aa + 1", r"(?s)unknown column 'aa'.*line 1, column 5"),
        ("c = 1;\nd = upperr(b)", r"(?s)'upperr'.*line 2, column 5"),
        ("IF a > 1 THEN c = 1", "this IF has no END"),
        ("IF a > 1 c = 1; END", "expected THEN"),
        ("a", "expected a statement"),
        ("c = ;", "expected an expression"),
        ("IF a > 1 THEN WHERE a > 2; END", "is not allowed inside IF"),
        ("IF b THEN c = 1; END", "COALESCE|boolean"),
        ("", "no statement"),
        ("DROP zz", "unknown column 'zz'"),
    ],
)
def test_mistakes_show_their_place(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        Script(text).output_schema(SCHEMA)
