"""Conditions of WHERE over several joins, some of them outer: rows worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest

_RANKED = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v) AS place FROM a)"


@pytest.fixture(autouse=True)
def frames() -> None:
    hr.register("a", pl.DataFrame({"k": ["x", "y", "z"], "v": [1, 2, 3], "g": [0, 0, 0]}))
    hr.register("b", pl.DataFrame({"k": ["x", "y"], "w": [1, 9]}))
    hr.register("c", pl.DataFrame({"k": ["x", "y", "q"], "n": [10, 20, 30]}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A condition on both sides of an inner join holds behind the FULL JOIN, whose rows without a partner it drops.
        ("SELECT a.k, c.n FROM a JOIN b ON a.k = b.k FULL JOIN c ON a.k = c.k WHERE a.v >= b.w", [("x", 10)]),
        ("SELECT a.k, c.n FROM a, b RIGHT JOIN c ON b.k = c.k WHERE a.k = b.k AND a.v >= b.w", [("x", 10)]),
        ("SELECT a.k, c.n FROM a JOIN b ON a.k = b.k LEFT JOIN c ON a.k = c.k WHERE a.v >= b.w", [("x", 10)]),
        # One that is true of rows without a partner keeps them.
        (
            "SELECT a.k, c.n FROM a JOIN b ON a.k = b.k FULL JOIN c ON a.k = c.k WHERE a.v >= b.w OR a.k IS NULL",
            [("x", 10), (None, 30)],
        ),
        (
            "SELECT b.k, c.n FROM a FULL JOIN c ON a.k = c.k JOIN b ON b.k = a.k WHERE a.v <= b.w",
            [("x", 10), ("y", 20)],
        ),
        # The bound of a Top-N comes before the joins, and holds behind them.
        (
            "SELECT a.k, c.n FROM RANKED AS a JOIN b ON a.k = b.k FULL JOIN c ON a.k = c.k WHERE a.place <= 1",
            [("x", 10)],
        ),
        (
            "SELECT a.k, c.n FROM b JOIN RANKED AS a ON a.k = b.k RIGHT JOIN c ON a.k = c.k WHERE a.place <= 2",
            [("x", 10), ("y", 20)],
        ),
        *[
            (
                "SELECT a.k, c.n FROM RANKED AS a JOIN b ON a.k = b.k RIGHT JOIN c ON a.k = c.k"
                " WHERE BOUND AND c.n < 30".replace("BOUND", bound),
                [("x", 10)],
            )
            for bound in ("a.place <= 2 - 1", "(a.place) < 2", "a.place = CAST(1 AS BIGINT)", "2 > a.place")
        ],
        # The rank is a column too, in whichever clause it stands.
        (
            "WITH r AS RANKED SELECT r.place, c.n FROM (SELECT k FROM b) AS x JOIN r ON r.k = x.k RIGHT JOIN c ON r.k = c.k"
            " WHERE r.place <= 2",
            [(1, 10), (2, 20)],
        ),
        (
            "WITH r AS RANKED SELECT r.place FROM (SELECT k FROM b) AS x JOIN r ON r.k = x.k WHERE r.place <= 2",
            [(1,), (2,)],
        ),
        ("SELECT b.k FROM b JOIN RANKED AS a ON a.place = b.w WHERE a.place <= 2", [("x",)]),
        ("SELECT COUNT(*) AS n FROM RANKED AS a WHERE a.place <= 2 GROUP BY a.place HAVING a.place > 1", [(1,)]),
        # What is true of rows without a partner must not be asked before: they would be more.
        (
            "SELECT a.k, c.n FROM RANKED AS a JOIN b ON a.k = b.k RIGHT JOIN c ON a.k = c.k"
            " WHERE a.place <= 2 AND COALESCE(a.place, 0) = 0",
            [],
        ),
    ],
)
def test_where_behind_outer_joins(text: str, expected: list[tuple[Any, ...]]) -> None:
    assert sorted(hr.sql(text.replace("RANKED", _RANKED)).collect().rows(), key=repr) == sorted(expected, key=repr)


def test_joins_in_joins_of_tables_without_time(tmp_path: Path) -> None:
    # Each join gives the side without a watermark a time of its own; these meet when joins are joined.
    (tmp_path / "d.ndjson").write_text(
        '{"k": "x", "ts": "2024-01-01 00:00:00"}\n{"k": "y", "ts": "2024-01-02 00:00:00"}\n'
    )
    made = hr.sql(
        "CREATE TABLE d (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem',"
        " 'path' = '${place}/d.ndjson', 'format' = 'json');"
        "SELECT d.k, a.v, b.w FROM d FULL JOIN a ON d.k = a.k LEFT JOIN b ON b.k = a.k"
        " WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.k = a.k AND c.n > 10)",
        variables={"place": str(tmp_path)},
    ).collect()
    assert sorted(made.rows(), key=str) == [("x", 1, 1), (None, 3, None)]


def test_a_condition_that_is_true_of_no_row_number_is_asked_behind_a_right_join_only(tmp_path: Path) -> None:
    (tmp_path / "d.ndjson").write_text('{"k": "x", "ts": "2024-01-01 00:00:00"}\n')
    made = hr.sql(
        "CREATE TABLE d (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem',"
        " 'path' = '${place}/d.ndjson', 'format' = 'json');"
        "SELECT a.k, c.n FROM b CROSS JOIN (SELECT k, ROW_NUMBER() OVER (ORDER BY ts) AS place FROM d) AS a"
        " RIGHT JOIN c ON c.k = b.k WHERE COALESCE(a.place, 0) = 0",
        variables={"place": str(tmp_path)},
    ).collect()
    assert made.rows() == [(None, 30)]
