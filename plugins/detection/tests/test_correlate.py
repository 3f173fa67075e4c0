"""What correlations give: against a plain model of windows, and as jobs."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, Watermark
from headrace.flow.schema import Schema
from headrace.testing import MemorySink, MemorySource
from headrace_detection.correlate import Correlate
from headrace_detection.correlations import Bounds, Correlation
from headrace_stateful.keys.watermark import event_times_us

from tests.effort import one_in

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = {"ts": "timestamp", "n": "int64", "correlation_version": "string", "correlation_key": "string",
           "correlation_mask": "int64", "correlation_value": "string"}  # fmt: skip
Event = tuple[datetime, int, str, str, int, str | None]


def correlation(kind: str, rules: int, span: int, **bounds: Any) -> Correlation:
    names = tuple(f"r{number}" for number in range(rules))
    return Correlation(
        f"{kind}-{rules}-{span}", kind, names, ("u",), (("u",),) * rules, ((),) * rules, span, Bounds(**bounds)
    )


CORRELATIONS = [
    correlation("event_count", 1, 5, low=3),
    correlation("event_count", 1, 4, low=2, high=3, unequal=(2,)),
    correlation("value_count", 1, 6, low=3),
    correlation("temporal", 3, 5, low=3),
    correlation("temporal", 3, 7, low=2, high=2),
    correlation("temporal_ordered", 3, 9, low=3),
    Correlation("alone", "rule", ("r0",)),
]


def counted(one: Correlation, window: list[Event]) -> int:
    """Return the number of a window, as plainly as it can be said."""
    if one.kind == "event_count":
        return len(window)
    if one.kind == "value_count":
        return len({event[5] for event in window if event[5] is not None})
    if one.kind == "temporal":
        return sum(any(event[4] >> rule & 1 for event in window) for rule in range(len(one.rules)))
    done = 0
    for event in window:
        if done < len(one.rules) and event[4] >> done & 1:
            done += 1
    return done


def model(events: list[Event], output: str) -> list[tuple[Any, ...]]:
    """Return (n, rule, count, events, start) of all alerts."""
    alerts: list[tuple[Any, ...]] = []
    ordered = sorted(events, key=lambda event: event[0])  # stable: equal times stand as they came
    was: dict[tuple[str, str], tuple[datetime, bool]] = {}
    past: dict[tuple[str, str], list[Event]] = {}
    known = {one.version: one for one in CORRELATIONS}
    for event in ordered:
        one, group = known[event[2]], (event[2], event[3])
        if one.kind == "rule":
            alerts.append((event[1], one.id, None, None, None))
            continue
        past.setdefault(group, []).append(event)
        since = event[0] - timedelta(microseconds=one.span_us)
        window = [each for each in past[group] if each[0] >= since]
        count = counted(one, window)
        true = one.bounds.low <= count <= one.bounds.high and count not in one.bounds.unequal
        time, before = was.get(group, (BEGIN, False))
        was[group] = (event[0], true)
        if true and not (output == "first" and before and time >= since):
            alerts.append((event[1], one.id, count, len(window), window[0][0]))
    return alerts


def run(events: list[Event], output: str, chance: random.Random) -> list[tuple[Any, ...]]:
    """Run the operator over events in batches of any size, with stops and starts anew between them."""
    spec, schema = Correlate(CORRELATIONS, on="ts", output=output), Schema.of(COLUMNS)
    operator = spec.open(schema)
    given: list[Any] = []
    frame = pl.DataFrame(events, schema=dict(schema), orient="row")
    times = event_times_us(frame["ts"])
    # Nothing is late: the watermark is the least time that is still to come.
    ahead = [int(times[place:].min()) for place in range(len(events))]
    frame = frame.with_columns(pl.Series(WATERMARK, ahead, dtype=pl.Int64))
    place = 0
    stored: list[bytes] = []
    while place < len(events):
        size = chance.randrange(1, 9)
        part = frame[place : place + size]
        given += list(operator.process(Batch(Queue("0"), part)))
        place += size
        if place < len(events) and chance.random() < 0.5:
            given += list(operator.on_system(Watermark(Queue("0"), ahead[place])))
        if chance.random() < 0.4:
            whole = chance.random() < 0.3
            frozen = operator.frozen(whole=whole)
            # What the operator takes until the bytes are made is not in them, as another thread makes them.
            if place < len(events):
                list(operator.process(Batch(Queue("0"), frame[place : place + 3])))
            assert frozen.write is not None or not frozen.rows, "the bytes are made at once"
            stored = [*([] if whole else stored), frozen.make()]
            operator = spec.open(schema)
            for state in stored:
                if state:
                    operator.apply(state)
    given += list(operator.on_system(EndOfInput()))
    assert operator.late_rows() == 0
    columns = ["n", "rule_id", "correlation_count", "correlation_events", "correlation_start"]
    marks = [mark for each in given for mark in each.frame[WATERMARK].to_list()]
    assert marks == sorted(marks)
    return [row for each in given for row in each.frame.select(columns).rows()]


@pytest.mark.parametrize("output", ["first", "all"])
@pytest.mark.parametrize("seed", one_in(3, range(15)))
def test_alerts_are_those_of_the_model(seed: int, output: str) -> None:
    chance = random.Random(seed)
    events: list[Event] = []
    for number in range(chance.choice([20, 120])):
        one = chance.choice(CORRELATIONS)
        at = BEGIN + timedelta(microseconds=number // 2 + chance.randrange(-4, 5))
        mask = chance.randrange(1, 2 ** len(one.rules))
        events.append((at, number, one.version, chance.choice("ab"), mask, chance.choice([None, "x", "y", "z"])))
    wanted = model(events, output)
    assert wanted
    assert run(events, output, chance) == wanted


def test_late_events_are_counted_and_left_out() -> None:
    spec, schema = Correlate(CORRELATIONS, on="ts"), Schema.of(COLUMNS)
    operator = spec.open(schema)
    version = CORRELATIONS[0].version
    rows = [(BEGIN + timedelta(microseconds=at), at, version, "a", 1, None) for at in (100, 101, 99, 102)]
    begin = int(BEGIN.timestamp()) * 1_000_000
    frame = pl.DataFrame(rows, schema=dict(schema), orient="row")
    frame = frame.with_columns(pl.Series(WATERMARK, [None, begin + 100, begin + 101, begin + 101], dtype=pl.Int64))
    assert not list(operator.process(Batch(Queue("0"), frame)))
    (alerts,) = operator.on_system(EndOfInput())
    assert isinstance(alerts, Batch)
    assert alerts.frame["n"].to_list() == [102]
    assert operator.late_rows() == 1


RULES = """
title: Failed login
name: failed
detection: {selection: {EventID: 4625}, condition: selection}
---
title: Login
name: worked
level: informational
detection: {selection: {EventID: 4624}, condition: selection}
---
title: Guessed password
id: guessed
level: high
tags: [attack.t1110]
correlation:
  type: temporal_ordered
  rules: [failed, worked]
  group-by: [User]
  timespan: 1m
---
title: Sprayed passwords
id: sprayed
correlation:
  type: value_count
  rules: [failed]
  group-by: [Host]
  timespan: 1m
  generate: true
  condition: {field: User, gte: 3}
"""


def test_a_job_from_rules_to_alerts(tmp_path: Any) -> None:
    (tmp_path / "rules.yml").write_text(RULES)
    rows = [
        ("eve", "h1", 4625, 0), ("bob", "h1", 4625, 10), ("eve", "h1", 4625, 20), ("joe", "h1", 4625, 30),
        ("eve", "h1", 4624, 31), (None, "h2", 4624, 32), ("bob", "h1", 4624, 75), ("bob", None, 1, 76),
    ]  # fmt: skip
    bodies = [
        json.dumps(
            {"User": user, "Host": host, "EventID": event, "ts": (BEGIN + timedelta(seconds=at)).isoformat()}
        ).encode()
        for user, host, event, at in rows
    ]
    bodies.append(json.dumps({"User": "eve", "Host": "h9", "EventID": 4624}).encode())
    sink, letters = MemorySink(), MemorySink()
    source = MemorySource({"a": bodies[::2], "b": bodies[1::2]})
    schema = {"User": "string", "Host": "string", "EventID": "int64", "ts": "timestamp"}
    stream = hr.stream("test", "alerts").from_(source, format="json", schema=schema)
    correlated = stream.watermark("ts", delay="1 h").rules(str(tmp_path)).correlate(str(tmp_path), on="ts")
    correlated.dead_letters(lambda bad: bad.to(letters)).to(sink).run("light")
    columns = ("rule_id", "correlation_key", "User", "correlation_count")
    found = sorted(tuple(row[name] for name in columns) for row in sink.rows if row["correlation_key"])
    assert found == [("guessed", '{"User":"eve"}', "eve", 2), ("sprayed", '{"Host":"h1"}', "joe", 3)]
    alone = sorted(row["User"] for row in sink.rows if row["rule_id"] == "failed")
    assert alone == ["bob", "eve", "eve", "joe"], "generate: true gives the rule's own alerts"
    guessed = next(row for row in sink.rows if row["rule_id"] == "guessed")
    assert (guessed["rule_severity"], guessed["rule_labels"]) == ("high", ["attack.t1110"])
    assert guessed["correlation_start"] == BEGIN
    assert guessed["correlation_events"] == 3
    assert [row["reason"] for row in letters.rows] == ["no time in 'ts' to correlate the row by"]
