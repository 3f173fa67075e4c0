"""Processing time goes on while nothing comes: what is due by the clock is given, and what has lived its time is forgotten.

The clock of these tests moves when the idle engine waits, so that every pause brings time on and nobody sleeps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.jobs.dsl import Stream
from headrace.testing import MemorySink, MemorySource
from headrace_light.backend import LightBackend
from headrace_light.settings import LightSettings
from test_idle_engine import EngineClock, running

from tests.eventually import eventually

SCHEMA = {"k": "string", "v": "int64"}
Build = Callable[[Stream, Stream], Stream]


def body(k: str, v: int) -> bytes:
    return json.dumps({"k": k, "v": v}).encode()


def sink_at_once() -> MemorySink:
    return MemorySink(hr.SinkSettings(flush_interval=timedelta(0)))


class Later:
    """Gives a row five seconds after the last one of its key."""

    def process(self, row: dict[str, Any], state: dict[str, Any], timers: Any) -> None:
        if "at" in state:
            timers.cancel_processing_time(timers.now.fromisoformat(state["at"]))
        due = timers.now + timedelta(seconds=5)
        state["at"] = due.isoformat()
        timers.at_processing_time(due)

    def on_timer(self, key: str, time: Any, state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        state.clear()
        yield {"k": key, "n": 1}


def windowed(window: hr.Window, **options: Any) -> Build:
    return lambda rows, _: rows.key_by("k").window(window, **options).agg(n="count(*)")


#: What is due by the clock after one row of key "a" on the first side: the name, how it is built, and n of the results.
GIVES: list[tuple[str, Build, list[int | None]]] = [
    ("tumbling", windowed(hr.tumbling("10 s")), [1]),
    ("sliding", windowed(hr.sliding("10 s", "5 s")), [1, 1]),
    ("cumulative", windowed(hr.cumulative("10 s", "5 s")), [1, 1]),
    ("session", windowed(hr.session("10 s")), [1]),
    ("early", windowed(hr.tumbling("100 s"), emit=hr.emit(before="10 s")), [1, 1, 1]),
    ("session with early results", windowed(hr.session("30 s"), emit=hr.emit(before="10 s")), [1, 1, 1]),
    ("all rows", lambda rows, _: rows.window(hr.tumbling("10 s")).agg(n="count(*)"), [1]),
    ("reduce", lambda rows, _: rows.key_by("k").window(hr.tumbling("10 s")).reduce(lambda a, b: a).select("k", n="v"), [7]),
    ("timer", lambda rows, _: rows.key_by("k").process(Later, schema={"k": "string", "n": "int64"}), [1]),
    (
        "window join",
        lambda rows, others: rows.join(others, "k", how="left", window=hr.tumbling("10 s"), suffix="_r").select("k", n="v"),
        [7],
    ),
    (
        "interval join",
        lambda rows, others: rows.join(others, "k", how="left", within=("0 s", "10 s"), by_clock=True).select("k", n="v_right"),
        [None],
    ),
    (
        "anti join",
        lambda rows, others: rows.join(others, "k", how="anti", within=("0 s", "10 s"), by_clock=True).select("k", n="v"),
        [7],
    ),
    (
        "second stage",
        lambda rows, _: rows.key_by("k").distinct().key_by("v").window(hr.tumbling("10 s")).agg(n="count(*)"),
        [1],
    ),
]  # fmt: skip


def job_of(build: Build, sink: MemorySink) -> tuple[hr.Job, MemorySource, MemorySource]:
    left, right = MemorySource({"q": []}), MemorySource({"q": []})
    streams = [
        hr.stream("test", "clock").from_(source, format="json", schema=SCHEMA, name=name)
        for name, source in (("left", left), ("right", right))
    ]
    return build(*streams).to(sink), left, right


@pytest.mark.parametrize(("build", "wanted"), [case[1:] for case in GIVES], ids=[case[0] for case in GIVES])
def test_what_is_due_comes_while_the_source_is_idle(build: Build, wanted: list[int | None]) -> None:
    sink = sink_at_once()
    job, left, _ = job_of(build, sink)
    clock = EngineClock()
    clock.stands = True
    with running(job, clock) as handle:
        left.append("q", body("a", 7))
        eventually(lambda: handle.status().records_read == 1, "the row")
        assert sink.rows == []
        clock.stands = False
        eventually(lambda: len(sink.rows) >= len(wanted), "what is due by the clock")
        assert [row["n"] for row in sink.rows] == wanted


#: What forgets by the clock, without giving anything.
FORGETS: list[tuple[str, Build]] = [
    ("running aggregate", lambda rows, _: rows.key_by("k").ttl("10 s").agg(n="count(*)")),
    ("distinct", lambda rows, _: rows.key_by("k").ttl("10 s").distinct()),
    ("reduce", lambda rows, _: rows.key_by("k").ttl("10 s").reduce(lambda a, b: a)),
    ("first row", lambda rows, _: rows.key_by("k").ttl("10 s").deduplicate()),
    ("last row", lambda rows, _: rows.key_by("k").ttl("10 s").deduplicate(keep="last", by="v")),
    ("top n", lambda rows, _: rows.key_by("k").ttl("10 s").top_n(2, by="v")),
    ("join", lambda rows, others: rows.join(others, "k", ttl="10 s")),
    ("interval join", lambda rows, others: rows.join(others, "k", within=("0 s", "10 s"), by_clock=True)),
    ("window join", lambda rows, others: rows.join(others, "k", window=hr.tumbling("10 s"))),
]


@pytest.mark.parametrize("build", [case[1] for case in FORGETS], ids=[case[0] for case in FORGETS])
def test_what_has_lived_its_time_is_forgotten_while_the_source_is_idle(build: Build) -> None:
    job, left, _ = job_of(build, sink_at_once())
    clock = EngineClock()
    clock.stands = True
    with running(job, clock) as handle:
        left.append("q", *(body(f"k{number}", number) for number in range(20)))
        eventually(lambda: handle.status().state_rows == 20, "state")
        clock.stands = False
        eventually(lambda: handle.status().state_rows == 0, "it is forgotten")


def test_one_side_that_goes_on_does_not_hold_up_the_clock_of_the_other() -> None:
    """Rows of one key come all the time; the windows of another, in another shard, close all the same."""
    sink = sink_at_once()
    job, left, right = job_of(lambda a, b: a.union(b).key_by("k").window(hr.tumbling("10 s")).agg(n="count(*)"), sink)
    with running(job, EngineClock(), shards=4):
        left.append("q", body("idle", 1))
        for number in range(200):
            right.append("q", body("busy", number))
            if any(row["k"] == "idle" for row in sink.rows):
                break
            seen = len(sink.rows)
            eventually(lambda seen=seen: len(sink.rows) > seen, "a window of either key")  # type: ignore[misc]
        assert [row["n"] for row in sink.rows if row["k"] == "idle"] == [1]


def test_a_source_that_ends_leaves_the_clock_to_the_others(tmp_path: Path) -> None:
    """A queue that vanishes, and one that is silent: windows close by the clock."""
    sink = sink_at_once()
    job, left, right = job_of(lambda a, b: a.union(b).key_by("k").window(hr.tumbling("10 s")).agg(n="count(*)"), sink)
    with running(job, EngineClock()) as handle:
        left.append("q", body("a", 1))
        right.append("q", body("b", 1))
        left.remove_queue("q")
        closed = "the window of the queue that is there"
        eventually(lambda: {row["k"] for row in sink.rows} >= {"b"}, closed, shown=handle.status)


def test_an_idle_job_that_is_killed_gives_what_was_due_once(tmp_path: Path) -> None:
    """Ticks are entries: after a restart they are done again at their times, and then the clock goes on."""
    source, clock = MemorySource({"q": [body("a", 7)]}), EngineClock()
    first, second = sink_at_once(), sink_at_once()

    def started(sink: MemorySink) -> Any:
        stream = hr.stream("test", "clock").from_(source, format="json", schema=SCHEMA)
        job = stream.key_by("k").window(hr.tumbling("1 h")).agg(n="count(*)").to(sink)
        options = hr.RunOptions(until=None, checkpoint=str(tmp_path), checkpoint_interval=timedelta(seconds=30))
        return LightBackend(LightSettings(), clock).start(job.plan(options), options)

    handle = started(first)
    eventually(lambda: handle.status().state_rows == 1 and handle.status().checkpoint_id > 2, "checkpoints while idle")
    assert first.rows == []
    handle.stop()
    handle = started(second)
    eventually(lambda: [row["n"] for row in second.rows] == [1], "the window")
    handle.stop()
    assert first.rows == []


def test_a_checkpoint_while_idle_keeps_timers(tmp_path: Path) -> None:
    source, clock = MemorySource({"q": [body("a", 7)]}), EngineClock()
    sinks = [sink_at_once(), sink_at_once()]
    for sink, stop_at_once in zip(sinks, (True, False), strict=True):
        stream = hr.stream("test", "clock").from_(source, format="json", schema=SCHEMA)
        job = stream.key_by("k").process(Later, schema={"k": "string", "n": "int64"}).to(sink)
        options = hr.RunOptions(until=None, checkpoint=str(tmp_path), checkpoint_interval=timedelta(hours=1))
        handle = LightBackend(LightSettings(), clock).start(job.plan(options), options)
        if not stop_at_once:
            eventually(lambda sink=sink: sum(len(each.rows) for each in sinks) == 1, "the timer")  # type: ignore[misc]
        else:
            eventually(lambda handle=handle: handle.status().records_read == 1, "the row")  # type: ignore[misc]
        handle.stop()
    assert [row for sink in sinks for row in sink.rows] == [{"k": "a", "n": 1}]


def test_queues_that_appear_while_idle_are_found() -> None:
    sink = sink_at_once()
    job, left, _ = job_of(windowed(hr.tumbling("10 s")), sink)
    with running(job, EngineClock()):
        left.append("q", body("a", 1))
        eventually(lambda: len(sink.rows) == 1, "the first window")
        left.append("new", body("b", 1))
        eventually(lambda: [row["k"] for row in sink.rows] == ["a", "b"], "the window of the new queue")


@pytest.mark.parametrize("reliability", ["high", "fast"])
def test_shared_shards_are_told_of_the_clock(reliability: str, tmp_path: Path) -> None:
    from elastic_world import SharedSink, World

    clock = EngineClock()
    world = World(tmp_path, queues=2, build=lambda rows: rows.key_by("k").window(hr.tumbling("10 s")).agg(n="count(*)"))
    options = hr.RunOptions(until=None, checkpoint=str(tmp_path / "0"))
    settings = LightSettings(reliability=reliability, shards=3)  # type: ignore[arg-type]
    handle = LightBackend(settings, clock).start(world.job().plan(options), options)
    try:
        world.send(20)

        def counted() -> bool:
            clock.advance(0.5)
            return bool(sum(row["n"] for row in SharedSink(world.table).rows) == 20)

        eventually(counted, "windows of all rows")
    finally:
        handle.stop()
