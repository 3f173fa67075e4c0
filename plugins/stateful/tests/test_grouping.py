"""Groups that compiled code makes are those of polars: columns, types, values and order."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace_stateful.aggregates import grouping
from headrace_stateful.aggregates.aggregates import AggregatePlan, compile_aggregates
from headrace_stateful.aggregates.grouping import Aggregation, First, RowCount
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.effort import examples

TYPES: dict[str, Any] = {
    "text": pl.String(), "number": pl.Int64(), "at": pl.Datetime("us", "UTC"), "small": pl.Int32(), "flag": pl.Boolean(),
    "v": pl.Int64(), "w": pl.Int32(), "x": pl.Float64(),
}  # fmt: skip
PLANS = [
    {"n": "count(*)", "s": "sum(v)"},
    {"n": "count(v)", "s": "sum(w) FILTER (WHERE flag)", "m": "count(*) FILTER (WHERE v > 0)", "a": "count(v, w)"},
    {"n": "count(*)"},
    {"s": "sum(v)", "m": "max(v)"},
    {"a": "avg(v)", "x": "sum(x)"},
]
SOME = pl.datetime_range(dt.datetime(2026, 5, 6), dt.datetime(2026, 5, 6, 0, 0, 2), "1s", eager=True, time_zone="UTC")
values = {
    "text": st.sampled_from(["", "a", "b", "a text of more than twelve bytes", "a text of more than twelve bites"]),
    "number": st.integers(0, 2), "at": st.sampled_from(SOME.to_list()), "small": st.integers(0, 1), "flag": st.booleans(),
    "v": st.none() | st.integers(-(2**63), 2**63 - 1), "w": st.none() | st.integers(-9, 9), "x": st.none() | st.floats(-5, 5),
}  # fmt: skip


@pytest.fixture(scope="module")
def plans() -> list[AggregatePlan]:
    return [compile_aggregates(each, Schema(TYPES)) for each in PLANS]


def both(make: Callable[[], pl.DataFrame]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return a frame as compiled code makes it, where it is there, and as polars does."""
    made = make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "group_sums", lambda: grouping.no_group_sums)
        return made, make()


@settings(max_examples=examples(200), deadline=None)
@given(
    rows=st.lists(st.fixed_dictionaries(values), max_size=30),
    by=st.lists(st.sampled_from(["text", "number", "at", "small", "flag"]), min_size=1, max_size=3, unique=True),
    holes=st.booleans(), which=st.integers(0, len(PLANS) - 1),
)  # fmt: skip
def test_partials_and_what_they_merge_to_are_the_same(
    plans: list[AggregatePlan], rows: list[dict[str, Any]], by: list[str], holes: bool, which: int
) -> None:
    plan, frame = plans[which], pl.DataFrame(rows, schema=TYPES)
    if holes and frame.height:
        frame = frame.with_columns(pl.when(pl.col("small") > 0).then(pl.col(by[0])).alias(by[0]))
    inputs, _ = plan.inputs(frame)
    entries = frame.select(*by, pl.col("x").alias("first"), pl.col("v").alias("second")).hstack(inputs)
    others: list[Aggregation] = [First("first"), RowCount("rows"), First("second")]
    made, expected = both(lambda: plan.partial(entries, by, others=others))
    assert_frame_equal(made, expected)
    assert_frame_equal(*both(lambda: plan.merge(pl.concat([made, made]), by[:1], others=[First("first")])))


def test_every_sum_of_64_bits_is_made_by_compiled_code() -> None:
    plan = compile_aggregates(PLANS[1], Schema(TYPES))
    asked: list[int] = []

    def compiled(keys: Any, numbers: Any) -> None:
        asked.append(len(numbers))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "group_sums", lambda: compiled)
        frame = pl.DataFrame([dict.fromkeys(TYPES)], schema=TYPES).with_columns(text=pl.lit("a"))
        inputs, _ = plan.inputs(frame)
        plan.partial(frame.select("text").hstack(inputs), ["text"], others=[RowCount("rows")])
    assert asked == [1 + len(plan.partials)]
