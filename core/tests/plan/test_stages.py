"""What backends ask a plan about its keyed stages."""

from __future__ import annotations

import headrace as hr
import pytest
from headrace.foundation.errors import PlanError
from headrace.plan.stages import idle_timeouts_us, tick_seconds, upstream_of
from headrace.testing import MemorySink, MemorySource

SCHEMA = {"k": "string", "n": "int64", "ts": "timestamp"}


def stream(name: str) -> hr.Stream:
    return hr.stream("test", "stages").from_(MemorySource(), format="json", schema=SCHEMA, name=name)


def streams(*names: str) -> list[hr.Stream]:
    pipe = hr.stream("test", "stages")
    return [pipe.from_(MemorySource(), format="json", schema=SCHEMA, name=name) for name in names]


def test_a_job_without_keys_has_no_stages() -> None:
    plan = stream("in").where("n > 1").to(MemorySink()).plan()
    assert upstream_of(plan) == {}
    assert idle_timeouts_us(plan) == {}
    assert tick_seconds(plan) is None


def test_a_shuffle_waits_for_all_sources_whose_rows_come_in() -> None:
    first, second, other = streams("first", "second", "other")
    counts = first.union(second).key_by("k").agg(n="count(*)")
    plan = counts.to(MemorySink()).also(other.to(MemorySink())).plan()
    [shuffle] = plan.shuffles
    assert upstream_of(plan) == {shuffle: (frozenset({"first", "second"}),)}


def test_each_side_of_a_join_waits_for_its_own() -> None:
    left, right = streams("left", "right")
    plan = left.join(right, "k", within=("0 s", "1 s"), time="ts").to(MemorySink()).plan()
    [shuffle] = plan.shuffles
    assert upstream_of(plan) == {shuffle: (frozenset({"left"}), frozenset({"right"}))}


def test_a_shuffle_behind_a_shuffle_waits_for_that() -> None:
    counts = stream("in").key_by("k").agg(n="count(*)")
    plan = counts.key_by("n").agg(keys="count(*)").to(MemorySink()).plan()
    first, second = plan.shuffles
    assert upstream_of(plan) == {first: (frozenset({"in"}),), second: (frozenset({first}),)}


def test_dead_letters_cannot_be_keyed() -> None:
    job = stream("in").dead_letters(lambda bad: bad.key_by("reason").agg(n="count(*)").to(MemorySink(), name="bad"))
    with pytest.raises(PlanError, match="dead letters cannot be divided by key"):
        upstream_of(job.to(MemorySink(), name="out").plan())


def test_the_shortest_time_of_silence_counts() -> None:
    first, second, third = streams("first", "second", "third")
    job = (
        first.watermark("ts", idle_timeout="5 s").to(MemorySink(), name="a")
        .also(first.watermark("ts", idle_timeout="2 s").to(MemorySink(), name="b"))
        .also(second.watermark("ts", idle_timeout=None).to(MemorySink(), name="c"), third.to(MemorySink(), name="d"))
    )  # fmt: skip
    assert idle_timeouts_us(job.plan()) == {"first": 2_000_000}


def test_ticks_come_as_often_as_any_verb_asks() -> None:
    keyed = stream("in").key_by("k")
    often = keyed.window(hr.tumbling("10 s")).agg(n="count(*)").to(MemorySink(), name="often")
    never = keyed.distinct().to(MemorySink(), name="never")
    assert tick_seconds(never.plan()) is None
    asked = tick_seconds(often.plan())
    assert asked is not None
    assert tick_seconds(never.also(often).plan()) == asked
