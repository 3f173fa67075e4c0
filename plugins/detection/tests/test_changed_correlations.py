"""A job starts again with other correlations while windows are open: those that stayed go on, others are forgotten or begin anew."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue
from headrace.flow.schema import Schema
from headrace_detection.correlate import Correlate
from headrace_detection.correlations import Bounds
from headrace_stateful.keys.watermark import event_times_us
from test_correlate import BEGIN, COLUMNS, CORRELATIONS, Event, counted

from tests.effort import one_in

STAYS, OTHER_CONDITION, GONE = CORRELATIONS[4], CORRELATIONS[0], CORRELATIONS[1]
NEW = replace(CORRELATIONS[2], bounds=Bounds(low=2))
BEFORE = [STAYS, OTHER_CONDITION, GONE]
AFTER = [NEW, replace(OTHER_CONDITION, bounds=Bounds(low=2)), STAYS]


def model(events: list[Event], looked_at_before_us: int) -> list[tuple[Any, ...]]:
    """Return (n, rule, count) of the alerts, of events of before and after the change."""
    alerts: list[tuple[Any, ...]] = []
    past: dict[tuple[str, str], list[Event]] = {}
    for event in sorted(events, key=lambda one: one[0]):
        is_before = (event[0] - BEGIN) // timedelta(microseconds=1) < looked_at_before_us
        one = {each.version: each for each in (BEFORE if is_before else AFTER)}.get(event[2])
        if one is None:
            continue
        past.setdefault((event[2], event[3]), []).append(event)
        since = event[0] - timedelta(microseconds=one.span_us)
        count = counted(one, [each for each in past[event[2], event[3]] if each[0] >= since])
        if one.bounds.low <= count <= one.bounds.high and count not in one.bounds.unequal:
            alerts.append((event[1], one.id, count))
    return alerts


def events_of(chance: random.Random, split: int) -> list[Event]:
    events: list[Event] = []
    for number in range(2 * split):
        one = chance.choice(BEFORE if number < split else AFTER)
        at = BEGIN + timedelta(microseconds=number // 2 + chance.randrange(-4, 5))
        mask = chance.randrange(1, 2 ** len(one.rules))
        events.append((at, number, one.version, chance.choice("ab"), mask, chance.choice([None, "x", "y", "z"])))
    return events


@pytest.mark.parametrize("seed", one_in(3, range(12)))
def test_windows_that_are_open_at_the_change(seed: int) -> None:
    split = 60
    events = events_of(random.Random(seed), split)
    schema = Schema.of(COLUMNS)
    frame = pl.DataFrame(events, schema=dict(schema), orient="row")
    times = event_times_us(frame["ts"])
    ahead = [int(times[place:].min()) for place in range(len(events))]
    frame = frame.with_columns(pl.Series(WATERMARK, ahead, dtype=pl.Int64))
    first = Correlate(BEFORE, on="ts", output="all").open(schema)
    given: list[Any] = list(first.process(Batch(Queue("0"), frame[:split])))
    state = first.snapshot()
    second = Correlate(AFTER, on="ts", output="all").open(schema)
    second.apply(state)
    given += list(second.process(Batch(Queue("0"), frame[split:])))
    given += list(second.on_system(EndOfInput()))
    found = [row for each in given for row in each.frame.select("n", "rule_id", "correlation_count").rows()]
    reached_us = ahead[split - 1] - event_times_us(pl.Series([BEGIN]))[0]
    assert found == model(events, int(reached_us))
    assert {rule for _, rule, _ in found} >= {NEW.id, STAYS.id, OTHER_CONDITION.id}


def test_events_of_a_correlation_that_is_gone_do_not_stay() -> None:
    schema = Schema.of(COLUMNS)
    rows = [(BEGIN + timedelta(microseconds=at), at, GONE.version, "a", 1, None) for at in range(4)]
    frame = pl.DataFrame(rows, schema=dict(schema), orient="row").with_columns(pl.lit(None, pl.Int64).alias(WATERMARK))
    first = Correlate(BEFORE, on="ts").open(schema)
    list(first.process(Batch(Queue("0"), frame)))
    second = Correlate(AFTER, on="ts").open(schema)
    second.apply(first.snapshot())
    assert second.state_rows() == 4
    assert list(second.on_system(EndOfInput())) == []
    assert second.state_rows() == 0
