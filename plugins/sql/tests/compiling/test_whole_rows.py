"""Subqueries that aggregate without GROUP BY: one row, also where there are none. Rows as DuckDB gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError

Rows = Callable[[str], list[tuple[Any, ...]]]
pytestmark = pytest.mark.usefixtures("rows_of_two_frames")


#: Of each an expression, and its value for x (two rows of b), and for y and NULL (none).
VALUES = [
    ("COUNT(*) + 1", 3, 1),
    ("COUNT(*) * 2 - COUNT(n)", 2, 0),
    ("COALESCE(SUM(v), 0)", 7, 0),
    ("SUM(v) + 1", 8, None),
    ("COALESCE(SUM(v) FILTER (WHERE v > 1), -1)", 6, -1),
    ("CASE WHEN COUNT(*) = 0 THEN 'none' ELSE MAX(n) END", "C", "none"),
    ("COUNT(DISTINCT n) FILTER (WHERE v > 1) + 1", 2, 1),
    ("APPROX_COUNT_DISTINCT(n)", 2, 0),
    ("COUNT(*) IN (SELECT v + 1 FROM b)", True, False),
    ("COUNT(*) + (SELECT COUNT(*) * 10 FROM b WHERE k = 'q')", 2, 0),
    ("(COUNT(*) + 1) * (SELECT COUNT(*) + 1 FROM a)", 12, 4),
    ("SUM(CASE WHEN b.v IN (SELECT v FROM a) THEN 1 ELSE 0 END) + COUNT(*)", 3, None),
]


@pytest.mark.parametrize(("text", "there", "without"), VALUES)
def test_an_expression_over_aggregates_of_no_rows(
    text: str, there: Any, without: Any, rows_of_two_frames: Rows
) -> None:
    queries = [
        ("SELECT k, (SELECT * FROM b WHERE b.k = a.k) FROM a", [("x", there), ("y", without), (None, without)]),
        ("SELECT k, (SELECT * FROM b WHERE v > 100) FROM a", [("x", without), ("y", without), (None, without)]),
        ("SELECT k, (SELECT * FROM b WHERE k = 'x') FROM a", [("x", there), ("y", there), (None, there)]),
    ]
    for around, expected in queries:
        assert rows_of_two_frames(around.replace("*", text, 1)) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT (SELECT COUNT(*) + 1 FROM b WHERE b.k = a.k) * 2 FROM a", [(2,), (2,), (6,)]),
        ("SELECT (SELECT COUNT(*) + a.v FROM b WHERE b.k = a.k) FROM a", [(2,), (3,), (3,)]),
        ("SELECT SUM((SELECT COUNT(*) + 1 FROM b WHERE b.k = a.k)) FROM a", [(5,)]),
        ("SELECT k, COUNT(*), (SELECT COUNT(*) + 1 FROM b WHERE k = 'q') FROM b GROUP BY k", [("x", 2, 1), ("z", 1, 1)]),
        ("SELECT k FROM b GROUP BY k HAVING COUNT(*) = (SELECT COUNT(*) + 1 FROM b WHERE k = 'q')", [("z",)]),
        ("SELECT k FROM b GROUP BY k HAVING COUNT(*) IN (SELECT COUNT(*) + 1 FROM b WHERE k = 'q')", [("z",)]),
        ("SELECT v FROM a WHERE v = (SELECT COUNT(*) + 1 FROM b WHERE b.k = a.k)", []),
        # HAVING is asked of the row that is always there.
        ("SELECT (SELECT COUNT(*) + 1 FROM b WHERE b.k = a.k HAVING COUNT(*) < 2) FROM a", [(1,), (1,), (None,)]),
        ("SELECT (SELECT 1 FROM b WHERE v > 100 HAVING COUNT(*) = 0) FROM a", [(1,)] * 3),
        # The bounds of one row.
        ("SELECT (SELECT COUNT(*) + 1 FROM b WHERE b.k = a.k ORDER BY 1 LIMIT 1) FROM a", [(1,), (1,), (3,)]),
        ("SELECT (SELECT DISTINCT COUNT(*) + 1 FROM b WHERE b.k = a.k) FROM a", [(1,), (1,), (3,)]),
        ("SELECT (SELECT COUNT(*) + 1 FROM b LIMIT 0) FROM a", [(None,)] * 3),
        # Predicates on the one row.
        ("SELECT v FROM a WHERE v - 1 IN (SELECT COUNT(*) FROM b WHERE k = 'q')", [(1,)]),
        ("SELECT v FROM a WHERE v IN (SELECT COUNT(*) + 1 FROM b WHERE b.k = a.k)", []),
        ("SELECT v FROM a WHERE v NOT IN (SELECT COUNT(*) + 2 FROM b WHERE b.k = a.k)", [(1,), (3,)]),
        ("SELECT v FROM a WHERE v > ALL (SELECT COUNT(*) + 1 FROM b WHERE b.k = a.k)", [(2,), (3,)]),
        ("SELECT v, v < ANY (SELECT COUNT(*) + 2 FROM b WHERE k = 'q') FROM a", [(1, True), (2, False), (3, False)]),
        ("SELECT v FROM a WHERE EXISTS (SELECT COUNT(*) FROM b WHERE b.k = a.k)", [(1,), (2,), (3,)]),
        ("SELECT v FROM a WHERE NOT EXISTS (SELECT MAX(v) FROM b WHERE b.k = a.k)", []),
        ("SELECT v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k HAVING COUNT(*) = 0)", [(2,), (3,)]),
        ("SELECT v FROM a WHERE v > ALL (SELECT COUNT(*) FROM b WHERE b.k = a.k HAVING COUNT(*) > 0)", [(2,), (3,)]),
        ("SELECT v FROM a WHERE (v, 0) IN (SELECT COUNT(*) + 1, COUNT(n) FROM b WHERE k = 'q')", [(1,)]),
    ],
)  # fmt: skip
def test_the_one_row_stands_wherever_a_subquery_can(
    text: str, expected: list[tuple[Any, ...]], rows_of_two_frames: Rows
) -> None:
    assert rows_of_two_frames(text) == sorted(expected, key=repr)


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("correlated", [False, True])
def test_the_value_follows_rows_that_come_and_go(size: int, correlated: bool, rows_of_two_frames: Rows) -> None:
    # The sum of x is 1, then 3, then 9: one row of the subquery for a time, none before and after.
    hr.register("o", pl.DataFrame({"g": ["x"]}))
    hr.register("t", pl.DataFrame({"g": ["x", "x", "x", "y"], "v": [1, 2, 6, 9]}))
    text = (
        "SELECT g, (SELECT COUNT(*) * 10 + COALESCE(SUM(s.v), -1) FROM (SELECT g, SUM(v) AS v FROM t GROUP BY g) AS s "
        "WHERE s.v = 3) AS c FROM o"
    )
    if correlated:
        text = text.replace("s.v = 3", "s.v = 3 AND s.g = o.g")
    found = hr.sql(text).collect(changes=True, max_batch_records=size)
    values = set(found["c"])
    assert values <= {-1, 13}
    assert (13 in values) == (size <= 2)
    assert hr.sql(text).collect(max_batch_records=size).rows() == [("x", -1)]


@pytest.mark.parametrize(
    ("text", "message", "underlined"),
    [
        ("SELECT (SELECT b.k || MAX(n) FROM b WHERE b.k = a.k) FROM a", "neither grouped by nor in", "b.k || MAX"),
        ("SELECT (SELECT COUNT(*) + q FROM b) FROM a", "unknown column 'q'", "q FROM"),
        ("SELECT (SELECT COUNT(*) + SUM(v) OVER () FROM b) FROM a", "OVER cannot be used with", "SUM(v) OVER"),
        ("SELECT (SELECT COUNT(*) + 1 FROM b LIMIT 1 OFFSET 1) FROM a", "LIMIT needs ORDER BY", ""),
    ],
)
def test_what_has_no_value_is_refused(text: str, message: str, underlined: str) -> None:
    with pytest.raises(ExpressionError, match=message) as caught:
        hr.sql(text)
    assert caught.value.text is not None
    assert text[caught.value.position or 0 :].startswith(underlined)


@pytest.mark.parametrize("condition", ["v > 100", "1 = 0"])
def test_an_aggregate_in_from_has_no_row_before_the_first(condition: str, rows_of_two_frames: Rows) -> None:
    # PyFlink agrees, but where its planner sees that there can be no row: of WHERE 1 = 0 it gives one.
    text = "SELECT MIN(v) AS m, COUNT(*) AS n FROM a WHERE condition".replace("condition", condition)
    assert rows_of_two_frames(text) == []
    assert rows_of_two_frames("SELECT COUNT(m), SUM(n) FROM (q) AS q".replace("q", text, 1)) == []
    assert rows_of_two_frames("SELECT (SELECT n FROM (q) AS q) FROM a".replace("q", text, 1)) == [(None,)] * 3
