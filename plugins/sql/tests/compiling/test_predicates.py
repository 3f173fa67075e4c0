"""Subqueries that are compared with ANY and ALL, single values, and derived tables that name the tables before them."""

from __future__ import annotations

from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError, JobFailedError


@pytest.fixture(autouse=True)
def tables() -> None:
    hr.register("a", pl.DataFrame({"k": ["x", "y", None], "v": [1, 2, 3]}))
    hr.register("b", pl.DataFrame({"k": ["x", "x", "z"], "v": [1, None, 5]}))
    hr.register("one", pl.DataFrame({"v": [2, 2]}))


def rows(text: str) -> list[tuple[Any, ...]]:
    return sorted(hr.sql(text).collect().rows(), key=repr)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("v = ALL (SELECT v FROM one)", [2]),
        ("v <> ANY (SELECT v FROM one)", [1, 3]),
        ("NOT v <> ANY (SELECT v FROM one)", [2]),
        ("v > ALL (SELECT v FROM b)", []),  # NULL among them
        ("v < ANY (SELECT v FROM b)", [1, 2, 3]),
        ("v >= ALL (SELECT v FROM b WHERE v > 100)", [1, 2, 3]),  # of nothing everything is true
        ("v < ANY (SELECT v FROM b WHERE v > 100)", []),
        ("v > 2 OR v = ALL (SELECT v FROM one)", [2, 3]),
        ("(v > ALL (SELECT v FROM b)) IS UNKNOWN", []),
        ("(v >= ALL (SELECT v FROM b WHERE v IS NULL)) IS UNKNOWN", [1, 2, 3]),
        ("v = 3 OR v IN (SELECT v FROM b)", [1, 3]),
        ("(v IN (SELECT v FROM b)) IS UNKNOWN", [2, 3]),
        ("v = 2 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", [1, 2]),
        ("v = 2 OR EXISTS (SELECT 1 FROM b WHERE (((b.k = a.k)) AND (v BETWEEN 1 AND 5)))", [1, 2]),
        ("v = (SELECT v FROM b WHERE k = 'x' AND v IS NOT NULL)", [1]),
        ("(v IN (SELECT v FROM one)) NOT IN (FALSE, FALSE)", [2]),
        ("(EXISTS (SELECT 1 FROM b WHERE b.k = a.k)) IN (TRUE)", [1]),
        # The value that is compared holds subqueries itself, and theirs may be a constant.
        ("CASE WHEN v IN (SELECT 1 FROM one) THEN 2 ELSE 7 END IN (SELECT v FROM one)", [1]),
        ("CASE WHEN v NOT IN (SELECT v FROM one) THEN 2 ELSE 7 END NOT IN (SELECT v FROM one)", [2]),
        ("CASE WHEN v IN (SELECT v FROM one) THEN v ELSE 1 END IN (SELECT b.v FROM b WHERE b.k = a.k)", [1]),
        ("(SELECT MAX(v) FROM one) IN (SELECT v FROM one WHERE one.v = a.v)", [2]),
        (
            "NOT (CASE WHEN EXISTS (SELECT 1 FROM b WHERE b.k = a.k) THEN 5 ELSE v END < ALL (SELECT v FROM one))",
            [1, 2, 3],
        ),
        ("v = 3 OR v IN (SELECT 1 FROM one)", [1, 3]),
        ("v > ANY (SELECT 2 FROM one)", [3]),
        ("v = 9 OR v > ALL (SELECT 1 FROM one)", [2, 3]),
    ],
)
def test_conditions_on_subqueries(condition: str, expected: list[int]) -> None:
    assert rows(f"SELECT v FROM a WHERE {condition}") == [(each,) for each in expected]  # noqa: S608


def test_several_rows_for_one_value_end_the_job() -> None:
    with pytest.raises(JobFailedError, match="must return one value, but returns several rows"):
        hr.sql("SELECT (SELECT v FROM b WHERE b.k = a.k) FROM a").collect()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT a.v, x.v FROM a, LATERAL (SELECT v FROM b WHERE b.k = a.k) AS x", [(1, 1), (1, None)]),
        ("SELECT v, n FROM a LEFT JOIN LATERAL (SELECT COUNT(*) AS n FROM b WHERE b.k = a.k) ON TRUE", [(1, 2), (2, None), (3, None)]),
        ("SELECT a.v, x.v FROM a, LATERAL (SELECT v FROM b WHERE b.k = a.k ORDER BY v LIMIT 1) AS x", [(1, None)]),
        ("SELECT a.v, x.v FROM a, LATERAL (SELECT v FROM b WHERE b.k = a.k ORDER BY v LIMIT 1 OFFSET 1) AS x", [(1, 1)]),
        ("SELECT y FROM a, LATERAL (SELECT a.v + b.v FROM b WHERE b.v > a.v) AS x(y)", [(6,), (7,), (8,)]),
        ("SELECT a.v, x.v FROM a, LATERAL (SELECT DISTINCT v FROM one) AS x WHERE a.v = 1", [(1, 2)]),
    ],
)  # fmt: skip
def test_a_derived_table_names_the_tables_before_it(text: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(text) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1 FROM a, LATERAL (SELECT COUNT(*) FROM b WHERE b.v > a.v) AS x(n)", "only in equalities"),
        ("SELECT 1 FROM a, LATERAL (SELECT a.v + COUNT(*) FROM b WHERE b.k = a.k) AS x(n)", "can use columns of the outer query only in "
            "WHERE"),
        ("SELECT 1 FROM a, LATERAL (SELECT v FROM b WHERE b.k = a.k LIMIT 1) AS x", "LIMIT needs ORDER BY"),
        ("SELECT 1 FROM a RIGHT JOIN LATERAL (SELECT v FROM b) AS x ON TRUE", "INNER, CROSS or LEFT JOIN"),
        (
            "SELECT 1 FROM a, LATERAL (SELECT n FROM (SELECT COUNT(*) AS n FROM b WHERE b.k = a.k)) AS x",
            "unknown table or column 'a'",
        ),
        ("SELECT (v, k) IN (SELECT v, k FROM b) FROM a", "can be combined with other conditions only by AND"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        hr.sql(text)
    assert message in caught.value.message


def test_counts_of_rows_go_up_and_down() -> None:
    hr.register("left_side", pl.DataFrame({"k": ["a", "a", "a", "b", None]}))
    hr.register("right_side", pl.DataFrame({"k": ["a", "b", "b", None]}))
    assert rows("SELECT k FROM left_side EXCEPT ALL SELECT k FROM right_side") == [("a",), ("a",)]
    assert rows("SELECT k FROM left_side INTERSECT ALL SELECT k FROM right_side") == [("a",), ("b",), (None,)]
    text = "SELECT n, COUNT(*) FROM (SELECT COUNT(*) AS n FROM left_side GROUP BY k EXCEPT ALL SELECT 1 FROM right_side) GROUP BY n"
    assert rows(text) == [(3, 1)]
