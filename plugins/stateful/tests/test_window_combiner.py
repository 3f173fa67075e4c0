"""Whichever rows are combined before they are sent, a shard of windows gives the same rows in the same order."""

from __future__ import annotations

from typing import Any
from unittest import mock

import headrace as hr
import numpy as np
import polars as pl
import pytest
from headrace.flow.messages import COMBINED, INDEX, OFFSET, WATERMARK, Queue
from headrace.interfaces.windows import Window
from headrace.plan.graph import Plan, ShuffleNode
from headrace.runtime.combining import Combining, combining_before
from headrace.runtime.shard import Shard
from headrace.runtime.shuffle import ShardMessage
from headrace.testing import MemorySink, MemorySource
from headrace_stateful.windows import aligned_windows
from headrace_stateful.windows.window_shape import panes, window_ends
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

SCHEMA = {"k": "string", "n": "int64", "f": "float64", "text": "string", "ts": "timestamp"}
TYPES: dict[str, Any] = {
    "k": pl.String,
    "n": pl.Int64,
    "f": pl.Float64,
    "text": pl.String,
    "ts": pl.Datetime("us", "UTC"),
}
SECOND = 1_000_000
WINDOWS = {
    "tumbling": hr.tumbling("10 s", on="ts"),
    "offset": hr.tumbling("10 s", on="ts", offset="3 s"),
    "sliding": hr.sliding("10 s", "4 s", on="ts"),
    "cumulative": hr.cumulative("12 s", "4 s", on="ts"),
}
AGGREGATES = {
    "rows": "count(*)", "known": "count(n)", "total": "sum(n)", "most": "max(f)", "mean": "avg(f)", "float_total": "sum(f)",
    "different": "count(distinct n)", "some": "sum(n) FILTER (WHERE n > 3)", "spread": "stddev(n)", "number": "sum(cast(text AS int64))",
}  # fmt: skip
QUEUES = [Queue(name, "source") for name in "ab"]


def plan_of(window: Window, aggregates: dict[str, str] | None = None, **options: Any) -> tuple[Plan, ShuffleNode]:
    job = hr.stream("test", "combined")
    stream = job.from_(MemorySource({"q": []}), format="json", schema=SCHEMA).key_by("k")
    results = stream.window(window, **options).agg(**(aggregates or AGGREGATES))
    plan = results.dead_letters(lambda letters: letters.to(MemorySink())).to(MemorySink()).plan()
    (shuffle,) = plan.shuffles.values()
    return plan, shuffle


@st.composite
def entries(draw: st.DrawFn) -> list[list[tuple[Queue, list[tuple[Any, ...]], int]]]:
    """Per entry and queue the rows, each with the queue's own watermark before it, and the watermark behind them."""
    offset, marks, found = 0, dict.fromkeys(QUEUES, 0), []
    for _ in range(draw(st.integers(1, 4))):
        entry = []
        for queue in draw(st.lists(st.sampled_from(QUEUES), unique=True, max_size=2)):
            rows = []
            for _ in range(draw(st.integers(0, 12))):
                offset += 1
                at = draw(st.one_of(st.none(), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)))
                number = draw(st.one_of(st.none(), st.integers(-5, 9)))
                value = draw(st.sampled_from([None, 0.1, 0.2, 1e300, -1e300, float("nan"), 3.0]))
                text = draw(st.sampled_from(["1", "2", "2", None, "x"]))
                key = draw(st.sampled_from(["one", "two", None]))
                known = marks[queue] or None
                time = None if at is None else at * SECOND
                rows.append((offset, 0, None if known is None else known * SECOND, key, number, value, text, time))
                marks[queue] += draw(st.sampled_from([0, 0, 0, 1, 5]))
            entry.append((queue, rows, marks[queue] * SECOND))
        found.append(entry)
    return found


def frame_of(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    header: dict[str, Any] = {OFFSET: pl.Int64, INDEX: pl.Int32, WATERMARK: pl.Int64}
    return pl.DataFrame(rows, schema={**header, **TYPES}, orient="row")


def given_by(
    plan: Plan, shuffle: ShuffleNode, work: Any, combining: Combining | None, sizes: list[int]
) -> tuple[list[Any], int]:
    """Return what a shard gives for each entry, and how many rows were late. ``sizes``: of the parts that are combined by themselves."""
    shard = Shard(plan, plan.id_of(shuffle), 0)
    found = []
    for number, entry in enumerate(work):
        messages = [ShardMessage("added", queue, 0) for queue in QUEUES] if number == 0 else []
        for queue, rows, mark in entry:
            parts, begin, turn = [], 0, number
            while begin < len(rows):
                size = sizes[turn % len(sizes)]
                part = frame_of(rows[begin : begin + size])
                parts.append(part if combining is None else combining.combined(part))
                begin, turn = begin + size, turn + 1
            if parts:
                messages.append(ShardMessage("rows", queue, 0, frame=pl.concat(parts, how="diagonal")))
            messages.append(ShardMessage("watermark", queue, 0, time_us=mark))
        output = shard.process(number, 0, messages, end_of_input=number == len(work) - 1)
        found.append({each.target: each.batch.frame for each in output.deliveries})
    return found, shard.late_rows()


@pytest.mark.parametrize(("windows", "expected"), [(1, False), (4, True), (16, True), (17, False), (1 << 18, False)])
def test_windows_are_merged_one_by_one_only_where_each_has_many_rows(windows: int, expected: bool) -> None:
    """Else a backfill with a window per second would cost a call per row."""
    assert aligned_windows.is_merged_by_window(pl.Series(np.arange(1 << 18) % windows)) is expected


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=examples(25, least=5))
@given(work=entries(), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3), merged_by_window=st.booleans())
def test_results_are_those_of_the_rows_themselves(
    name: str, work: Any, sizes: list[int], merged_by_window: bool
) -> None:
    plan, shuffle = plan_of(WINDOWS[name])
    combining, others = (combining_before(plan, shuffle) for _ in range(2))
    wanted = given_by(plan, shuffle, work, None, sizes)
    least = 1 if merged_by_window else 1 << 18
    with (
        mock.patch.object(aligned_windows, "MERGED_BY_WINDOW", least),
        mock.patch.object(aligned_windows, "ROWS_PER_WINDOW", 1),
    ):
        found = given_by(plan, shuffle, work, combining, sizes)
    assert found[1] == wanted[1]
    assert_same(found[0], wanted[0], in_order=name in ("tumbling", "offset"))
    # Of other windows, rows of one instant may come in another order than without combining, but always in the same.
    assert_same(given_by(plan, shuffle, work, others, [4])[0], found[0], in_order=True)


def assert_same(found: list[Any], wanted: list[Any], *, in_order: bool) -> None:
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert set(one) == set(other), number
        for target, frame in other.items():
            mine = one[target]
            if not in_order and "window_end" in frame.columns:
                mine, frame = (each.drop(INDEX).sort("window_end", "k") for each in (mine, frame))
            assert mine.equals(frame), (number, target, mine, frame)


def test_rows_become_fewer() -> None:
    plan, shuffle = plan_of(WINDOWS["tumbling"])
    combining = combining_before(plan, shuffle)
    assert combining is not None
    rows = [(at, 0, None, "one", at, 0.5, "1", at * SECOND // 10) for at in range(1000)]
    made = combining.combined(frame_of(rows))
    assert made[COMBINED].to_list() == [100] * 10
    assert made[OFFSET].to_list() == list(range(0, 1000, 100))


def test_rows_that_differ_are_sent_as_they_are_for_a_while() -> None:
    plan, shuffle = plan_of(WINDOWS["tumbling"])
    combining = combining_before(plan, shuffle)
    assert combining is not None
    rows = [(at, 0, None, f"key {at}", at, 0.5, "1", at * SECOND) for at in range(10)]
    assert combining.combined(frame_of(rows))[COMBINED].to_list() == [1] * 10
    assert combining.combined(frame_of(rows))[COMBINED].to_list() == [None] * 10


@pytest.mark.parametrize(
    ("window", "aggregates", "options"),
    [
        (hr.session("10 s", on="ts"), {"n": "count(*)"}, {}),
        (hr.tumbling("10 s"), {"n": "count(*)"}, {}),
        (hr.tumbling("10 s", on="ts"), {"n": "first(n)"}, {}),
        (hr.tumbling("10 s", on="ts"), {"n": "count(*)"}, {"emit": hr.emit(before="1 s")}),
    ],
)
def test_what_is_not_combined(window: Window, aggregates: dict[str, str], options: dict[str, Any]) -> None:
    plan, shuffle = plan_of(window, aggregates, **options)
    assert combining_before(plan, shuffle) is None


def test_late_rows_that_are_wanted_are_not_combined() -> None:
    job = hr.stream("test", "late")
    stream = job.from_(MemorySource({"q": []}), format="json", schema=SCHEMA).key_by("k")
    counted = stream.window(hr.tumbling("10 s", on="ts")).agg(n="count(*)")
    plan = counted.late().to(MemorySink()).plan()
    (shuffle,) = plan.shuffles.values()
    assert combining_before(plan, shuffle) is None


@pytest.mark.parametrize(("branches", "combines"), [(1, True), (2, False)])
def test_branches_of_one_source_with_watermarks_of_their_own_are_not_combined(branches: int, combines: bool) -> None:
    job = hr.stream("test", "union")
    stream = job.from_(MemorySource({"q": []}), format="json", schema=SCHEMA)
    parts = [stream.where(f"k = '{number}'").watermark("ts") for number in range(branches)]
    united = parts[0] if branches == 1 else parts[0].union(*parts[1:])
    counted = united.key_by("k").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)")
    plan = counted.to(MemorySink()).plan()
    (shuffle,) = plan.shuffles.values()
    assert (combining_before(plan, shuffle) is not None) == combines


@pytest.mark.parametrize("window", WINDOWS.values(), ids=list(WINDOWS))
@given(times=st.lists(st.integers(-(10**15), 10**17), min_size=1, max_size=30))
@settings(deadline=None, max_examples=examples(100, least=5))
def test_a_pane_has_the_first_window_of_its_rows(window: Window, times: list[int]) -> None:
    column = np.array(times, dtype=np.int64)
    begins, first = panes(window, column)
    rows, ends = window_ends(window, column)
    found = pl.DataFrame({"row": np.arange(len(times)) if rows is None else rows, "end": ends})
    assert first.tolist() == found.group_by("row", maintain_order=True).agg(pl.col("end").min())["end"].to_list()
    assert np.all((begins <= column) & (column < first))
