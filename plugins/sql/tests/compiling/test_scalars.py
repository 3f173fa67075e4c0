"""Scalar subqueries, JOIN … USING and ORDER BY … LIMIT over two small frames, with the rows worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError

Rows = Callable[[str], list[tuple[Any, ...]]]
pytestmark = pytest.mark.usefixtures("rows_of_two_frames")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT k, v - (SELECT MIN(v) FROM b) AS d FROM a", [("x", 0), ("y", 1), (None, 2)]),
        ("SELECT k, v FROM a WHERE v > (SELECT AVG(w) / 10 FROM a)", [(None, 3)]),
        ("SELECT k, v FROM a WHERE v < (SELECT MAX(v) FROM b) AND k IN (SELECT k FROM b)", [("x", 1)]),
        ("SELECT k, (SELECT COUNT(*) FROM b WHERE b.k = a.k) AS n FROM a", [("x", 2), ("y", 0), (None, 0)]),
        (
            "SELECT k, (SELECT SUM(v) FROM b WHERE b.k = a.k AND n <> 'A') FROM a",
            [("x", 6), ("y", None), (None, None)],
        ),
        ("SELECT k, v FROM a x WHERE v = (SELECT MAX(v) FROM a y WHERE x.k = y.k)", [("x", 1), ("y", 2)]),
        ("SELECT k, COUNT(*), (SELECT COUNT(*) FROM a) FROM b GROUP BY k", [("x", 2, 3), ("z", 1, 3)]),
        ("SELECT k, SUM(v) FROM b GROUP BY k HAVING SUM(v) > (SELECT MIN(v) + 4 FROM a)", [("x", 7)]),
        ("SELECT (SELECT n FROM b ORDER BY v DESC LIMIT 1), k FROM a WHERE v = 1", [("C", "x")]),
        ("SELECT (SELECT MAX(v) FROM b WHERE v > 100) FROM a", [(None,)] * 3),
        ("SELECT (SELECT COUNT(*) FROM b WHERE v > 100) FROM a", [(0,)] * 3),
        # Of the same table inside and outside, without aliases: the value compared is the one outside.
        ("SELECT v, v NOT IN (SELECT v FROM a WHERE v > 1) FROM a", [(1, True), (2, False), (3, False)]),
        ("SELECT v FROM a WHERE v = ANY (SELECT v FROM a WHERE v > 1) OR k = 'q'", [(2,), (3,)]),
        ("SELECT v FROM a WHERE v IN (SELECT a.v FROM a JOIN b ON a.k = b.k WHERE a.v < 3) OR v > 2", [(1,), (3,)]),
        ("SELECT (SELECT COUNT(DISTINCT n) FILTER (WHERE v > 1) FROM b WHERE v > 100) FROM a", [(0,)] * 3),
        ("SELECT k FROM a WHERE v - 1 = (SELECT COUNT(*) FROM (SELECT k FROM b WHERE v > 100) AS c)", [("x",)]),
        ("SELECT (SELECT COUNT(*) FROM b WHERE v > 100 GROUP BY k) FROM a", [(None,)] * 3),
        ("SELECT (SELECT COUNT(*) FROM b HAVING COUNT(*) > 9) FROM a", [(None,)] * 3),
        (
            "SELECT CASE WHEN v > (SELECT MIN(v) FROM a) THEN 'more' ELSE k END FROM a",
            [("more",), ("more",), ("x",)],
        ),
    ],
)
def test_a_scalar_subquery_is_a_value(text: str, expected: list[tuple[Any, ...]], rows_of_two_frames: Rows) -> None:
    assert rows_of_two_frames(text) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    ("text", "message", "underlined"),
    [
        ("SELECT k, (SELECT v, n FROM b) FROM a", "must return one column, not 2", "v, n"),
        ("SELECT k FROM a WHERE (SELECT COUNT(*) FROM b WHERE b.v > a.v) = 2", "only in equalities", "b.v > a.v"),
        ("SELECT a.k FROM a JOIN b ON a.v = (SELECT MAX(v) FROM b)", "a subquery is not allowed here", "MAX(v)"),
    ],
)
def test_other_subqueries_are_refused(text: str, message: str, underlined: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        hr.sql(text)
    assert message in caught.value.message
    assert caught.value.text is not None
    assert caught.value.position is not None
    assert text[caught.value.position :].startswith(underlined)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM a JOIN b USING (k)", [("x", 1, 10, 1, "A"), ("x", 1, 10, 6, "C")]),
        ("SELECT * FROM a NATURAL JOIN b", [("x", 1, 10, "A")]),
        ("SELECT a.w FROM a NATURAL JOIN b", [(10,)]),
        (
            "SELECT k, n FROM a FULL JOIN b USING (k, v)",
            [("x", "A"), ("x", "C"), ("y", None), ("z", "B"), (None, None)],
        ),
        ("SELECT k, a.k, b.k FROM a RIGHT JOIN b USING (k)", [("x", "x", "x"), ("x", "x", "x"), ("z", None, "z")]),
        ("SELECT k, COUNT(*) FROM a JOIN b USING (k) WHERE k <> 'q' GROUP BY k", [("x", 2)]),
        (
            "SELECT k, p.n, q.n FROM a JOIN b p USING (k) JOIN b q USING (k) WHERE p.v = 1",
            [("x", "A", "A"), ("x", "A", "C")],
        ),
    ],
)
def test_using_makes_one_column_of_two(text: str, expected: list[tuple[Any, ...]], rows_of_two_frames: Rows) -> None:
    assert rows_of_two_frames(text) == sorted(expected, key=repr)


def test_using_names_columns_of_both_sides() -> None:
    with pytest.raises(ExpressionError, match="unknown column 'w'"):
        hr.sql("SELECT k FROM a JOIN b USING (w)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT k FROM a ORDER BY w DESC LIMIT 2", [("y",), (None,)]),
        ("SELECT k, v AS z FROM a ORDER BY 2 LIMIT 2", [("x", 1), ("y", 2)]),
        ("SELECT k, v FROM a ORDER BY k LIMIT 1", [(None, 3)]),
        ("SELECT k, v FROM a ORDER BY k NULLS LAST LIMIT 1", [("x", 1)]),
        ("SELECT k, v FROM a ORDER BY k DESC NULLS FIRST FETCH FIRST 1 ROWS ONLY", [(None, 3)]),
        ("SELECT * FROM a ORDER BY v + w DESC LIMIT 1", [(None, 3, 30)]),
        ("SELECT k, SUM(v) AS s FROM b GROUP BY k ORDER BY s DESC LIMIT 1", [("x", 7)]),
        (
            "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY k DESC NULLS FIRST) AS rn FROM a) WHERE rn <= 1",
            [(None, 3)],
        ),
    ],
)
def test_order_by_with_a_limit(text: str, expected: list[tuple[Any, ...]], rows_of_two_frames: Rows) -> None:
    assert rows_of_two_frames(text) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT k FROM a ORDER BY 4 LIMIT 1", "there is no such column"),
        ("SELECT k FROM a ORDER BY v LIMIT ALL", "a whole number"),
        ("SELECT k FROM a ORDER BY v LIMIT 2 OFFSET -1", "a whole number"),
    ],
)
def test_other_limits_are_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        hr.sql(text)
