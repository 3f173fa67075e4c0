"""A shard that begins before its state is here gives what one gives that has had it all along."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import msgspec
import polars as pl
import pytest
from elastic_world import EVENTS, World, running, while_running
from headrace.flow.messages import INDEX, OFFSET, WATERMARK, Queue
from headrace.foundation.errors import CheckpointError, RetriableError
from headrace.interfaces import state_parts
from headrace.interfaces.hookspecs import hookimpl
from headrace.interfaces.registry import default_registry
from headrace.jobs.dsl import Stream
from headrace.plan.graph import Plan
from headrace.runtime.shard import Shard, ShardOutput
from headrace.runtime.shuffle import ShardMessage
from headrace.testing import MemorySink, MemorySource
from headrace_light.stages.shard_storage import ShardStorage, headed
from keyed_memory_store import KeyedMemorySettings, KeyedMemoryStore, places

Build = Callable[[Stream], Stream]
SCHEMA = {"k": "string", "n": "int64", "ts": "timestamp"}
UPSTREAM = Queue("0", "source")
SHARD = "key_by/0"


def counts(events: Stream) -> Stream:
    return events.key_by("k").agg(n="count(*)", s="sum(n)", most="max(n)", d="count(distinct n % 3)", f="first(n)")


def counts_by_two(events: Stream) -> Stream:
    return events.key_by("k", odd="n % 2").agg(n="count(*)", a="avg(n)")


def changed_counts(events: Stream) -> Stream:
    """Rows are taken back, and keys come and go with them: slots are used again."""
    return events.key_by("k").agg(n="count(*)").key_by("n").agg(keys="count(*)")


def for_an_hour(events: Stream) -> Stream:
    return events.key_by("k").ttl("1 h").agg(n="count(*)")


def distinct(events: Stream) -> Stream:
    return events.key_by("k").distinct()


def reduced(events: Stream) -> Stream:
    return events.key_by("k").reduce(lambda a, b: {**a, "n": a["n"] * 3 + b["n"] % 100})


def with_timers(events: Stream) -> Stream:
    def add(row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        state["seen"] = state.get("seen", 0) + 1
        if row["n"] % 5 == 0:
            timers.at_event_time(row["ts"] + timedelta(seconds=row["n"] % 40))
        if row["n"] % 7 == 0:
            state.clear()  # the key is forgotten unless it has timers
        yield {"k": row["k"], "seen": state.get("seen", 0)}

    def due(key: str, time: Any, state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        yield {"k": key, "seen": -state.get("seen", 0)}

    add.on_timer = due  # type: ignore[attr-defined]
    return events.key_by("k").process(add, schema={"k": "string", "seen": "int64"}, on="ts")


def plan_of(build: Build) -> tuple[Plan, str]:
    """Return the plan of a job, and its last shuffle."""
    stream = hr.stream("test", "quick").from_(MemorySource({"q": []}), format="json", schema=SCHEMA)
    plan = build(stream).to(MemorySink()).plan()
    return plan, list(plan.shuffles)[-1]


def entries(build: Build, seed: int, count: int) -> list[list[ShardMessage]]:
    """Return entries of rows with few and with many keys, some of which come again; every fifth is a watermark."""
    chance = random.Random(seed)
    found: list[list[ShardMessage]] = []
    row = 0
    for number in range(count):
        if number % 5 == 4:
            found.append([ShardMessage("watermark", UPSTREAM, 0, time_us=row * 1_000_000)])
            continue
        rows = []
        for _ in range(chance.choice([1, 3, 30])):
            key = chance.choice([None, "", *(f"key-{chance.randrange(120)}" for _ in range(20))])
            rows.append((row + 1, 0, row * 1_000_000, key, chance.randrange(1000), row * 1_000_000))
            row += 1
        header: dict[str, Any] = {OFFSET: pl.Int64, INDEX: pl.Int32, WATERMARK: pl.Int64}
        user: dict[str, Any] = {"k": pl.String, "n": pl.Int64, "ts": pl.Datetime("us", "UTC")}
        frame = pl.DataFrame(rows, schema={**header, **user}, orient="row")
        if build is counts_by_two:
            frame = frame.with_columns(odd=pl.col("n") % 2)
        if build is changed_counts:
            # Counts of few keys that change by one: a row is taken back, and one with the next count is given.
            frame = counts_that_change(frame, chance)
        found.append([ShardMessage("rows", UPSTREAM, 0, frame=frame)])
    return found


def counts_that_change(frame: pl.DataFrame, chance: random.Random) -> pl.DataFrame:
    parts = []
    for row in frame.drop("k", "ts").iter_rows(named=True):
        held = _held.setdefault(id(chance), [])
        if held and chance.random() < 0.5:
            parts.append({**row, "n": held.pop(chance.randrange(len(held))), "__hr_change": 3})
        else:
            held.append(row["n"] % 60)
            parts.append({**row, "n": row["n"] % 60, "__hr_change": 0})
    schema = {OFFSET: pl.Int64, INDEX: pl.Int32, WATERMARK: pl.Int64, "n": pl.Int64, "__hr_change": pl.Int8}
    return pl.DataFrame(parts, schema=schema)


_held: dict[int, list[int]] = {}


def given(output: ShardOutput) -> list[tuple[str, pl.DataFrame]]:
    return [(each.target, each.batch.frame) for each in output.deliveries]


class Moving:
    """A shard that is stored, moves to another store object, and is restored behind, again and again."""

    def __init__(self, build: Build, place: str, chance: random.Random) -> None:
        self.plan, self.shuffle = plan_of(build)
        self.place, self.chance = place, chance
        self.done: list[list[ShardMessage]] = []
        self.stored = -1
        self.begin()

    def begin(self, *, quick: bool = True) -> None:
        self.storage = ShardStorage(
            KeyedMemoryStore(KeyedMemorySettings(place=self.place)), header_bytes=1, quick_start=quick
        )
        self.shard = Shard(self.plan, self.shuffle, 0)
        found = self.storage.load(self.shard)
        self.whole = found is None
        for number in range(0 if found is None else found[0] + 1, len(self.done)):
            self.shard.process(number, number, self.done[number])

    def save(self, *, whole: bool = False) -> None:
        self.storage.save(self.shard, len(self.done) - 1, b"h", whole=whole or self.whole)
        self.whole = False

    def process(self, entry: list[ShardMessage]) -> list[tuple[str, pl.DataFrame]]:
        number = len(self.done)
        try:
            output = self.shard.process(number, number, entry)
        except RetriableError:  # what it remembers is not certain any more
            self.begin()
            output = self.shard.process(number, number, entry)
        self.done.append(entry)
        return given(output)


class Plugin:
    @staticmethod
    @hookimpl
    def headrace_state_stores() -> Mapping[str, type[KeyedMemoryStore]]:
        return {"keyed-memory": KeyedMemoryStore}


@pytest.fixture(scope="module", autouse=True)
def _store_is_offered() -> None:
    default_registry().register(Plugin, "keyed-memory-of-tests")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_parts, "_ROWS_PER_PART", 3)
    monkeypatch.setattr(state_parts, "_ROWS_PER_STEP", 7)


@pytest.mark.parametrize("build", [counts, counts_by_two, changed_counts, for_an_hour, distinct, reduced, with_timers])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_results_are_those_of_a_shard_that_was_never_moved(build: Build, seed: int) -> None:
    name = f"{build.__name__}-{seed}"
    chance = random.Random(seed)
    plan, shuffle = plan_of(build)
    resident, moving = Shard(plan, shuffle, 0), Moving(build, name, chance)
    begun_quickly = 0
    for number, entry in enumerate(entries(build, seed, 60)):
        wanted, found = given(resident.process(number, number, entry)), moving.process(entry)
        assert [target for target, _ in found] == [target for target, _ in wanted]
        for (_, one), (_, other) in zip(found, wanted, strict=True):
            assert one.equals(other), f"entry {number}: {one} is not {other}"
        match chance.randrange(8):
            case 0 | 1 | 2:
                moving.save(whole=chance.random() < 0.2 and not places[name].failures)
            case 3 | 4:
                places[name].failures = 0
                moving.begin()
                begun_quickly += moving.shard.restoring
                places[name].failures = int(moving.shard.restoring and chance.random() < 0.3)
            case 5 | 6 if moving.shard.restoring and not places[name].failures:
                moving.shard.restore_some()
    assert begun_quickly >= 2
    places[name].failures = 0
    moving.save(whole=True)
    moving.begin(quick=False)
    assert moving.shard.state_rows() == resident.state_rows()
    del places[name]


def tumbling(events: Stream) -> Stream:
    return events.key_by("k").window(hr.tumbling("1 min", on="ts")).agg(n="count(*)")


def kept_rows(events: Stream) -> Stream:
    """Greatest values are taken back, for which rows are kept."""
    return events.key_by("k").agg(n="count(*)").key_by("n").agg(most="max(k)")


@pytest.mark.parametrize("build", [tumbling, kept_rows])
def test_what_has_to_know_all_keys_is_loaded_first(build: Build) -> None:
    plan, shuffle = plan_of(build)
    shard = Shard(plan, shuffle, 0)
    assert not shard.has_parts
    place = f"whole-{build.__name__}"
    storage = ShardStorage(KeyedMemoryStore(KeyedMemorySettings(place=place)), quick_start=True)
    shard.process(1, 1, [])
    storage.save(shard, 1, whole=True)
    (versions,) = places.pop(place).versions.values()
    assert isinstance(versions[1][0], bytes)


def test_the_option_can_be_turned_on_and_off() -> None:
    """A state that was stored whole is loaded whole, and in parts from its next snapshot on."""
    work = iter(entries(counts, 7, 40))
    moving = Moving(counts, "on-and-off", random.Random(1))
    for number, (quick, restoring) in enumerate(
        [(False, False), (True, False), (True, False), (True, True), (False, False), (True, False)]
    ):
        moving.begin(quick=quick)
        assert moving.shard.restoring == restoring, number
        for _ in range(6):
            moving.process(next(work))
        moving.save(whole=number == 2)
    resident = Shard(moving.plan, moving.shuffle, 0)
    for number, entry in enumerate(moving.done):
        resident.process(number, number, entry)
    moving.shard.restore_all()
    assert moving.shard.state_rows() == resident.state_rows() > 20
    del places["on-and-off"]


def test_no_more_is_loaded_than_is_asked_for() -> None:
    moving = Moving(counts, "little", random.Random(1))
    for entry in entries(counts, 3, 40):
        moving.process(entry)
    moving.save()
    parts = places["little"].versions[SHARD][39][0]
    assert isinstance(parts, list)
    assert len(parts) > 20
    moving.begin()
    one = next(entry for entry in entries(counts, 3, 40) if entry[0].frame is not None and entry[0].frame.height == 1)
    frame = one[0].frame
    assert frame is not None
    again = frame.with_columns(pl.lit(10**6).alias(OFFSET))
    given_before = places["little"].given.total()
    moving.process([ShardMessage("rows", UPSTREAM, 0, frame=again)])
    assert places["little"].given.total() - given_before == 1
    # A version of headrace that does not know parts finds a format that is too new for it.
    content = b"".join(parts)
    assert msgspec.msgpack.decode(content.removeprefix(headed(b"h")))["format"] == 2
    del places["little"]


def test_what_is_damaged_is_refused() -> None:
    moving = Moving(counts, "damaged", random.Random(1))
    for entry in entries(counts, 3, 20):
        moving.process(entry)
    moving.save()
    parts = places["damaged"].versions[SHARD][19][0]
    assert isinstance(parts, list)
    first, second = parts[0], parts[1]
    parts[0] = first[:-1]
    with pytest.raises(CheckpointError, match="damaged"):
        moving.begin()
    parts[0], parts[1] = first, second[:-3]
    moving.begin()
    with pytest.raises(CheckpointError, match="damaged"):
        moving.shard.restore_all()
    del places["damaged"]


@pytest.mark.parametrize("quick", [True, False])
def test_a_damaged_header_is_refused_and_one_without_checksum_is_read(quick: bool) -> None:
    name = f"header {quick}"
    moving = Moving(counts, name, random.Random(1))
    moving.begin(quick=quick)
    for entry in entries(counts, 3, 20):
        moving.process(entry)
    moving.save()
    versions = places[name].versions[SHARD]
    content, whole = versions[19]
    first = content[0] if isinstance(content, list) else content
    assert first.startswith(headed(b"h"))

    def begin_with(begin: bytes) -> None:
        versions[19] = ([begin, *content[1:]] if isinstance(content, list) else begin, whole)
        moving.begin(quick=quick)

    for place in range(8 * len(headed(b"h"))):
        damaged = bytearray(first)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(CheckpointError, match="damaged"):
            begin_with(bytes(damaged))
    begin_with(b"h" + first.removeprefix(headed(b"h")))  # as an older version wrote it
    del places[name]


def test_instances_with_quick_start_give_what_one_process_gives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Shards change hands while entries come, the store fails now and then, and one instance is expelled in the middle."""
    caplog.set_level(logging.INFO, "headrace_light")
    world = World(tmp_path, build=counts)
    options: dict[str, Any] = {"state_store": "keyed-memory", "state_options": {"place": world.broker.name}}
    try:
        first = world.start(**options)
        world.send(300)
        while_running(lambda: first.status().records_read >= 100, "records", first)
        world.start(**options)
        place = places[world.broker.name]
        looks = 0

        def failed() -> bool:
            nonlocal looks
            looks += 1
            if looks % 300 == 1:  # where nothing was stored yet, nothing is restored
                world.expel_all()
            return place.failures == 0

        for _ in range(3):
            world.send(100)
            place.failures, looks = 2, 0
            while_running(failed, "a restore that failed", *running(world.instances))
        first.stop()
        world.send(200)
        expected = MemorySink()
        bodies = {str(queue): world.broker.records("events", queue) for queue in range(world.queues)}
        events = hr.stream("test", "alone").from_(MemorySource(bodies), format="json", schema=EVENTS)
        counts(events).to(expected).run("light", shards=3)
        wanted = sorted(map(str, expected.table()))
        while_running(
            lambda: sorted(map(str, world.sink().table())) == wanted, "the results", *running(world.instances)
        )
        while_running(lambda: "has all of its" in caplog.text, "a restore that ended", *running(world.instances))
    finally:
        world.close()
    assert sorted(map(str, world.sink().table())) == wanted
    assert "the rest is loaded later" in caplog.text
    del places[world.broker.name]
