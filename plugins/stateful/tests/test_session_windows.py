"""Session windows against a model in plain Python, in any batches, with restarts at any moment."""

from __future__ import annotations

import json

import headrace as hr
import numpy as np
import pytest
from headrace.interfaces.windows import Emit, session
from headrace.testing import MemorySink, MemorySource
from headrace_stateful.windows.session_log import sessions
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.stateful.tests.test_window_aggregate import streams
from plugins.stateful.tests.window_driver import (
    EMITS,
    Event,
    WindowRun,
    aggregated,
    comparable,
    drive,
    instant,
    make,
    watermarks_of,
)
from plugins.stateful.tests.window_model import SessionModel
from tests.effort import examples, one_in


@pytest.mark.parametrize("emit", EMITS, ids=str)
@pytest.mark.parametrize("gap", one_in(3, [5, 1, 30]))
@pytest.mark.parametrize("ordered", [False, True])
@settings(max_examples=examples(40, least=5), deadline=None)
@given(
    events=streams, delay=st.integers(0, 15), cuts=st.lists(st.integers(0, 25), max_size=6),
    stores=st.lists(st.integers(0, 6), max_size=3), end=st.booleans(),
)  # fmt: skip
def test_as_the_model_says(
    emit: Emit, gap: int, ordered: bool, events: list[Event], delay: int, cuts: list[int], stores: list[int], end: bool
) -> None:
    marks = watermarks_of(events, delay)
    model = SessionModel(gap, emit)
    for (key, time, number), mark in zip(events, marks, strict=False):
        model.row(key, time, number, mark)
    model.advance(marks[-1])
    if end:
        model.finish()
    run = WindowRun(make(session(f"{gap} us", on="ts"), emit, ordered=ordered))
    drive(run, events, marks, cuts, stores, end=end)
    expected = [
        (mark, kind, key, instant(start), instant(stop), *aggregated(numbers, ordered=ordered), result)
        for mark, kind, key, start, stop, numbers, result in model.given
    ]
    assert comparable(run.results(changes=emit != Emit())) == comparable(expected)
    assert comparable(run.late()) == comparable([(key, instant(time), number) for key, time, number in model.late])
    run.check_watermarks()
    if not ordered:
        run.table()


def test_sessions_of_stretches_far_apart() -> None:
    """Times so far apart that they cannot be shifted by key without leaving 64 bits."""
    numbers = np.array([0, 1, 0, 1, 0])
    starts = np.array([-(2**61), 5, -(2**61) + 3, 2**61, 9])
    members, places, begins, ends = sessions(numbers, starts, starts + 4)
    assert members.tolist() == [0, 2, 0, 3, 1]
    assert places.tolist() == [0, 4, 1, 3]
    assert begins.tolist() == [-(2**61), 9, 5, 2**61]
    assert ends.tolist() == [-(2**61) + 7, 13, 9, 2**61 + 4]


@pytest.mark.parametrize("aggregate", ["count(*)", "first(n)"], ids=["in any order", "in order"])
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_sessions_that_end_at_one_moment_come_in_the_order_of_their_keys(size: int, aggregate: str) -> None:
    """Whatever the log has moved in between: after a crash the same results must come in the same order."""
    # With batches of one, the end of the first session of "b" moves the rows of its second one behind those of "a".
    times = [("b", 0), ("b", 20), (None, 20), ("a", 20), ("c", 30), ("d", 60), ("d", 100)]
    bodies = [
        json.dumps({"k": k, "n": n, "ts": f"2026-01-01T00:{s // 60:02}:{s % 60:02}Z"}) for n, (k, s) in enumerate(times)
    ]
    source, sink = MemorySource({"q": [body.encode() for body in bodies]}), MemorySink()
    stream = hr.stream("test", "ties").from_(
        source, format="json", schema={"k": "string", "n": "int64", "ts": "timestamp"}
    )
    windowed = stream.key_by("k").window(hr.session("1 s", on="ts"), late="25 s")
    windowed.agg(made=aggregate).to(sink).run("light", max_batch_records=size)
    assert [row["k"] for row in sink.rows] == ["b", None, "a", "b", "c", "d", "d"]
