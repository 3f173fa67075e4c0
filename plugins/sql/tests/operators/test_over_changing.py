"""OVER over rows that change, compared with a plain model: the table that the changes make is the one that the rows of now give."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from headrace.flow.messages import CHANGE, Batch, ChangeKind, Queue
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError
from headrace.interfaces.functions import AggregateFunction
from headrace.interfaces.operator import Changes
from headrace_sql.operators.over_changing import OverChanging
from headrace_sql.operators.over_functions import OverCall
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

SCHEMA = Schema({"id": pl.Int64(), "k": pl.String(), "v": pl.Int64(), "x": pl.Int64()})


class Longest:
    """The longest run of growing values, which only a function that sees the rows in their order can tell."""

    def create(self) -> list[Any]:
        return [None, 0, 0]

    def add(self, state: list[Any], x: int | None) -> list[Any]:
        last, run, best = state
        run = run + 1 if last is not None and x is not None and x > last else 1
        return [x, run, max(best, run)]

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        raise AssertionError("frames are added to row by row")

    def result(self, state: list[Any]) -> int:
        return int(state[2])


CALLS = {
    "total": OverCall("SUM", "x", "RANGE", None), "near": OverCall("SUM", "x", "ROWS", 2), "n": OverCall("COUNT", None, "ROWS", None),
    "number": OverCall("ROW_NUMBER", None, "RANGE", None), "rank": OverCall("RANK", None, "RANGE", None),
    "dense": OverCall("DENSE_RANK", None, "RANGE", None), "part": OverCall("NTILE", None, "ROWS", None, 3),
    "share": OverCall("PERCENT_RANK", None, "RANGE", None), "below": OverCall("CUME_DIST", None, "RANGE", None),
    "before": OverCall("LAG", "x", "ROWS", None),
    "after": OverCall("LEAD", "x", "ROWS", None, 2, default=-1),
    "longest": OverCall("longest", None, "ROWS", None, user=AggregateFunction("longest", Longest, pl.Int64()), arguments=("x",)),
}  # fmt: skip
NAMES = [*SCHEMA, *CALLS]

Row = tuple[int, str | None, int | None, int | None]


def expected(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Return what SQL says of these rows, of which the later ones came later."""
    made: list[tuple[Any, ...]] = []
    for key in {row[1] for row in rows}:
        own = sorted((row for row in rows if row[1] == key), key=lambda row: (row[2] is not None, row[2] or 0))
        for place, row in enumerate(own):
            peers = [index for index, other in enumerate(own) if other[2] == row[2]]
            longest = Longest()
            state = longest.create()
            for other in own[: place + 1]:
                state = longest.add(state, other[3])
            made.append((
                *row, total(own[: peers[-1] + 1]), total(own[max(place - 2, 0) : place + 1]), place + 1, place + 1, peers[0] + 1,
                len({other[2] for other in own[:place]} | {row[2]}), part(place, len(own)),
                peers[0] / max(len(own) - 1, 1), (peers[-1] + 1) / len(own), own[place - 1][3] if place else None,
                own[place + 2][3] if place + 2 < len(own) else -1, longest.result(state),
            ))  # fmt: skip
    return made


def total(rows: list[Row]) -> int | None:
    present = [row[3] for row in rows if row[3] is not None]
    return sum(present) if present else None


def part(place: int, count: int) -> int:
    """Return in which of three parts a row is, of which the first have one row more."""
    sizes = [count // 3 + (number < count % 3) for number in range(3)]
    return next(number for number in (1, 2, 3) if place < sum(sizes[:number]))


ROWS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, 3, None]), st.sampled_from([1, 5, 7, None]))
#: A row that comes, or the number of one that goes; and whether the batch ends here.
STEPS = st.lists(st.tuples(ROWS | st.integers(0, 30), st.booleans()), max_size=40)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS, st.booleans())
def test_the_table_is_that_of_the_rows_of_now(steps: list[tuple[Any, bool]], restores: bool) -> None:
    spec = OverChanging(("k",), (("v", False),), CALLS)
    operator = spec.open(SCHEMA)
    rows: list[Row] = []
    table: list[tuple[Any, ...]] = []
    waiting: list[tuple[Row, int]] = []
    stored: list[bytes] = []
    for number, (step, ends) in enumerate([*steps, (0, True)]):
        if isinstance(step, tuple):
            rows.append((number, *step))
            waiting.append((rows[-1], ChangeKind.INSERT))
        elif rows:
            waiting.append((rows.pop(step % len(rows)), ChangeKind.DELETE))
        if not ends or not waiting:
            continue
        frame = pl.DataFrame([row for row, _ in waiting], schema=dict(SCHEMA), orient="row")
        frame = frame.with_columns(pl.Series(CHANGE, [kind for _, kind in waiting], dtype=pl.Int8))
        waiting = []
        for batch in operator.process(Batch(Queue("q"), frame)):
            assert isinstance(batch, Batch)
            for change in batch.frame.select(*NAMES, CHANGE).rows():
                if change[-1] in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER):
                    table.append(change[:-1])
                else:
                    table.remove(change[:-1])
        assert sorted(table, key=repr) == sorted(expected(rows), key=repr)
        if restores:
            stored.append(operator.delta())
            operator = spec.open(SCHEMA)
            for state in filter(None, stored):
                operator.apply(state)


def test_a_row_that_goes_to_another_partition_is_there_in_the_end() -> None:
    """A sink that writes by key sees the row leave before it comes again."""
    spec = OverChanging(("k",), (("v", False),), {"n": OverCall("COUNT", None, "ROWS", None)})
    assert spec.changes(Changes(("id",))) == Changes(("id", "k"))
    operator = spec.open(SCHEMA)
    first = pl.DataFrame([(1, "a", 1, 1), (2, "a", 2, 1)], schema=dict(SCHEMA), orient="row")
    list(operator.process(Batch(Queue("q"), first.with_columns(pl.lit(0, dtype=pl.Int8).alias(CHANGE)))))
    moved = pl.DataFrame([(1, "b", 1, 1), (1, "a", 1, 1), (3, "a", 3, 1)], schema=dict(SCHEMA), orient="row")
    kinds = pl.Series(CHANGE, [ChangeKind.INSERT, ChangeKind.DELETE, ChangeKind.INSERT], dtype=pl.Int8)
    (batch,) = operator.process(Batch(Queue("q"), moved.with_columns(kinds)))
    assert isinstance(batch, Batch)
    of_one = batch.frame.filter(pl.col("id") == 1)
    assert of_one.select("k", CHANGE).rows() == [("a", ChangeKind.DELETE), ("b", ChangeKind.INSERT)]


def test_rows_without_an_order_are_one_frame() -> None:
    spec = OverChanging(("k",), (), {"share": OverCall("SUM", "x", "RANGE", None)})
    operator = spec.open(SCHEMA)
    frame = pl.DataFrame([(1, "a", 1, 2), (2, "a", 2, 3), (3, "b", 1, 4)], schema=dict(SCHEMA), orient="row")
    (batch,) = operator.process(Batch(Queue("q"), frame))
    assert isinstance(batch, Batch)
    assert sorted(batch.frame.select("id", "share").rows()) == [(1, 5), (2, 5), (3, 4)]


def test_in_the_order_of_time_results_that_change_are_refused() -> None:
    from headrace_sql.operators.over_aggregate import OverAggregate

    with pytest.raises(PlanError, match="only added"):
        OverAggregate(("k",), "ts", {}).changes(Changes(None))
