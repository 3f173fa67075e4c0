"""Windows over rows that change against the models in plain Python, in any batches, with restarts at any moment."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from headrace.flow.messages import ChangeKind, EndOfInput, Watermark
from headrace.foundation.errors import PlanError
from headrace.interfaces.operator import Changes, StatefulOperator
from headrace.interfaces.windows import Emit, Window, cumulative, session, sliding, tumbling
from headrace_stateful.windows.window_aggregate import WindowAggregate
from headrace_stateful.windows.window_operator import WindowOperator
from headrace_stateful.windows.window_reduce import WindowReduce
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plugins.stateful.tests.stateful_driver import QUEUE, batch_of
from plugins.stateful.tests.window_driver import (
    NEVER,
    SCHEMA,
    WindowRun,
    aggregated,
    comparable,
    instant,
    watermarks_of,
)
from plugins.stateful.tests.window_model import SessionModel, WindowModel
from tests.effort import examples

WINDOWS = [
    tumbling("10 us", on="ts"),
    sliding("10 us", "4 us", on="ts", offset="3 us"),
    cumulative("12 us", "4 us", on="ts"),
    session("5 us", on="ts"),
]
#: What can be subtracted, and what is made anew of the rows that are left.
COUNTED = {"n": "count(*)", "total": "sum(number)"}
KEPT = {
    "n": "count(*)",
    "total": "sum(number)",
    "greatest": "max(number)",
    "first": "first(number)",
    "all": "array_agg(number)",
}
_KINDS = {1: (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER), -1: (ChangeKind.DELETE, ChangeKind.UPDATE_BEFORE)}

#: (key, time, number, sign)
Change = tuple[Any, int, int | None, int]


@cache
def make(window: Window, *, kept: bool) -> Callable[[], StatefulOperator]:
    spec = WindowAggregate(("key",), window, KEPT if kept else COUNTED)
    assert spec.changes(Changes(None)) is None
    opened = spec.open(SCHEMA)
    assert isinstance(opened, WindowOperator)
    kind: Any = type(opened)
    return lambda: kind(opened.shape)


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    """Rows, and rows that take one of them back: mostly after it, sometimes before, sometimes one that never was."""
    row = st.tuples(st.sampled_from(["a", "b", None]), st.integers(-20, 20), st.one_of(st.none(), st.integers(-3, 3)))
    added = draw(st.lists(row, min_size=1, max_size=15))
    if draw(st.booleans()):
        added.sort(key=lambda each: each[1])
    found: list[Change] = [(*each, 1) for each in added]
    for _ in range(draw(st.integers(0, len(added)))):
        back = draw(st.sampled_from(added)) if draw(st.integers(0, 9)) else draw(row)
        found.insert(draw(st.integers(0, len(found))), (*back, -1))
    return found


def left(rows: tuple[Any, ...]) -> tuple[int | None, ...]:
    """Return the numbers that are left: each that is taken back with the oldest equal one."""
    back = [number for number, sign in rows if sign < 0]
    numbers = []
    for number, sign in rows:
        if sign > 0 and number in back:
            back.remove(number)
        elif sign > 0:
            numbers.append(number)
    return tuple(numbers)


def shown(numbers: tuple[int | None, ...], *, kept: bool) -> tuple[Any, ...]:
    made = aggregated(numbers, ordered=True)
    return made if kept else made[:2]


_CASES = given(
    window=st.sampled_from(WINDOWS), rows=changes(), delay=st.integers(0, 15), cuts=st.lists(st.integers(0, 25), max_size=6),
    stores=st.lists(st.integers(0, 6), max_size=3), end=st.booleans(), kept=st.booleans(),
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@_CASES
@example(  # what is taken back in a later batch is the zero of the first batch, not the one that comes behind it
    window=WINDOWS[0], rows=[("b", 10, 0, 1), ("b", 10, 0, -1), ("b", 10, None, 1), ("b", 10, 0, 1)],
    delay=0, cuts=[1], stores=[1], end=True, kept=True,
)  # fmt: skip
def test_as_the_model_says(
    window: Window, rows: list[Change], delay: int, cuts: list[int], stores: list[int], end: bool, kept: bool
) -> None:
    check(window, rows, delay, cuts, stores, end=end, kept=kept)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@_CASES
def test_as_the_model_says_in_many_cases(
    window: Window, rows: list[Change], delay: int, cuts: list[int], stores: list[int], end: bool, kept: bool
) -> None:
    check(window, rows, delay, cuts, stores, end=end, kept=kept)


def check(
    window: Window, rows: list[Change], delay: int, cuts: list[int], stores: list[int], *, end: bool, kept: bool
) -> None:
    marks = watermarks_of([each[:3] for each in rows], delay)
    model: Any = SessionModel(window.size_us, Emit()) if window.kind == "session" else WindowModel(window, Emit())
    for (key, time, number, sign), mark in zip(rows, marks, strict=False):
        model.row(key, time, (number, sign), mark)
    model.advance(marks[-1])
    if end:
        model.finish()
    run = WindowRun(make(window, kept=kept))
    _drive(run, rows, marks, cuts, stores, end=end)
    expected = [
        (mark, kind, key, instant(start), instant(stop), *shown(numbers, kept=kept), "final")
        for mark, kind, key, start, stop, numbers in (
            (*each[:5], left(each[5])) for each in model.given if sum(sign for _, sign in each[5]) > 0
        )
    ]
    results = run.results(changes=False)
    # Where more is taken back than there was, counts and sums are less by it; of what else there is nobody can say.
    if all(_adds_up(each[5]) for each in model.given):
        assert comparable(results) == comparable(expected)
    sums = [
        (mark, kind, key, instant(start), instant(stop), *_signed(numbers))
        for mark, kind, key, start, stop, numbers in (each[:6] for each in model.given)
        if sum(sign for _, sign in numbers) > 0
    ]
    assert comparable([each[:7] for each in results]) == comparable(sums)
    late = [(key, instant(time), number) for key, time, (number, sign) in model.late if sign > 0]
    assert comparable(run.late()) == comparable(late)
    run.check_watermarks()


def _signed(rows: tuple[Any, ...]) -> tuple[int, int | None]:
    """Return the number of rows and their sum, less those that are taken back."""
    known = [(number, sign) for number, sign in rows if number is not None]
    total = sum(number * sign for number, sign in known)
    return sum(sign for _, sign in rows), total if sum(sign for _, sign in known) > 0 else None


def _adds_up(rows: tuple[Any, ...]) -> bool:
    """Whether each row that is taken back was there, or came later."""
    return all(rows.count((number, -1)) <= rows.count((number, 1)) for number, _ in rows)


def _drive(
    run: WindowRun, rows: list[Change], marks: list[int], cuts: list[int], stores: list[int], *, end: bool
) -> None:
    borders = sorted({0, *(cut for cut in cuts if 0 < cut < len(rows)), len(rows)})
    for number, (first, last) in enumerate(itertools.pairwise(borders)):
        if number in stores:
            run.store(whole=number % 3 == 2)
            run.restart()
        part = [(key, instant(time), value) for key, time, value, _ in rows[first:last]]
        kinds = [int(_KINDS[sign][place % 2]) for place, (*_, sign) in enumerate(rows[first:last])]
        known = [None if mark == NEVER else mark for mark in marks[first:last]]
        run.give(batch_of(part, dict(SCHEMA), kinds=kinds, watermarks=known, first=first))
        if marks[last] > NEVER:
            run.tell(Watermark(QUEUE, marks[last]))
    if end:
        run.tell(EndOfInput())


def test_what_cannot_be_taken_back_is_refused() -> None:
    early = WindowAggregate(("key",), WINDOWS[0], COUNTED, emit=Emit(before_us=3))
    with pytest.raises(PlanError, match="windows return each result once"):
        early.changes(Changes(None))
    reduced = WindowReduce(("key",), WINDOWS[0], lambda one, other: one)
    with pytest.raises(PlanError, match="only added"):
        reduced.changes(Changes(None))


def test_the_state_of_rows_that_only_come_is_not_that_of_rows_that_change() -> None:
    plain, changing = (WindowAggregate(("key",), WINDOWS[0], COUNTED) for _ in range(2))
    plain.changes(None)
    changing.changes(Changes(("key",)))
    assert plain.definition(SCHEMA).settings != changing.definition(SCHEMA).settings
    assert changing.combiner(SCHEMA) is None
    assert plain.combiner(SCHEMA) is not None
