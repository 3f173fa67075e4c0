"""VALUES: rows that stand in the text."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

from decimal import Decimal
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError

SINK = "CREATE TABLE s (a BIGINT, b DECIMAL(5, 2), c STRING) WITH ('connector' = 'blackhole'); "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM (VALUES (1, 'a'), (2, NULL), (3 + 1, UPPER('x'))) AS t(a, b)", [(1, "a"), (2, None), (4, "X")]),
        ("SELECT a, COUNT(*) FROM (VALUES (1, 1.5), (1, 2), (2, 3)) AS t(a, b) GROUP BY a", [(1, 2), (2, 1)]),
        ("VALUES (1, 'a'), (2, 'b')", [(1, "a"), (2, "b")]),
        (
            "SELECT v.n, u.k FROM u JOIN (VALUES (1, 'one'), (2, 'two')) AS v(i, n) ON u.v = v.i",
            [("one", "x"), ("two", "y")],
        ),
        ("SELECT * FROM (VALUES (ARRAY[1, 2], MAP['a', 1])) AS t(a, b)", [([1, 2], [{"key": "a", "value": 1}])]),
        (SINK + "INSERT INTO s VALUES (1, 2.5, 'x'), (2, 3, NULL)", [(1, Decimal("2.50"), "x"), (2, Decimal(3), None)]),
        (SINK + "INSERT INTO s (c, a) VALUES ('x', 1)", [(1, None, "x")]),
        ("SELECT k FROM u WHERE v IN (SELECT a FROM (VALUES (2), (5)) AS t(a))", [("y",)]),
    ],
)
def test_rows_of_the_text(text: str, expected: list[tuple[Any, ...]]) -> None:
    hr.register("u", pl.DataFrame({"k": ["x", "y"], "v": [1, 2]}))
    assert hr.sql(text).collect().rows() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM (VALUES (1, 'a'), (2)) AS t(a, b)", "this row has 1 values, the first has 2"),
        ("SELECT * FROM (VALUES (1), ('x')) AS t(a)", "cannot be combined"),
        ("SELECT * FROM (VALUES (k)) AS t(a)", "unknown column 'k'"),
        ("SELECT * FROM (VALUES (1, 2)) AS t(a)", "1 names for 2 columns"),
        (SINK + "INSERT INTO s VALUES (1)", "gives 1 columns"),
    ],
)
def test_rows_that_do_not_fit(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        hr.sql(text)
