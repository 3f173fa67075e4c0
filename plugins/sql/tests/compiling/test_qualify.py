"""QUALIFY: conditions on what OVER gives."""

from __future__ import annotations

from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError
from headrace_sql import SqlSession

ROWS = pl.DataFrame({"id": [1, 2, 3, 4], "k": ["a", "b", "a", None], "x": [1, 2, 3, 4]})


def rows_of(text: str, **options: Any) -> list[tuple[Any, ...]]:
    session = SqlSession()
    hr.register("v", ROWS, session=session)
    return sorted(hr.sql(text, session=session).collect(**options).rows(), key=repr)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "SELECT k, x FROM v QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) = 1",
            [("a", 3), ("b", 2), (None, 4)],
        ),
        (
            "SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) AS n FROM v QUALIFY n = 1",
            [(2, "b", 2, 1), (3, "a", 3, 1), (4, None, 4, 1)],
        ),
        (
            "SELECT * FROM v QUALIFY SUM(x) OVER (PARTITION BY k ORDER BY id) > 3",
            [(3, "a", 3), (4, None, 4)],
        ),
        ("SELECT k AS g FROM v QUALIFY SUM(x) OVER (PARTITION BY k ORDER BY id) > 1 AND x < 3", [("b",)]),
        ("SELECT x * 2 AS y FROM v QUALIFY SUM(y) OVER (PARTITION BY k ORDER BY id) >= 8", [(6,), (8,)]),
        ("SELECT DISTINCT k FROM v QUALIFY COUNT(*) OVER (PARTITION BY k) = 2", [("a",)]),
        ("SELECT x FROM v QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) = 1 ORDER BY x DESC LIMIT 1", [(4,)]),
        # ORDER BY may name what SELECT does not give, and what it hides.
        (
            "SELECT k FROM v QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) = 1 ORDER BY x DESC LIMIT 1",
            [(None,)],
        ),
        ("SELECT -x AS x FROM v QUALIFY SUM(v.x) OVER () > 0 ORDER BY x LIMIT 1", [(-4,)]),
        ("SELECT -x AS x FROM v QUALIFY SUM(v.x) OVER () > 0 ORDER BY v.x LIMIT 1", [(-1,)]),
        ("SELECT x * 2 AS y FROM v QUALIFY SUM(x) OVER () > 0 ORDER BY MOD(y, 4), id DESC LIMIT 2", [(4,), (8,)]),
        ("SELECT k FROM v GROUP BY k QUALIFY SUM(MAX(x)) OVER () > 0 ORDER BY MAX(x) DESC LIMIT 1", [(None,)]),
        ("SELECT x FROM v QUALIFY SUM(x) OVER () > 0 ORDER BY RANK() OVER (ORDER BY x DESC) LIMIT 1", [(4,)]),
        (
            "SELECT k, SUM(x) AS s FROM v GROUP BY k QUALIFY ROW_NUMBER() OVER (ORDER BY SUM(x) DESC, k DESC) = 1",
            [("a", 4)],
        ),
        ("SELECT k FROM v GROUP BY k QUALIFY ROW_NUMBER() OVER (ORDER BY SUM(x) DESC, k DESC) = 1", [("a",)]),
        ("SELECT k FROM v GROUP BY k QUALIFY COUNT(*) > 1 AND SUM(MAX(x)) OVER () > 8", [("a",)]),
        (
            "SELECT k, COUNT(*) AS n FROM v GROUP BY k QUALIFY SUM(x) > 2 AND RANK() OVER (ORDER BY n DESC) = 2",
            [(None, 1)],
        ),
        # What an aggregate of the groups is given is a column of the input, whatever an alias says.
        (
            "SELECT k, SUM(x) AS x FROM v GROUP BY k QUALIFY ROW_NUMBER() OVER (ORDER BY SUM(x) DESC, k DESC) = 1",
            [("a", 4)],
        ),
        ("SELECT k, -MIN(id) AS x FROM v GROUP BY k QUALIFY RANK() OVER (ORDER BY SUM(x), k DESC) = 1", [("b", -2)]),
        ("SELECT k, -SUM(x) AS s FROM v GROUP BY k QUALIFY RANK() OVER (ORDER BY s, k DESC) = 1", [("a", -4)]),
        # The function of OVER may be written as an aggregate of the groups is.
        ("SELECT k, COUNT(*) AS n, COUNT(*) OVER () AS g FROM v GROUP BY k", [("a", 2, 3), ("b", 1, 3), (None, 1, 3)]),
        ("SELECT k, COUNT(*) OVER (PARTITION BY COUNT(*)) AS g FROM v GROUP BY k", [("a", 1), ("b", 2), (None, 2)]),
        (
            "SELECT k, SUM(MAX(x)) FILTER (WHERE COUNT(*) > 1 OR MIN(id) = 4) OVER () AS m FROM v GROUP BY k",
            [("a", 7), ("b", 7), (None, 7)],
        ),
    ],
)
def test_rows_that_are_kept(text: str, wanted: list[tuple[Any, ...]]) -> None:
    assert rows_of(text) == sorted(wanted, key=repr)
    assert rows_of(text, max_batch_records=1) == sorted(wanted, key=repr)


def test_a_condition_without_over_is_refused() -> None:
    with pytest.raises(ExpressionError, match="QUALIFY needs a condition on an OVER expression"):
        rows_of("SELECT k FROM v QUALIFY x = 1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT x, k, x AS k FROM v QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) = 1", "'k' is ambiguous"),
        ("SELECT id AS a, x AS a FROM v QUALIFY COUNT(*) OVER () > 0 ORDER BY a LIMIT 1", "'a' is ambiguous"),
        ("SELECT DISTINCT k FROM v QUALIFY COUNT(*) OVER () > 0 ORDER BY x LIMIT 1", "ORDER BY of SELECT DISTINCT"),
    ],
)
def test_names_that_mean_several_columns_are_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        rows_of(text)
