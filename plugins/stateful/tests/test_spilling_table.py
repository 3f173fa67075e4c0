"""State with a limit for its memory says the same as state without one: rows, state, restarts, crashes at any place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from headrace.flow.messages import ChangeKind, Tick
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Changes
from headrace_stateful.aggregates.aggregate import Aggregate
from headrace_stateful.aggregates.distinct import Distinct
from headrace_stateful.keys.row_bytes import RowBytes, unsuited
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

from .spilling_world import DictStore, SpillingRun, contents
from .stateful_driver import Run, batch_of

SCHEMA: dict[str, Any] = {"k": pl.Int64(), "f": pl.Float64(), "t": pl.String(), "v": pl.Int64(), "w": pl.Float64()}
FLOATS = [None, 0.0, -0.0, float("nan"), 1.5]
ROW = st.tuples(
    st.one_of(st.none(), st.integers(0, 60)),
    st.sampled_from(FLOATS),
    st.sampled_from([None, "", "a", "é" * 9]),
    st.one_of(st.none(), st.integers(-5, 5)),
    st.sampled_from([None, 0.1, -2.5, 1e300, float("inf")]),
)
STEP = st.one_of(
    st.tuples(st.just("rows"), st.lists(ROW, max_size=12), st.booleans()),
    st.tuples(st.sampled_from(["checkpoint", "checkpoint", "crash", "crash before", "lost", "memory"])),
    st.tuples(st.just("tick"), st.integers(0, 3)),
)
AGGREGATES = {"n": "count(*)", "s": "sum(v)", "a": "avg(w)", "c": "count(t)"}
MORE = {**AGGREGATES, "m": "max(t)", "l": "min(w)", "d": "last(t)", "e": "stddev(w)"}


def spec_of(keys: tuple[str, ...], *, takes_back: bool, ttl: timedelta | None) -> Aggregate:
    spec = Aggregate(keys, AGGREGATES if takes_back else MORE, ttl=ttl)
    spec.changes(Changes(None) if takes_back else None)
    return spec


def drive(make: Callable[[], Any], steps: list[tuple[Any, ...]], memory_bytes: int, *, takes_back: bool) -> SpillingRun:
    """Give the same to an operator with and one without a limit, and compare."""
    plain, run = Run(make), SpillingRun(make, memory_bytes)
    now, first = 0, 0
    there: list[Any] = []
    for step in steps:
        if step[0] == "rows":
            rows, kinds = list(step[1]), [ChangeKind.INSERT] * len(step[1])
            if takes_back and step[2] and there:
                rows, kinds = there[: len(rows) + 1], [ChangeKind.DELETE] * (len(rows) + 1)
                kinds = kinds[: len(rows)]
                del there[: len(rows)]
            elif takes_back:
                there += rows
            if not rows:
                continue
            batch = batch_of(rows, SCHEMA, kinds=kinds if takes_back else None, first=first)
            first += len(rows)
            for each in (plain, run):
                each.tell(Tick(now))  # as every entry begins
                each.give(batch)
        elif step[0] == "tick":
            now += step[1] * 1_000_000
            plain.tell(Tick(now))
            run.tell(Tick(now))
        elif step[0] == "checkpoint":
            run.checkpoint()
        elif step[0] == "crash":
            run.crash()
        elif step[0] == "crash before":
            run.checkpoint(crash_before=True)
        elif step[0] == "lost":
            run.store = DictStore()
            run.crash()
        else:
            run.checkpoint()
            run.begin_again(memory_bytes=memory_bytes * 2)
    assert repr(run.run.rows) == repr(plain.rows)
    assert run.run.kinds == plain.kinds
    compare(plain, run, now)
    return run


def compare(plain: Run, run: SpillingRun, now: int) -> None:
    run.checkpoint()
    for each in (plain.operator, run.operator, stored := run.plain()):
        list(each.on_system(Tick(now)))  # what is too old is forgotten when time is told
    wanted = contents(plain.operator.snapshot())
    assert contents(stored.snapshot()) == wanted
    assert contents(run.operator.snapshot()) == wanted
    assert run.operator.state_rows() == plain.operator.state_rows()


@given(
    st.lists(STEP, max_size=30),
    st.sampled_from([("k",), ("f",), ("t",), ("k", "f", "t"), ()]),
    st.booleans(),
    st.sampled_from([None, timedelta(seconds=2)]),
    st.sampled_from([1, 4_000]),
)
@settings(max_examples=examples(40), deadline=None)
def test_running_aggregates(
    steps: list[tuple[Any, ...]], keys: tuple[str, ...], takes_back: bool, ttl: timedelta | None, memory_bytes: int
) -> None:
    spec = spec_of(keys, takes_back=takes_back, ttl=ttl)
    schema = Schema(SCHEMA)
    assert spec.stays_in_memory(schema) is None
    drive(lambda: spec.open(schema), steps, memory_bytes, takes_back=takes_back)


def both_rows(make: Callable[[], Any], batches: list[list[Any]], memory_bytes: int) -> SpillingRun:
    plain, run = Run(make), SpillingRun(make, memory_bytes)
    for place, rows in enumerate(batches):
        batch = batch_of(rows, SCHEMA, first=place * 1000)
        plain.give(batch)
        run.give(batch)
        if place % 3 == 2:
            run.checkpoint()
        if place % 7 == 6:
            run.crash()
    assert run.run.rows == plain.rows
    assert run.run.kinds == plain.kinds
    compare(plain, run, 0)
    return run


def test_rows_that_leave_memory_come_back() -> None:
    spec = spec_of(("k",), takes_back=False, ttl=None)
    batches = [[((at * 37 + place) % 500, 1.0, "a", at, 0.5) for place in range(50)] for at in range(30)]
    run = both_rows(lambda: spec.open(Schema(SCHEMA)), batches, 1)
    assert isinstance(run.store, DictStore)
    assert len(run.store.rows) > 350
    assert run.operator._table.index.end < 400  # type: ignore[attr-defined]


def test_versions_roll_out_of_the_chain() -> None:
    spec = spec_of(("k",), takes_back=False, ttl=None)
    run = SpillingRun(lambda: spec.open(Schema(SCHEMA)), 1)
    run.give(batch_of([(key, 1.0, "a", 1, 0.5) for key in range(200)], SCHEMA))
    run.checkpoint()
    for at in range(60):
        run.give(batch_of([((at * 13 + place) % 200, 1.0, "a", 1, 0.5) for place in range(20)], SCHEMA))
        run.checkpoint()
        if at % 10 == 9:
            assert sum(row for row in run.plain()._table.snapshot()["set"]["__hr_p0"]) == 200 + (at + 1) * 20
    assert run.chain[0][0] > 30
    compare_states(run)


def compare_states(run: SpillingRun) -> None:
    assert contents(run.plain().snapshot()) == contents(run.operator.snapshot())


def test_distinct() -> None:
    spec = Distinct(("k", "t"))
    assert spec.stays_in_memory(Schema(SCHEMA)) is None
    spec.output_schema(Schema(SCHEMA))
    batches = [[((at * 11 + place) % 300, 1.0, str(place % 5), at, 0.5) for place in range(30)] for at in range(50)]
    both_rows(lambda: spec.open(Schema(SCHEMA)), batches, 1)


def test_what_the_local_store_has_is_used_after_a_crash() -> None:
    spec = spec_of(("k",), takes_back=False, ttl=None)
    run = SpillingRun(lambda: spec.open(Schema(SCHEMA)), 1)
    run.give(batch_of([(key, 1.0, "a", 1, 0.5) for key in range(200)], SCHEMA))
    run.checkpoint()
    run.give(batch_of([(key, 1.0, "a", 1, 0.5) for key in range(100)], SCHEMA))
    run.checkpoint()
    for _ in range(3):  # one starts writing, one goes on, one knows that all is written
        run.give(batch_of([(key, 1.0, "a", 1, 0.5) for key in range(300, 340)], SCHEMA))
        run.checkpoint()
    run.give(batch_of([(key, 1.0, "a", 1, 0.5) for key in range(340, 350)], SCHEMA))
    run.crash()
    assert run.reused == 1
    assert run.operator.state_rows() == 250


def test_rows_of_another_chain_are_not_used() -> None:
    spec = spec_of(("k",), takes_back=False, ttl=None)
    run = SpillingRun(lambda: spec.open(Schema(SCHEMA)), 1)
    for at in range(6):
        run.give(batch_of([(key, 1.0, "a", 1, 0.5) for key in range(at * 100, at * 100 + 100)], SCHEMA))
        run.checkpoint()
    run.give(batch_of([(700, 1.0, "a", 1, 0.5)], SCHEMA))  # some row leaves, as it is in the last version
    run.begin()
    assert run.reused == 1
    run.chain.pop()  # somebody has put an older checkpoint in its place
    run.begin()
    assert run.reused == 1
    assert run.operator.state_rows() == 500


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pl.Int128(), -(2**100) - 1),
        (pl.Decimal(30, 4), "12345.6789"),
        (pl.Datetime("us", "UTC"), 1_000_000),
        (pl.Date(), 1000),
        (pl.Duration("ms"), 5),
        (pl.Boolean(), True),
        (pl.UInt8(), 200),
        (pl.Binary(), b"\x00\x01"),
        (pl.Enum(["a", "b"]), "b"),
        (pl.Float32(), 1.5),
        (pl.Time(), 1000),
    ],
)
def test_rows_as_bytes(kind: pl.DataType, value: Any) -> None:
    column = (
        pl.Series("c", [value, None, value]).cast(kind)
        if kind != pl.Int128()
        else pl.Series("c", [value, None, value], dtype=kind)
    )
    frame = pl.DataFrame({"c": column, "t": ["x", None, ""], "n": [1, 2, None]})
    layout = RowBytes(dict(frame.schema))
    assert layout.frame(layout.rows(frame)).equals(frame)
    assert layout.frame(layout.rows(frame)).schema == frame.schema


def test_lists_stay_in_memory() -> None:
    assert unsuited({"a": pl.Int64(), "b": pl.List(pl.Int64())}) == "b (List(Int64))"
    reason = Aggregate(("k",), {"c": "collect_list(v)"}).stays_in_memory(Schema(SCHEMA))
    assert reason is not None
    assert "lists" in reason


def test_rows_that_were_taken_back_do_not_come_back_from_disk() -> None:
    spec = spec_of(("k",), takes_back=True, ttl=None)
    make = lambda: spec.open(Schema(SCHEMA))  # noqa: E731
    plain, run = Run(make), SpillingRun(make, 1)

    def both(keys: range, kind: int) -> None:
        batch = batch_of([(key, 1.0, "a", key, 0.5) for key in keys], SCHEMA, kinds=[kind] * len(keys))
        plain.give(batch)
        run.give(batch)

    for at in range(4):
        both(range(at * 50, at * 50 + 50), ChangeKind.INSERT)
        run.checkpoint()
    both(range(80), ChangeKind.DELETE)
    both(range(50), ChangeKind.INSERT)
    assert (run.run.rows, run.run.kinds) == (plain.rows, plain.kinds)
    compare(plain, run, 0)
    both(range(60, 90), ChangeKind.INSERT)
    assert (run.run.rows, run.run.kinds) == (plain.rows, plain.kinds)
    compare(plain, run, 0)


def test_rows_of_an_unfinished_checkpoint_stay_in_memory() -> None:
    spec = spec_of(("k",), takes_back=False, ttl=None)
    run = SpillingRun(lambda: spec.open(Schema(SCHEMA)), 1)
    run.give(batch_of([(key, 1.0, "a", 1, 0.5) for key in range(50)], SCHEMA))
    run.operator.delta()
    run.give(batch_of([(key, 1.0, "a", 1, 0.5) for key in range(100, 150)], SCHEMA))
    assert isinstance(run.store, DictStore)
    assert not run.store.rows
    run.operator.settle((1, "x"))
    run.give(batch_of([(key, 1.0, "a", 1, 0.5) for key in range(200, 250)], SCHEMA))
    assert len(run.store.rows) > 30


def test_a_checkpoint_is_wanted_when_much_has_changed() -> None:
    spec = spec_of(("k",), takes_back=False, ttl=None)
    run = SpillingRun(lambda: spec.open(Schema(SCHEMA)), 10_000_000)
    run.operator._table._local.changed_max = 100  # type: ignore[attr-defined]
    for at in range(3):
        run.give(batch_of([(key, 1.0, "a", 1, 0.5) for key in range(at * 40, at * 40 + 40)] * 2, SCHEMA))
        assert run.operator.wants_checkpoint == (at == 2)
    run.checkpoint()
    assert not run.operator.wants_checkpoint
