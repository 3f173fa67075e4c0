"""Reduce and process: users' functions per row, with values, state and timers per key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from headrace.flow.messages import ChangeKind, EndOfInput, Tick, Watermark
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, FunctionError, PlanError
from headrace.interfaces.operator import Changes
from headrace_stateful.aggregates.process import Process
from headrace_stateful.aggregates.reduce import Reduce
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

from .stateful_driver import QUEUE, Run, batch_of

SCHEMA = Schema.of({"k": "string", "v": "float64", "tags": "array<string>"})


def add(value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    assert isinstance(value["v"], float)
    if row["v"] == 13:
        raise ValueError("thirteen")
    return {"k": "ignored", "v": int(value["v"] + row["v"]), "tags": [*value["tags"], *row["tags"]]}


@given(
    st.lists(
        st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from([0, 1, 2, 13]), st.integers(0, 4)), max_size=25
    )
)
@settings(max_examples=examples(80), deadline=None)
def test_reduce_is_its_model(steps: list[Any]) -> None:
    spec = Reduce(["k"], add)
    run = Run(lambda: spec.open(SCHEMA))
    model: dict[Any, Any] = {}
    waiting: list[Any] = []
    for key, value, what in [*steps, (None, 0, 0)]:
        if what == 0 and waiting:
            run.give(batch_of(waiting, dict(SCHEMA), watermarks=[None] * len(waiting)))
            waiting = []
            table: dict[Any, Any] = {}
            for (_, row), kind in zip(run.rows, run.kinds, strict=True):
                if kind == ChangeKind.UPDATE_BEFORE:
                    assert table.pop(row[0]) == row
                else:
                    assert row[0] not in table
                    table[row[0]] = row
            assert table == {name: (name, *values) for name, values in model.items()}
        if what == 1 and not waiting:
            run.store()
            run.restart()
        tags = [str(value)]
        waiting.append((key, float(value), tags))
        if key not in model:
            model[key] = (float(value), tags)
        elif value != 13:
            model[key] = (model[key][0] + value, [*model[key][1], *tags])
    assert all("thirteen" in reason for reason in run.rejected)


def test_reduce_of_some_columns() -> None:
    spec = Reduce(["k"], lambda one, other: {"v": max(one["v"], other["v"])}, schema={"v": "float64"})
    assert list(spec.output_schema(SCHEMA) or ()) == ["k", "v"]
    run = Run(lambda: spec.open(SCHEMA))
    run.give(batch_of([("a", 1.0, []), ("a", 3.0, []), ("a", 2.0, [])], dict(SCHEMA)))
    assert [row for _, row in run.rows] == [("a", 3.0)]
    with pytest.raises(PlanError, match="has the type Int64"):
        Reduce(["k"], add, schema={"v": "int64"}).output_schema(SCHEMA)
    with pytest.raises(PlanError, match="cannot retract rows"):
        spec.changes(Changes(None))


def test_reduce_says_what_does_not_fit() -> None:
    run = Run(lambda: Reduce(["k"], lambda one, other: {**one, "v": "text", "w": 1}).open(SCHEMA))
    run.give(batch_of([("a", 1.0, []), ("a", 2.0, [])], dict(SCHEMA)))
    assert "column 'w'" in run.rejected[0]
    run = Run(lambda: Reduce(["k"], lambda one, other: {**one, "v": "text"}).open(SCHEMA))
    run.give(batch_of([("a", 1.0, []), ("a", 2.0, [])], dict(SCHEMA)))
    assert "another type than its schema" in run.rejected[0]
    assert [row for _, row in run.rows] == [("a", 1.0, [])]


EVENTS = Schema.of({"k": "string", "ts": "timestamp", "n": "int64"})
OUTPUT = {"k": "string", "what": "string", "n": "int64", "at": "timestamp"}


def instant(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


class Visits:
    """Counts rows until 10 µs of event time after the last one; then says how many, and forgets."""

    def process(self, row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        if state.get("until"):
            timers.cancel_event_time(state["until"])
        state["n"] = state.get("n", 0) + row["n"]
        state["until"] = row["ts"] + timedelta(microseconds=10)
        timers.at_event_time(state["until"])
        yield {"k": row["k"], "what": "so far", "n": state["n"], "at": timers.watermark}
        if row["n"] == 13:
            raise ValueError("thirteen")

    def on_timer(self, key: Any, time: datetime, state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        yield {"k": key, "what": "ended", "n": state["n"], "at": time}
        state.clear()


def visits_model(rows: Sequence[tuple[Any, int, int, int | None]], last: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    sessions: dict[Any, list[int]] = {}  # key: n, until, order

    def fire(mark: int | None) -> None:
        due = [(until, order, key) for key, (_, until, order) in sessions.items() if mark is not None and until <= mark]
        for until, _, key in sorted(due, key=lambda each: each[:2]):
            found.append((key, "ended", sessions.pop(key)[0], instant(until)))

    for order, (key, time, n, mark) in enumerate(rows):
        fire(mark)
        if n == 13:
            continue
        before = sessions.get(key, [0, 0, 0])
        if before[1] == time + 10:
            order = before[2]  # the same timer taken back and set again is set anew
        sessions[key] = [before[0] + n, time + 10, order if before[1] != time + 10 else len(rows) + order]
        found.append((key, "so far", before[0] + n, None if mark is None else instant(mark)))
    fire(last)
    fire(2**40)
    return found


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", None]), st.integers(0, 60), st.sampled_from([1, 2, 13]), st.integers(0, 4)
        ),
        max_size=25,
        unique_by=lambda each: each[1],
    )
)
@settings(max_examples=examples(100), deadline=None)
def test_process_is_its_model_wherever_the_input_is_cut(steps: list[Any]) -> None:
    rows, reached = [], None
    for key, time, n, _ in steps:
        rows.append((key, time, n, reached))
        reached = time if reached is None else max(reached, time)
    run = Run(lambda: Process(["k"], Visits, schema=OUTPUT, on="ts").open(EVENTS))
    waiting: list[Any] = []

    def flush() -> None:
        if waiting:
            user = [(key, instant(time), n) for key, time, n, _ in waiting]
            run.give(batch_of(user, dict(EVENTS), watermarks=[mark for *_, mark in waiting]))
            waiting.clear()

    for row, (_, _, _, what) in zip(rows, steps, strict=True):
        if what == 0:
            flush()
        if what == 1:
            flush()
            run.store(whole=row[1] % 2 == 0)
            run.restart()
        if what == 2 and row[3] is not None:
            flush()
            run.tell(Watermark(QUEUE, row[3]))
        waiting.append(row)
    flush()
    if reached is not None:
        run.tell(Watermark(QUEUE, reached))
    run.tell(EndOfInput())
    assert [row for _, row in run.rows] == visits_model(rows, -1 if reached is None else reached)
    assert len(run.rejected) == sum(n == 13 for _, _, n, _ in steps)
    assert run.operator.state_rows() == 0
    run.check_watermarks()


@pytest.mark.parametrize("whole", [True, False])
def test_a_checkpoint_of_process_leaves_the_bytes_for_later(whole: bool) -> None:
    """Another thread makes them while the function takes rows; they have what was there before."""
    operator, twin = (Process(["k"], Visits, schema=OUTPUT, on="ts").open(EVENTS) for _ in range(2))
    before = [batch_of([(str(place), instant(place), 1)], dict(EVENTS)) for place in range(50)]
    for batch in before:
        list(operator.process(batch))
        list(twin.process(batch))
    frozen = operator.frozen(whole=whole)
    for place in range(40, 90):
        list(operator.process(batch_of([(str(place), instant(place), 2)], dict(EVENTS))))
    assert frozen.write is not None, "the bytes were made at once"
    assert frozen.rows == 100  # keys and timers
    assert frozen.make() == (twin.snapshot() if whole else twin.delta())


def test_timers_of_processing_time() -> None:
    def echo(row: dict[str, Any], state: dict[str, Any], timers: Any) -> None:
        state["seen"] = [*state.get("seen", []), row["n"]]
        timers.at_processing_time(timers.now + timedelta(microseconds=100))

    def later(key: Any, time: datetime, state: dict[str, Any], timers: Any) -> list[dict[str, Any]]:
        return [{"k": key, "n": len(state.pop("seen")), "at": time}]

    echo.on_timer = later  # type: ignore[attr-defined]
    run = Run(lambda: Process(["k"], echo, schema=OUTPUT).open(EVENTS))
    for at in (1000, 1000, 1050):
        run.tell(Tick(at))
        run.give(batch_of([("a", None, 1)], dict(EVENTS)))
    run.tell(Tick(1099))
    run.store()
    run.restart()
    assert run.rows == []
    run.tell(Tick(1100))
    assert [row for _, row in run.rows] == [("a", None, 3, instant(1100))]


def test_a_timer_that_fails_stops_the_job() -> None:
    def set_timer(row: dict[str, Any], state: dict[str, Any], timers: Any) -> None:
        timers.at_event_time(row["ts"])

    def fail(key: Any, time: datetime, state: dict[str, Any], timers: Any) -> None:
        raise ValueError("broken")

    set_timer.on_timer = fail  # type: ignore[attr-defined]
    run = Run(lambda: Process(["k"], set_timer, schema=OUTPUT, on="ts").open(EVENTS))
    run.give(batch_of([("a", instant(5), 1)], dict(EVENTS), watermarks=[None]))
    with pytest.raises(DataError, match=r"on_timer failed for the key 'a' at 1970-01-01.*broken"):
        run.tell(Watermark(QUEUE, 5))


def test_a_timer_that_sets_itself_anew_has_an_end() -> None:
    def start(row: dict[str, Any], state: dict[str, Any], timers: Any) -> None:
        timers.at_event_time(row["ts"])

    def again(key: Any, time: datetime, state: dict[str, Any], timers: Any) -> Any:
        timers.at_event_time(time + timedelta(microseconds=10))
        return [{"k": key, "at": time}]

    start.on_timer = again  # type: ignore[attr-defined]
    run = Run(lambda: Process(["k"], start, schema=OUTPUT, on="ts").open(EVENTS))
    run.give(batch_of([("a", instant(5), 1)], dict(EVENTS), watermarks=[None]))
    run.tell(Watermark(QUEUE, 30))
    run.tell(EndOfInput())
    assert [row[3] for _, row in run.rows] == [instant(5), instant(15), instant(25), instant(35)]


def test_functions_with_other_parameters_are_refused() -> None:
    with pytest.raises(FunctionError, match="does not accept the arguments"):
        Process(["k"], lambda row: None, schema=OUTPUT)
    with pytest.raises(FunctionError, match="is not a function"):
        Process(["k"], 5, schema=OUTPUT)
