"""Every keyed verb gives in shared instances, which change while it runs, what it gives in one process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from elastic_world import EVENTS, SharedSink, World, running, while_running
from headrace.jobs.dsl import Stream
from headrace.testing import MemorySink, MemorySource

Build = Callable[[Stream], Stream]


def tumbling(events: Stream) -> Stream:
    return (
        events.key_by("k").window(hr.tumbling("1 min", on="ts")).agg(n="count(*)", s="sum(n)", a="avg(n)", f="min(n)")
    )


def sliding(events: Stream) -> Stream:
    return events.key_by("k").window(hr.sliding("3 min", "1 min", on="ts")).agg(n="count(*)", d="count(distinct n % 5)")


def sessions(events: Stream) -> Stream:
    return events.where("n % 97 < 60").key_by("k").window(hr.session("15 s", on="ts")).agg(n="count(*)", s="sum(n)")


def window_on_window(events: Stream) -> Stream:
    first = events.key_by("k").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)").where("k <> 'last'")
    return first.key_by("n").window(hr.tumbling("1 min", on="window_start")).agg(windows="count(*)")


def without_key(events: Stream) -> Stream:
    return events.where("k <> 'last'").window(hr.tumbling("1 min", on="ts")).agg(n="count(*)", s="sum(n)")


def distinct(events: Stream) -> Stream:
    return events.key_by("k").distinct().select("k")


def within(events: Stream) -> Stream:
    events = events.watermark("ts")
    left, right = events.select("k", "ts", l="n"), events.where("n % 3 = 0").select("k", "ts", r="n")
    return left.join(right, "k", within=("-11 s", "11 s"), time="ts", how="left").select("k", "l", "r")


def same_window(events: Stream) -> Stream:
    events = events.watermark("ts")
    left, right = events.where("n % 2 = 0").select("k", "ts", l="n"), events.where("n % 9 = 1").select("k", "ts", r="n")
    return left.join(right, "k", window=hr.tumbling("1 min", on="ts"), how="full").select("k", "l", "r")


def with_state(events: Stream) -> Stream:
    def add(row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        state["seen"] = state.get("seen", 0) + 1
        if state["seen"] % 10 == 0:
            yield {"k": row["k"], "seen": state["seen"]}

    return events.key_by("k").process(add, schema={"k": "string", "seen": "int64"})


def running_counts(events: Stream) -> Stream:
    return events.key_by("k").agg(n="count(*)", s="sum(n)", most="max(n)")


def counts_of_counts(events: Stream) -> Stream:
    counts = events.where("k <> 'last'").key_by("k").agg(n="count(*)")
    return counts.key_by("n").agg(keys="count(*)").select("n", "keys")


def greatest(events: Stream) -> Stream:
    return events.key_by("k").top_n(2, by="n desc").select("k", "n")


def both_sides(events: Stream) -> Stream:
    counts = events.key_by("k").agg(n="count(*)")
    return counts.join(events.key_by("k").agg(s="sum(n)"), "k", how="left").select("k", "n", "s")


QUICK = [tumbling, sessions, window_on_window, within, counts_of_counts]
SLOW = [sliding, without_key, distinct, same_window, with_state, running_counts, greatest, both_sides]


def table(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in rows if row.get("k") != "last")


@pytest.mark.parametrize("build", [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)])
def test_a_verb_gives_in_shared_instances_what_it_gives_in_one_process(build: Build, tmp_path: Path) -> None:
    world = World(tmp_path, build=build)
    try:
        first = world.start()
        world.send(300)
        while_running(lambda: first.status().records_read >= 100, "records", first)
        world.start()
        world.send(200)
        world.expel_all()
        third = world.start()
        world.send(200)
        first.stop()
        world.expel_all()
        world.send(300)
        world.finish()
        expected = MemorySink()
        bodies = {str(queue): world.broker.records("events", queue) for queue in range(world.queues)}
        events = hr.stream("test", "alone").from_(MemorySource(bodies), format="json", schema=EVENTS)
        build(events).to(expected).run("light", shards=3)
        wanted = table(expected.table())
        assert wanted
        while_running(lambda: table(world.sink().table()) == wanted, "the same results", *running(world.instances))
        assert third.status().error is None
    finally:
        world.close()
    assert table(world.sink().table()) == wanted


def test_all_verbs_are_here() -> None:
    assert len({*QUICK, *SLOW}) == 13
    assert SharedSink.accepts == "changelog"
