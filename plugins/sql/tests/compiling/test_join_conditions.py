"""Conditions of joins in which a column stands in several equalities, for every kind of join."""

# ruff: noqa: S608  # texts are put together from constants

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest

LEFT = {"a": ["p", "q", "r", None, "s", "p"], "b": ["p", "q", "z", "p", None, "q"]}
RIGHT = {"x": ["p", "q", "r", None, "t", "p"], "y": ["p", "z", "r", None, "s", "q"]}
#: Conditions with their equalities, as places in the row (a, b, x, y).
CONDITIONS = {
    "a = x AND a = y": [(0, 2), (0, 3)],
    "a = x AND b = x": [(0, 2), (1, 2)],
    "a = x AND a = x": [(0, 2)],
    "a = x AND x = a AND b = y AND a = y": [(0, 2), (1, 3), (0, 3)],
    "a = x AND b = y AND a = y AND b = x": [(0, 2), (1, 3), (0, 3), (1, 2)],
}
Row = tuple[Any, ...]


def expected(how: str, equal: list[tuple[int, int]]) -> list[Row]:
    """The join by a plain loop."""
    left, right = (list(zip(*each.values(), strict=True)) for each in (LEFT, RIGHT))
    pairs = [(i, j, (*one, *other)) for (i, one), (j, other) in itertools.product(enumerate(left), enumerate(right))]
    found = [pair for pair in pairs if all(pair[2][m] is not None and pair[2][m] == pair[2][n] for m, n in equal)]
    rows = [row for _, _, row in found]
    if how in ("LEFT", "FULL"):
        rows += [(*one, None, None) for i, one in enumerate(left) if i not in {i for i, _, _ in found}]
    if how in ("RIGHT", "FULL"):
        rows += [(None, None, *other) for j, other in enumerate(right) if j not in {j for _, j, _ in found}]
    return sorted(rows, key=repr)


def rows(text: str) -> list[Row]:
    return sorted(hr.sql(text).collect().rows(), key=repr)


@pytest.fixture
def tables() -> None:
    hr.register("l", pl.DataFrame(LEFT))
    hr.register("r", pl.DataFrame(RIGHT))


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("how", ["INNER", "LEFT", "RIGHT", "FULL"])
def test_a_column_in_several_equalities(how: str, condition: str) -> None:
    found = rows(f"SELECT a, b, x, y FROM l {how} JOIN r ON {condition}")
    assert found == expected(how, CONDITIONS[condition])


@pytest.mark.usefixtures("tables")
def test_the_same_in_where_and_in_comma_joins() -> None:
    assert rows("SELECT a, b, x, y FROM l, r WHERE a = x AND a = y") == expected("INNER", [(0, 2), (0, 3)])
    text = "SELECT a, b, x, y FROM l JOIN r ON a = x WHERE b = x AND a = y"
    assert rows(text) == expected("INNER", [(0, 2), (1, 2), (0, 3)])


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("condition", "keeps"),
    [
        ("EXISTS (SELECT 1 FROM r WHERE x = a AND y = a)", lambda found: found),
        ("NOT EXISTS (SELECT 1 FROM r WHERE x = a AND y = a)", operator.not_),
        ("(a, a) IN (SELECT x, y FROM r)", lambda found: found),
        ("a IN (SELECT x FROM r WHERE y = a)", lambda found: found),
    ],
)
def test_semi_and_anti_joins(condition: str, keeps: Callable[[bool], bool]) -> None:
    pairs = list(zip(*RIGHT.values(), strict=True))
    wanted = [(a, b) for a, b in zip(*LEFT.values(), strict=True) if keeps(a is not None and (a, a) in pairs)]
    assert rows(f"SELECT a, b FROM l WHERE {condition}") == sorted(wanted, key=repr)


def test_joins_of_windows_within_a_time_and_of_versions(tmp_path: Path) -> None:
    times = [f"2024-01-01 00:00:{second:02d}" for second in (0, 2, 4, 40)]
    for name in ("e", "f"):
        values = {"k": ["p", "q", "p", "z"], "m": ["p", "z", "p", "z"], "ts": times}
        pl.DataFrame(values).write_ndjson(tmp_path / f"{name}.ndjson")
        hr.sql(
            f"CREATE TABLE {name} (k STRING, m STRING, ts TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED, WATERMARK FOR ts AS ts) "
            f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path / name}.ndjson', 'format' = 'json')"
        )
    on = "e.k = f.k AND e.k = f.m AND e.m = f.m"
    bound = "f.ts BETWEEN e.ts - INTERVAL '3' SECOND AND e.ts"
    pairs = [("p", 0, 0), ("p", 4, 4), ("z", 40, 40)]
    moments = [(key, times[[0, 2, 4, 40].index(i)][-2:], times[[0, 2, 4, 40].index(j)][-2:]) for key, i, j in pairs]
    select = "SELECT e.k, DATE_FORMAT(e.ts, 'ss'), DATE_FORMAT(f.ts, 'ss') FROM"
    assert rows(f"{select} e JOIN f ON {on} AND {bound}") == moments
    assert rows(f"{select} e JOIN f FOR SYSTEM_TIME AS OF e.ts ON {on}") == moments
    window = "(SELECT * FROM TABLE(TUMBLE(TABLE {0}, DESCRIPTOR(ts), INTERVAL '10' SECOND))) AS {0}"
    same = "e.window_start = f.window_start AND e.window_end = f.window_end AND e.window_start = f.window_start"
    found = rows(f"{select} {window.format('e')} JOIN {window.format('f')} ON {on} AND {same}")
    assert found == sorted([*moments, ("p", "00", "04"), ("p", "04", "00")])
