"""JSON_ARRAYAGG, JSON_OBJECTAGG, PERCENTILE and GROUP_ID, also over rows that change."""

from __future__ import annotations

from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError
from headrace_sql import SqlSession

ROWS = pl.DataFrame({"id": [1, 2, 3, 4], "k": ["a", "b", "a", "a"], "x": [1, 2, None, 4]})


def rows_of(text: str, **options: Any) -> list[tuple[Any, ...]]:
    session = SqlSession()
    hr.register("v", ROWS, session=session)
    return sorted(hr.sql(text, session=session).collect(**options).rows(), key=repr)


@pytest.mark.parametrize(
    ("select", "wanted"),
    [
        ("k, JSON_ARRAYAGG(x) AS a FROM v GROUP BY k", [("a", "[1,4]"), ("b", "[2]")]),
        ("k, JSON_ARRAYAGG(x NULL ON NULL) AS a FROM v GROUP BY k", [("a", "[1,null,4]"), ("b", "[2]")]),
        ("JSON_ARRAYAGG(JSON_OBJECT('x' VALUE x)) AS a FROM v WHERE k = 'b'", [('[{"x":2}]',)]),
        ("k, JSON_ARRAYAGG(x) FILTER (WHERE x > 1) AS a FROM v GROUP BY k", [("a", "[4]"), ("b", "[2]")]),
        (
            "k, JSON_OBJECTAGG(KEY CAST(id AS STRING) VALUE x) AS a FROM v GROUP BY k",
            [("a", '{"1":1,"3":null,"4":4}'), ("b", '{"2":2}')],
        ),
        (
            "k, JSON_OBJECTAGG(id VALUE x ABSENT ON NULL) AS a FROM v GROUP BY k",
            [("a", '{"1":1,"4":4}'), ("b", '{"2":2}')],
        ),
        ("JSON_OBJECTAGG(k VALUE x) AS a FROM v WHERE x IS NOT NULL", [('{"a":4,"b":2}',)]),
        # Keys stand in order; of equal ones the last counts, where NULL is left out the last that is not NULL. As in Flink 2.3.
        (
            "JSON_OBJECT('b' VALUE 1, 'a' VALUE x, 'b' VALUE 2) AS j FROM v WHERE id > 2",
            [('{"a":4,"b":2}',), ('{"a":null,"b":2}',)],
        ),
        ("JSON_OBJECT('b' VALUE 1, 'b' VALUE x ABSENT ON NULL) AS j FROM v WHERE id > 2", [('{"b":4}',), ('{"b":1}',)]),
        (
            "JSON_OBJECT('b' VALUE x, k VALUE 7, k || '\"' VALUE id > 1) AS j FROM v WHERE id < 3",
            [('{"a":7,"a\\"":false,"b":1}',), ('{"b":7,"b\\"":true}',)],
        ),
        ("JSON_OBJECT(k VALUE x, 'a' VALUE id ABSENT ON NULL) AS j FROM v WHERE id > 2", [('{"a":3}',), ('{"a":4}',)]),
        ("JSON_OBJECT(CAST(x > 1 AS STRING) VALUE TRUE) AS j FROM v WHERE id = 2", [('{"TRUE":true}',)]),
        ("k, PERCENTILE(x, 0.5) AS a FROM v GROUP BY k", [("a", 2.5), ("b", 2.0)]),
        ("PERCENTILE(x, ARRAY[0, 0.25, 1]) AS a FROM v", [([1.0, 1.5, 4.0],)]),
        ("PERCENTILE(x, 0.5) AS a FROM v WHERE x IS NULL", [(None,)]),
        ("k, GROUP_ID() AS g FROM v GROUP BY k", [("a", 0), ("b", 0)]),
        ("k, GROUP_ID() AS g FROM v GROUP BY ROLLUP (k)", [("a", 0), ("b", 0), (None, 1)]),
        # Of rows that change: the counts of each k before the last ones are taken back.
        ("JSON_ARRAYAGG(n) AS a FROM (SELECT k, COUNT(*) AS n FROM v GROUP BY k) WHERE n > 2", [("[3]",)]),
        ("PERCENTILE(n, 1) AS a FROM (SELECT k, COUNT(*) AS n FROM v GROUP BY k)", [(3.0,)]),
    ],
)
def test_results(select: str, wanted: list[tuple[Any, ...]]) -> None:
    assert rows_of(f"SELECT {select}") == sorted(wanted, key=repr)  # our own texts
    assert rows_of(f"SELECT {select}", max_batch_records=1) == sorted(wanted, key=repr)


def test_a_key_of_an_object_that_is_null_is_a_dead_letter(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = SqlSession()
    hr.register("t", pl.DataFrame({"k": ["a", None]}), session=session)
    report = hr.sql("SELECT JSON_OBJECTAGG(k VALUE 1) AS a FROM t", session=session).run("light", show_progress=False)
    assert [each.reason for each in report.dead_letter_reasons] == ["a key of a JSON object must not be NULL"]


@pytest.mark.parametrize(
    ("select", "problem"),
    [
        ("PERCENTILE(x, 2) FROM v", "a constant percentage from 0 to 1"),
        ("PERCENTILE(k, 0.5) FROM v", "needs numbers"),
        ("PERCENTILE(x, 'half') FROM v", "a constant percentage from 0 to 1"),
        ("JSON_ARRAYAGG(x, k) FROM v", "takes one value"),
        ("x FROM v WHERE JSON_ARRAYAGG(x) = ''", "is an aggregate function"),
        ("JSON_OBJECT(x > 1 VALUE x) FROM v", "a key must be text, not BOOLEAN"),
        ("JSON_OBJECT(1 VALUE x) FROM v", "a key must be text, not"),
        ("JSON_OBJECTAGG(x > 1 VALUE x) FROM v", "a key must be text, not BOOLEAN"),
        ("PARSE_JSON(k) FROM v", "no type VARIANT"),
    ],
)
def test_what_is_refused(select: str, problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        rows_of(f"SELECT {select}")  # our own texts
