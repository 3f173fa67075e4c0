"""Aligned windows against a model in plain Python, in any batches, with restarts at any moment."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from headrace.interfaces.windows import Emit, Window, cumulative, sliding, tumbling
from headrace_stateful.windows import aligned_windows
from hypothesis import given, settings
from hypothesis import strategies as st

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
from plugins.stateful.tests.window_model import WindowModel
from tests.effort import examples

WINDOWS = [
    tumbling("10 us", on="ts"),
    tumbling("7 us", on="ts", offset="3 us"),
    sliding("10 us", "4 us", on="ts"),
    sliding("12 us", "3 us", on="ts", offset="1 us"),
    cumulative("12 us", "4 us", on="ts"),
]
events_strategy = st.lists(
    st.tuples(st.sampled_from(["a", "b", "", None]), st.integers(-40, 40), st.one_of(st.none(), st.integers(-9, 9))),
    min_size=1,
    max_size=25,
)
#: Times that mostly go on.
streams = st.one_of(
    events_strategy,
    events_strategy.map(lambda events: sorted(events, key=lambda event: event[1])),
    events_strategy.map(
        lambda events: [(key, time // 8 + place * 3, number) for place, (key, time, number) in enumerate(events)]
    ),
)
FEW = settings(max_examples=examples(20, least=5), deadline=None)


def check(
    window: Window, emit: Emit, events: list[Event], delay: int, cuts: list[int], stores: list[int], *,
    ordered: bool, end: bool,
) -> None:  # fmt: skip
    marks = watermarks_of(events, delay)
    model = WindowModel(window, emit)
    for (key, time, number), mark in zip(events, marks, strict=False):
        model.row(key, time, number, mark)
    model.advance(marks[-1])
    if end:
        model.finish()
    run = WindowRun(make(window, emit, ordered=ordered))
    drive(run, events, marks, cuts, stores, end=end)
    expected = [
        (mark, kind, key, instant(start), instant(stop), *aggregated(numbers, ordered=ordered), result)
        for mark, kind, key, start, stop, numbers, result in model.given
    ]
    changes = emit != Emit()
    assert comparable(run.results(changes=changes)) == comparable(expected)
    assert comparable(run.late()) == comparable([(key, instant(time), number) for key, time, number in model.late])
    assert run.operator.late_rows() <= len(model.late)
    run.check_watermarks()
    if not ordered:
        run.table()


@pytest.mark.parametrize("emit", EMITS, ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@FEW
@given(
    events=streams, delay=st.integers(0, 15), cuts=st.lists(st.integers(0, 25), max_size=6),
    stores=st.lists(st.integers(0, 6), max_size=3), ordered=st.booleans(), end=st.booleans(),
    spread=st.sampled_from([1, 7, 1 << 20]),
)  # fmt: skip
def test_as_the_model_says(
    window: Window, emit: Emit, events: list[Event], delay: int, cuts: list[int], stores: list[int],
    ordered: bool, end: bool, spread: int,
) -> None:  # fmt: skip
    with patch.object(aligned_windows, "_SPREAD_MAX", spread):
        check(window, emit, events, delay, cuts, stores, ordered=ordered, end=end)
