"""Joins within a time bound and in windows against plain models that look at all rows at once."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import EndOfInput, Tick, Watermark
from headrace.flow.schema import Schema
from headrace.interfaces.windows import Window
from headrace_stateful.joins.join_interval import IntervalJoin
from headrace_stateful.joins.join_shape import HOWS, How, JoinShape
from headrace_stateful.joins.join_window import WindowJoin, windows_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

from .stateful_driver import QUEUE, Row, Run, batch_of

LEFT = Schema.of({"k": "int64", "a": "int64", "ts": "timestamp"})
RIGHT = Schema.of({"k": "int64", "b": "int64", "at": "timestamp"})
NEVER = -(2**63)


def instant(us: int | None) -> datetime | None:
    return None if us is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


#: (right side?, key, time, whether the batch ends here, what happens then)
EVENTS = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from([None, 1, 1, 2]),
        st.one_of(st.none(), st.integers(-5, 12), st.integers(-20, 40)),
        st.booleans(),
        st.sampled_from(["", "", "store", "restart", "snapshot", "watermark"]),
    ),
    max_size=40,
)


def numbered(events: list[Any], delay: int) -> tuple[list[tuple[bool, Row, int | None, int]], int]:
    """Return (right side?, row, time, watermark before it), and the last watermark."""
    reached, rows = NEVER, []
    for number, (right, key, time, _, _) in enumerate(events):
        rows.append((right, (key, number, instant(time)), time, reached))
        if time is not None:
            reached = max(reached, time - delay)
    return rows, reached


def drive(run: Run, events: list[Any], rows: list[tuple[bool, Row, int | None, int]], last: int, end: bool) -> None:
    begin = 0
    for place in range(1, len(rows) + 1):
        cut = place == len(rows) or rows[place][0] != rows[begin][0] or events[place - 1][3]
        if not cut:
            continue
        part = rows[begin:place]
        schema = RIGHT if part[0][0] else LEFT
        marks = [None if mark == NEVER else mark for _, _, _, mark in part]
        run.give(
            batch_of(
                [row for _, row, _, _ in part], dict(schema), output="right" if part[0][0] else "left", watermarks=marks
            )
        )
        what = events[place - 1][4]
        reached = rows[place][3] if place < len(rows) else last
        if what == "watermark" and reached > NEVER:
            run.tell(Watermark(QUEUE, reached))
        elif what == "store":
            run.store()
        elif what in ("restart", "snapshot"):
            run.store(whole=what == "snapshot")
            run.restart()
        begin = place
    if last > NEVER:
        run.tell(Watermark(QUEUE, last))
    if end:
        run.tell(EndOfInput())


def interval_model(how: How, rows: Any, low: int, high: int, last: int, end: bool) -> Counter[Row]:
    """Row by row: keep both sides in lists, decide by each row's watermark."""
    kept: tuple[list[Any], list[Any]] = ([], [])
    matched: set[int] = set()
    alone: list[tuple[bool, Row]] = []
    pairs: list[tuple[Row, Row]] = []

    def expire(watermark: int) -> None:
        for side in range(2):
            for entry in [each for each in kept[side] if each[1] < watermark]:
                kept[side].remove(entry)
                if entry[0][1] not in matched:
                    alone.append((bool(side), entry[0]))

    for right, row, time, watermark in rows:
        expire(watermark)
        if row[0] is None or time is None:
            alone.append((right, row))
            continue
        for other, _, other_time in list(kept[not right]):
            apart = time - other_time if right else other_time - time
            if other[0] == row[0] and low <= apart <= high:
                pairs.append((other, row) if right else (row, other))
                matched |= {row[1], other[1]}
        until = time - low if right else time + high
        if until >= watermark:
            kept[right].append((row, until, time))
        elif row[1] not in matched:
            alone.append((right, row))
    expire(last)
    if end:
        expire(2**62)
    return shaped(how, pairs, alone, matched, rows)


def shaped(how: How, pairs: Any, alone: Any, matched: set[int], rows: Any) -> Counter[Row]:
    if how == "semi":
        return Counter(row for right, row, _, _ in rows if not right and row[1] in matched)
    if how == "anti":
        return Counter(row for right, row in alone if not right)
    both = how in ("right", "full")
    given_rows = [(*one, *(other if both else other[1:])) for one, other in pairs]
    width = 3 if both else 2
    for right, row in alone:
        if right and how in ("right", "full"):
            given_rows.append((None, None, None, *row))
        elif not right and how in ("left", "full"):
            given_rows.append((*row, *[None] * width))
    return Counter(given_rows)


BOUNDS = st.tuples(st.integers(-5, 5), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(how=st.sampled_from(HOWS), bounds=BOUNDS, events=EVENTS, delay=st.integers(0, 15), end=st.booleans())
@settings(max_examples=examples(120), deadline=None)
def test_interval_join_is_its_model(how: How, bounds: tuple[int, int], events: Any, delay: int, end: bool) -> None:
    rows, last = numbered(events, delay)
    shape = JoinShape(how, LEFT, RIGHT, ("k",), ("k",))
    run = Run(lambda: IntervalJoin(shape, ("ts", "at"), *bounds))
    drive(run, events, rows, last, end)
    assert run.table() == interval_model(how, rows, *bounds, last, end)
    run.check_watermarks()


@given(how=st.sampled_from(HOWS), bounds=BOUNDS, events=EVENTS, delay=st.integers(5, 15))
@settings(max_examples=examples(100), deadline=None)
def test_what_an_interval_join_gives_is_never_behind_its_watermark(
    how: How, bounds: tuple[int, int], events: Any, delay: int
) -> None:
    events = [event for event in events if event[2] is not None]
    rows, last = numbered(events, delay)
    on_time = [place for place, (_, _, time, mark) in enumerate(rows) if time is not None and time >= mark]
    rows, events = [rows[place] for place in on_time], [events[place] for place in on_time]
    run = Run(lambda: IntervalJoin(JoinShape(how, LEFT, RIGHT, ("k",), ("k",)), ("ts", "at"), *bounds))
    drive(run, events, rows, last, True)
    for (_, row), mark in zip(run.rows, run.watermarks, strict=True):
        times = [value for value in row if isinstance(value, datetime)]
        reached = [(time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) for time in times]
        assert mark is None or all(time >= mark for time in reached), (row, mark)


#: (right side?, keys, how far the clock goes on before, what happens then): entries of processing time
ENTRIES = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(st.sampled_from([None, 1, 1, 2]), max_size=3),
        st.integers(0, 8),
        st.sampled_from(["", "", "store", "restart", "snapshot"]),
    ),
    max_size=30,
)


@given(how=st.sampled_from(HOWS), bounds=BOUNDS, entries=ENTRIES, end=st.booleans())
@settings(max_examples=examples(120), deadline=None)
def test_an_interval_join_by_the_clock_is_its_model(
    how: How, bounds: tuple[int, int], entries: list[Any], end: bool
) -> None:
    run = Run(lambda: IntervalJoin(JoinShape(how, LEFT, RIGHT, ("k",), ("k",)), None, *bounds))
    now, number, rows = 100, 0, []
    for right, keys, step, what in entries:
        now += step
        run.tell(Tick(now))
        made: list[Row] = [(key, number + place, None) for place, key in enumerate(keys)]
        number += len(made)
        rows += [(right, row, now, now) for row in made]
        if made:
            run.give(batch_of(made, dict(RIGHT if right else LEFT), output="right" if right else "left"))
        if what:
            run.store(whole=what == "snapshot")
        if what == "restart":
            run.restart()
    if end:
        run.tell(EndOfInput())
    assert run.table() == interval_model(how, rows, *bounds, now, end)
    assert run.operator.late_rows() == 0
    run.tell(Tick(now + 20))
    assert run.operator.state_rows() == 0, "nothing is remembered for ever"


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_the_last_moment_at_which_rows_can_meet(how: How) -> None:
    """A row of the last time that is still in the bound comes when the watermark is just there; the next is too late."""
    for low, high, left_time, right_time in ((0, 10, 0, 10), (-10, 0, 10, 0)):
        for late_by in (0, 1):
            shape = JoinShape(how, LEFT, RIGHT, ("k",), ("k",))
            run = Run(partial(IntervalJoin, shape, ("ts", "at"), low, high))
            sides = [(left_time, "left", LEFT), (right_time, "right", RIGHT)]
            sides.sort(key=lambda side: side[0])
            for (time, side, schema), mark in zip(sides, (None, 10 + late_by), strict=True):
                run.give(batch_of([(1, time, instant(time))], dict(schema), output=side, watermarks=[mark]))
            pairs = [row for _, row in run.rows if None not in row]
            assert len(pairs) == (0 if late_by else 1), (low, high, late_by)


@pytest.mark.parametrize("late_by", [0, 1])
def test_a_row_at_its_last_moment_is_kept(late_by: int) -> None:
    run = Run(lambda: IntervalJoin(JoinShape("left", LEFT, RIGHT, ("k",), ("k",)), ("ts", "at"), 0, 0))
    run.give(batch_of([(1, 1, instant(5))], dict(LEFT), output="left", watermarks=[5 + late_by]))
    assert len(run.rows) == late_by
    run.give(batch_of([(1, 2, instant(5))], dict(RIGHT), output="right", watermarks=[5 + late_by]))
    assert [row[3] for _, row in run.rows] == [None if late_by else 2]


def test_rows_are_forgotten_as_time_goes_on() -> None:
    run = Run(lambda: IntervalJoin(JoinShape("inner", LEFT, RIGHT, ("k",), ("k",)), ("ts", "at"), -5, 10))
    for second in range(0, 5000, 100):
        part = [(1, number, instant(number)) for number in range(second, second + 100)]
        run.give(batch_of(part, dict(LEFT), output="left", watermarks=range(second - 1, second + 99)))
        assert run.operator.state_rows() <= 13
    run.tell(Watermark(QUEUE, 10_000))
    assert run.operator.state_rows() == 0


WINDOWS = [
    hr.tumbling("7 us", on="ts"),
    hr.sliding("9 us", "4 us", on="ts"),
    hr.sliding("8 us", "4 us", on="ts", offset="3 us"),
    hr.cumulative("9 us", "3 us", on="ts"),
]


def windows_plainly(window: Window, time: int) -> list[tuple[int, int]]:
    found = []
    for start in range(-120, 120):
        if window.kind == "cumulative":
            if (start - window.offset_us) % window.size_us == 0:
                ends = range(start + window.every_us, start + window.size_us + 1, window.every_us)
                found += [(start, end) for end in ends if start <= time < end]
        elif (start - window.offset_us) % window.every_us == 0 and start <= time < start + window.size_us:
            found.append((start, start + window.size_us))
    return found


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_windows_of_a_time(window: Window) -> None:
    times = list(range(-40, 40))
    rows, starts, ends = windows_of(window, pl.Series(times).to_numpy())
    found = [
        (times[row], (start, end))
        for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)
    ]
    assert found == [(time, each) for time in times for each in windows_plainly(window, time)]


def window_model(how: How, rows: Any, window: Window, last: int, end: bool) -> tuple[Counter[Row], Counter[Row]]:
    members: dict[tuple[int, int], tuple[list[Row], list[Row]]] = {}
    late: list[Row] = []
    both = how in ("right", "full")
    one_sided = how in ("semi", "anti")

    def pad(right: bool, row: Row, bounds: tuple[int, int]) -> Row:
        times = (instant(bounds[0]), instant(bounds[1]))
        if not right:
            return (*row, *([None] * (0 if one_sided else 3 if both else 2)), *times)
        return (None, None, None, *(row if both else row[1:]), *times)

    for right, row, time, mark in rows:
        if time is None:
            continue
        found = windows_plainly(window, time)
        in_time = [each for each in found if each[1] > mark]
        for each in in_time:
            members.setdefault(each, ([], []))[right].append(row)
        if not in_time and not (right and one_sided):
            late.append(pad(right, row, found[-1]))
    given_rows: list[Row] = []
    for bounds, (lefts, rights) in members.items():
        if bounds[1] > last and not end:
            continue
        times = (instant(bounds[0]), instant(bounds[1]))
        pairs = [(one, other) for one in lefts for other in rights if one[0] is not None and one[0] == other[0]]
        matched = {row[1] for pair in pairs for row in pair}
        if one_sided:
            given_rows += [(*row, *times) for row in lefts if (row[1] in matched) == (how == "semi")]
            continue
        given_rows += [(*one, *(other if both else other[1:]), *times) for one, other in pairs]
        if how in ("left", "full"):
            given_rows += [pad(False, row, bounds) for row in lefts if row[1] not in matched]
        if how in ("right", "full"):
            given_rows += [pad(True, row, bounds) for row in rights if row[1] not in matched]
    return Counter(given_rows), Counter(late)


@given(
    how=st.sampled_from(HOWS),
    window=st.sampled_from(WINDOWS),
    events=EVENTS,
    delay=st.integers(0, 15),
    end=st.booleans(),
)
@settings(max_examples=examples(120), deadline=None)
def test_window_join_is_its_model(how: How, window: Window, events: Any, delay: int, end: bool) -> None:
    rows, last = numbered(events, delay)
    times = {"window_start": pl.Datetime("us", "UTC"), "window_end": pl.Datetime("us", "UTC")}
    shape = JoinShape(how, LEFT, RIGHT, ("k",), ("k",), extra=times)
    run = Run(lambda: WindowJoin(shape, window, ("ts", "at"), pl.Datetime("us", "UTC")))
    drive(run, events, rows, last, end)
    wanted, late = window_model(how, rows, window, last, end)
    assert run.table() == wanted
    assert run.table("late") == late
    run.check_watermarks()


def test_windows_of_processing_time() -> None:
    times = {"window_start": pl.Datetime("us", "UTC"), "window_end": pl.Datetime("us", "UTC")}
    shape = JoinShape("left", LEFT, RIGHT, ("k",), ("k",), extra=times)
    run = Run(lambda: WindowJoin(shape, hr.tumbling("10 us"), None, pl.Datetime("us", "UTC")))
    run.tell(Tick(5))
    run.give(batch_of([(1, 1, None), (2, 2, None)], dict(LEFT), output="left"))
    run.tell(Tick(9))
    run.give(batch_of([(1, 3, None)], dict(RIGHT), output="right"))
    assert run.rows == []
    run.tell(Tick(10))
    assert [row[:2] + row[3:4] + row[5:] for _, row in run.rows] == [
        (1, 1, 3, instant(0), instant(10)),
        (2, 2, None, instant(0), instant(10)),
    ]
