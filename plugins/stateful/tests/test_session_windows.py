"""Session windows against a model in plain Python, in any batches, with restarts at any moment."""

from __future__ import annotations

import numpy as np
import pytest
from headrace.interfaces.windows import Emit, session
from headrace_stateful.windows.session_log import sessions
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.stateful.tests.test_window_aggregate import streams
from plugins.stateful.tests.window_driver import (
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

EMITS = [
    Emit(),
    Emit(before_us=3),
    Emit(before_us=0),
    Emit(until_us=8),
    Emit(after_us=3, until_us=10),
    Emit(after_us=0, until_us=8),
    Emit(before_us=4, after_us=0, until_us=6),
    Emit(before_us=0, after_us=4, until_us=9),
]


@pytest.mark.parametrize("emit", EMITS, ids=str)
@pytest.mark.parametrize("gap", [1, 5, 30])
@pytest.mark.parametrize("ordered", [False, True])
@settings(max_examples=40, deadline=None)
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
