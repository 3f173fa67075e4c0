"""Joins without bound against a plain model: the join of the two tables as they are now."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest
from headrace.flow.messages import ChangeKind, Tick
from headrace.flow.schema import Schema
from headrace_stateful.joins.join_regular import RegularJoin
from headrace_stateful.joins.join_shape import HOWS, How, JoinShape
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

from .stateful_driver import Row, Run, batch_of

LEFT = Schema.of({"k": "int64", "a": "string"})
RIGHT = Schema.of({"k": "int64", "b": "float64"})


def shape_of(how: How, where: str | None = None) -> JoinShape:
    return JoinShape(how, LEFT, RIGHT, ("k",), ("k",), where=where)


def model(how: How, left: Counter[Row], right: Counter[Row], where: bool) -> Counter[Row]:
    lefts, rights = list(left.elements()), list(right.elements())

    def meets(one: Row, other: Row) -> bool:
        same = one[0] is not None and one[0] == other[0]
        return same and (not where or (other[1] is not None and other[1] > 1))

    both = how in ("right", "full")
    pairs = [(i, j) for i, one in enumerate(lefts) for j, other in enumerate(rights) if meets(one, other)]
    with_partner = {i for i, _ in pairs}, {j for _, j in pairs}
    if how in ("semi", "anti"):
        return Counter(one for i, one in enumerate(lefts) if (i in with_partner[0]) == (how == "semi"))
    rows = [(*lefts[i], *(rights[j] if both else rights[j][1:])) for i, j in pairs]
    if how in ("left", "full"):
        rows += [
            (*one, *((None, None) if both else (None,))) for i, one in enumerate(lefts) if i not in with_partner[0]
        ]
    if how in ("right", "full"):
        rows += [(None, None, *other) for j, other in enumerate(rights) if j not in with_partner[1]]
    return Counter(rows)


KEYS = st.sampled_from([None, 1, 2, 3])
STEP = st.tuples(st.booleans(), KEYS, st.integers(0, 2), st.booleans(), st.integers(0, 5))


@given(
    how=st.sampled_from(HOWS),
    where=st.booleans(),
    steps=st.lists(STEP, max_size=40),
    only_inserts=st.booleans(),
)
@settings(max_examples=examples(120), deadline=None)
def test_join_is_the_join_of_the_tables(how: How, where: bool, steps: list[Any], only_inserts: bool) -> None:
    changelog = not (only_inserts and how in ("inner", "semi"))
    shape = shape_of(how, "b > 1" if where else None)
    run = Run(lambda: RegularJoin(shape, changelog=changelog, ttls_us=(None, None)))
    tables: tuple[Counter[Row], Counter[Row]] = (Counter(), Counter())
    waiting: list[tuple[Row, int]] = []
    waiting_side = 0

    def flush() -> None:
        if waiting:
            schema = RIGHT if waiting_side else LEFT
            run.give(
                batch_of(
                    [row for row, _ in waiting],
                    dict(schema),
                    output=("left", "right")[waiting_side],
                    kinds=None if only_inserts else [kind for _, kind in waiting],
                    watermarks=[None] * len(waiting),
                )
            )
            waiting.clear()
        assert run.table() == model(how, tables[0], tables[1], where)

    for right, key, value, insert, what in steps:
        if right != bool(waiting_side) or what == 0:
            flush()
            waiting_side = int(right)
        if what == 1:
            flush()
            run.store()
        elif what == 2:
            flush()
            run.store(whole=value == 0)
            run.restart()
        row: Row = (key, float(value)) if right else (key, "abc"[value])
        table = tables[waiting_side]
        if insert or only_inserts:
            table[row] += 1
            waiting.append((row, ChangeKind.INSERT if value else ChangeKind.UPDATE_AFTER))
        elif table[row] > 0:
            table[row] -= 1
            waiting.append((row, ChangeKind.DELETE if value else ChangeKind.UPDATE_BEFORE))
    flush()
    if not changelog:
        assert set(run.kinds) <= {ChangeKind.INSERT}


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([1, 2]), st.integers(0, 3), st.booleans()), max_size=30))
@settings(max_examples=examples(100), deadline=None)
def test_a_result_with_a_key_has_one_row_per_key_at_any_time(steps: list[Any]) -> None:
    """Both sides have at most one row per key; so has the result, between any two changes: sinks go by that."""
    run = Run(lambda: RegularJoin(shape_of("left"), changelog=True, ttls_us=(None, None)))
    sides: tuple[dict[int, Row], dict[int, Row]] = ({}, {})
    for right, key, value, ends in steps:
        rows, kinds = [], []
        before = sides[right].pop(key, None)
        if before is not None:
            rows, kinds = [before], [ChangeKind.UPDATE_BEFORE]
        if value:
            row = sides[right][key] = (key, float(value)) if right else (key, "abc"[value - 1])
            rows, kinds = [*rows, row], [*kinds, ChangeKind.UPDATE_AFTER]
        if rows:
            schema = RIGHT if right else LEFT
            parts = [(rows, kinds)] if ends else [([row], [kind]) for row, kind in zip(rows, kinds, strict=True)]
            for part, kind in parts:
                run.give(batch_of(part, dict(schema), output="right" if right else "left", kinds=kind))
    table: dict[Any, Row] = {}
    for (_, row), change in zip(run.rows, run.kinds, strict=True):
        if change == ChangeKind.INSERT:
            assert row[0] not in table
            table[row[0]] = row
        else:
            assert table.pop(row[0]) == row
    assert table == {key: (*row, sides[1].get(key, (key, None))[1]) for key, row in sides[0].items()}


@pytest.mark.parametrize("cut", [1, 3, 10])
def test_rows_that_are_only_added_keep_order_and_watermarks(cut: int) -> None:
    run = Run(lambda: RegularJoin(shape_of("inner"), changelog=False, ttls_us=(None, None)))
    right = [(1, 1.0), (2, 2.0), (1, 3.0)]
    run.give(batch_of(right, dict(RIGHT), output="right", watermarks=[None] * 3))
    left = [(number % 3, f"row {number}") for number in range(10)]
    for begin in range(0, 10, cut):
        part = left[begin : begin + cut]
        run.give(batch_of(part, dict(LEFT), output="left", watermarks=range(begin, begin + len(part))))
    assert [row[:2] for _, row in run.rows] == [
        (1, "row 1"), (1, "row 1"), (2, "row 2"), (1, "row 4"), (1, "row 4"), (2, "row 5"), (1, "row 7"), (1, "row 7"), (2, "row 8"),
    ]  # fmt: skip
    assert [row[2] for _, row in run.rows] == [1.0, 3.0, 2.0, 1.0, 3.0, 2.0, 1.0, 3.0, 2.0]
    assert run.watermarks == [1, 1, 2, 4, 4, 5, 7, 7, 8]


def test_each_side_has_a_time_of_its_own() -> None:
    run = Run(lambda: RegularJoin(shape_of("inner"), changelog=False, ttls_us=(100, None)))
    run.tell(Tick(1000))
    run.give(batch_of([(1, "a")], dict(LEFT), output="left"))
    run.give(batch_of([(2, 2.0)], dict(RIGHT), output="right"))
    run.tell(Tick(1100))
    run.give(batch_of([(1, 1.0)], dict(RIGHT), output="right"))
    assert run.rows == [], "the left row is forgotten"
    run.give(batch_of([(2, "b")], dict(LEFT), output="left"))
    assert [row for _, row in run.rows] == [(2, "b", 2.0)], "the right one is not"
    run.tell(Tick(2000))
    run.give(batch_of([(1, "c")], dict(LEFT), output="left"))
    assert [row for _, row in run.rows][1:] == [(1, "c", 1.0)]
    run.store()
    run.restart()
    assert run.operator.state_rows() == 3


def test_rows_are_forgotten_after_their_time() -> None:
    run = Run(lambda: RegularJoin(shape_of("inner"), changelog=False, ttls_us=(100, 100)))
    run.tell(Tick(1000))
    run.give(batch_of([(1, "old")], dict(LEFT), output="left"))
    run.tell(Tick(1050))
    run.give(batch_of([(1, "new")], dict(LEFT), output="left"))
    run.tell(Tick(1099))
    run.give(batch_of([(1, 1.0)], dict(RIGHT), output="right"))
    assert [row for _, row in run.rows] == [(1, "old", 1.0), (1, "new", 1.0)]
    run.tell(Tick(1100))
    run.give(batch_of([(1, 2.0)], dict(RIGHT), output="right"))
    assert [row for _, row in run.rows][2:] == [(1, "new", 2.0)]
    run.store()
    run.restart()
    assert run.operator.state_rows() == 3


def test_condition_that_fails_rejects_the_row() -> None:
    run = Run(lambda: RegularJoin(shape_of("inner", "CAST(a AS INT) > b"), changelog=False, ttls_us=(None, None)))
    run.give(batch_of([(1, 1.0)], dict(RIGHT), output="right"))
    run.give(batch_of([(1, "5"), (1, "five"), (1, "0")], dict(LEFT), output="left"))
    assert [row for _, row in run.rows] == [(1, "5", 1.0)]
    assert len(run.rejected) == 1
    assert "five" in run.rejected[0]


def test_keys_of_other_widths_meet() -> None:
    right = Schema.of({"k": "int32", "b": "float64"})
    shape = JoinShape("inner", LEFT, right, ("k",), ("k",))
    shape.check()
    run = Run(lambda: RegularJoin(shape, changelog=False, ttls_us=(None, None)))
    run.give(batch_of([(-1, 1.0)], {"k": pl.Int32(), "b": pl.Float64()}, output="right"))
    run.give(batch_of([(-1, "x")], dict(LEFT), output="left"))
    assert [row for _, row in run.rows] == [(-1, "x", 1.0)]
