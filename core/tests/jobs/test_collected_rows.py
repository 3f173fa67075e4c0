"""Changes as the rows that are left of them."""

from __future__ import annotations

import random
from collections import Counter

import polars as pl
import pytest
from headrace.jobs.collecting import MARK, materialized

SCHEMA = {"a": pl.Int64(), "b": pl.String(), "c": pl.List(pl.Int64()), "d": pl.Float64(), MARK: pl.String()}


@pytest.mark.parametrize("seed", range(40))
def test_rows_that_are_left_of_changes(seed: int) -> None:
    choose = random.Random(seed)
    changes: list[tuple[object, ...]] = []
    left: list[tuple[object, ...]] = []
    for _ in range(choose.randrange(60)):
        if left and choose.random() < 0.4:
            changes.append((*left.pop(choose.randrange(len(left))), choose.choice(["-U", "-D"])))
            continue
        row = (
            choose.choice([1, 2, None]),
            choose.choice(["a", None]),
            choose.choice([[1], [2, 3], None]),
            choose.choice([0.5, None]),
        )
        left.append(row)
        changes.append((*row, choose.choice(["+I", "+U"])))
    found = materialized(pl.DataFrame(changes, schema=SCHEMA, orient="row"))
    assert Counter(map(repr, found.rows())) == Counter(map(repr, left))


def test_rows_stand_where_they_came_last() -> None:
    changes = [(1, "+I"), (2, "+I"), (1, "-U"), (3, "+U"), (2, "+I"), (1, "+U"), (2, "-D")]
    made = materialized(pl.DataFrame(changes, schema={"a": pl.Int64, MARK: pl.String}, orient="row"))
    assert made["a"].to_list() == [3, 1, 2], "a change of a row is its last coming, too"
