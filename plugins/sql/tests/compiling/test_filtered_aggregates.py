"""FILTER: the argument of an aggregate is not evaluated for the rows that it leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace_sql import SqlSession

ROWS = pl.DataFrame({"k": ["a", "a", "b"], "v": [6, 8, 9], "w": [0, 4, 3], "s": ["x", "1", "2"]})


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT COUNT(*), SUM(v / w) FILTER (WHERE w > 0) FROM v", [(3, 5)]),
        ("SELECT COUNT(*), SUM(v / w) FILTER (WHERE w > 0), SUM(v / w) FILTER (WHERE w > 3) FROM v", [(3, 5, 2)]),
        ("SELECT COUNT(*), COUNT(DISTINCT CAST(s AS INT)) FILTER (WHERE s <> 'x') FROM v", [(3, 2)]),
        ("SELECT k, MAX(v / w) FILTER (WHERE w <> 0), COUNT(*) FROM v GROUP BY k", [("a", 2, 2), ("b", 3, 1)]),
        # Without FILTER the row fails as a whole.
        ("SELECT COUNT(*), SUM(v / w) FROM v", [(2, 5)]),
        ("SELECT COUNT(*), SUM(v / w), SUM(v / w) FILTER (WHERE w > 0) FROM v", [(2, 5, 5)]),
    ],
)
def test_rows_that_are_left_out_do_not_fail(
    query: str, wanted: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for dead letters
    session = SqlSession()
    hr.register("v", ROWS, session=session)
    assert sorted(hr.sql(query, session=session).collect().rows()) == wanted
