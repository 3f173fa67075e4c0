"""Instances of a job that share its keyed stages: they come, go and die, and the results are as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from elastic_world import EVENTS, World, while_running
from headrace.flow.messages import Position
from headrace.foundation.errors import CheckpointError, JobFailedError, OptionError, PlanError, RetriableError
from headrace.interfaces.backend import JobState
from headrace.testing import MemorySink, MemorySource


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_one_instance_gives_what_a_job_in_one_process_gives(world: World) -> None:
    world.send(600)
    world.finish()
    handle = world.start()
    world.check()
    status = handle.status()
    assert len(status.shards) == 3
    assert status.watermark is not None


def test_instances_come_and_go_under_load(world: World) -> None:
    first = world.start()
    world.send(300)
    while_running(lambda: first.status().records_read >= 100, "records", first)
    second, third = world.start(), world.start()
    while_running(
        lambda: all(len(h.status().shards) == 1 for h in (first, second, third)), "one shard each", first, second
    )
    world.send(300)
    first.stop()
    world.send(300)
    while_running(
        lambda: len(second.status().shards) + len(third.status().shards) == 3, "shards of the first", second, third
    )
    world.send(300)
    world.finish()
    world.check()
    second.stop()
    third.stop()
    assert len({row["k"] for row in world.rows()}) == 11


def test_an_instance_that_does_not_know_that_it_was_replaced_does_no_harm(world: World) -> None:
    first = world.start()
    world.send(200)
    while_running(lambda: first.status().records_read == 200, "records", first)
    second = world.start()
    while_running(lambda: len(second.status().shards) >= 1, "a shard", second)
    for _ in range(5):
        world.send(100)
        world.expel_all()
    world.send(100)
    world.finish()
    world.broker.lose_answers(3)
    world.check()


def test_what_all_instances_left_is_taken_up_again(world: World) -> None:
    first = world.start()
    world.send(250)
    while_running(lambda: first.status().records_read == 250, "records", first)
    first.stop()
    world.send(250)
    second = world.start()
    world.finish()
    world.check()
    assert second.status().records_read == 250 + world.queues


def test_more_instances_than_queues_stand_by(tmp_path: Path) -> None:
    world = World(tmp_path, queues=1)
    handles = [world.start(shards=1) for _ in range(3)]
    world.send(100)
    world.finish()
    world.check()
    assert sorted(len(handle.status().shards) for handle in handles) == [0, 0, 1]
    for handle in handles:
        handle.stop()


def test_an_error_in_the_middle_of_an_entry_loses_nothing(tmp_path: Path) -> None:
    """A function with state says that something is away: its shard begins again from what is stored."""
    failures = {90, 91, 150, 230}

    def counting(row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        state["seen"] = state.get("seen", 0) + 1
        if row["n"] in failures:
            failures.remove(row["n"])
            raise RetriableError("a server is away")
        yield {"k": row["k"], "seen": state["seen"]}

    world = World(
        tmp_path, build=lambda events: events.key_by("k").process(counting, schema={"k": "string", "seen": "int64"})
    )
    try:
        handle = world.start()
        world.send(300)
        while_running(lambda: len(world.rows()) >= 300, "all rows", handle)
    finally:
        world.close()
    assert not failures
    seen = sorted((row["k"], row["seen"]) for row in world.rows())
    assert seen == sorted((key, number + 1) for key, count in world.keys.items() for number in range(count))


def test_an_outage_of_the_broker_is_waited_for(world: World) -> None:
    handle = world.start()
    world.send(200)
    while_running(lambda: handle.status().records_read >= 100, "records", handle)
    world.broker.begin_outage()
    before = world.broker.refused
    while_running(lambda: world.broker.refused >= before + 20, "calls that are tried again and again", handle)
    assert handle.status().state is JobState.RUNNING
    world.broker.end_outage()
    world.send(200)
    world.finish()
    world.check()


def test_state_is_stored_anew_before_a_broker_forgets_it_though_nothing_comes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_light.shared.restore._SNAPSHOT_SECONDS_MAX", 0.05)
    handle = world.start()
    world.send(100)
    while_running(lambda: handle.status().records_read == 100, "records", handle)

    def stored() -> int:
        states = [name for name in world.broker.topic_names() if name.endswith("-state")]
        return sum(len(world.broker.records(name, shard)) for name in states for shard in range(3))

    while_running(lambda: stored() >= 3, "state of every shard", handle)
    before = handle.status().checkpoint_id
    while_running(lambda: handle.status().checkpoint_id >= before + 10, "checkpoints while nothing comes", handle)


def test_fast_keeps_state_on_the_machine(world: World) -> None:
    first = world.start(reliability="fast")
    world.send(250)
    while_running(lambda: first.status().records_read == 250, "records", first)
    first.stop()
    world.send(250)
    world.start(reliability="fast", checkpoint=str(world.directory / "0"))
    world.finish()
    world.check()
    assert not any(name.endswith("-state") for name in world.broker.topic_names())


def test_fast_loses_what_a_moved_shard_remembered_and_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first = world.start(reliability="fast")
    world.send(250)
    while_running(lambda: first.status().records_read == 250, "records", first)
    first.stop()
    second = world.start(reliability="fast")  # its directory is another: as on another machine
    while_running(lambda: "its state from that time is lost" in caplog.text, "the warning", second)
    world.send(250)
    world.finish()
    while_running(lambda: world.counted().total() > 100, "windows", *world.instances[1:])
    assert all(world.counted()[key] <= count for key, count in world.keys.items())


def test_what_cannot_be_shared_is_refused_before_anything_is_read(world: World, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="none of them knows when all input has been read"):
        world.job().run("light", reliability="high")
    with pytest.raises(OptionError, match="state store 'directory' is on one machine"):
        world.start(state_store="directory")
    alone = hr.stream("test", "alone").from_(MemorySource({"q": []}), format="json", schema=EVENTS, name="events")
    with pytest.raises(PlanError, match="'events' cannot be shared by several instances"):
        alone.key_by("k").agg(n="count(*)").to(MemorySink()).start("light", reliability="high")
    handle = world.start(shards=3)
    handle.stop()
    with pytest.raises(hr.JobError, match="has 3 queues, not 5"):
        world.start(shards=5)


@pytest.mark.parametrize("reliability", ["high", "fast"])
def test_a_checkpoint_that_has_the_state_itself_is_refused(world: World, reliability: str, tmp_path: Path) -> None:
    """Else open windows would be lost without a word."""
    place = str(tmp_path / "one")
    alone = world.start(reliability=None, checkpoint=place)
    world.send(100)
    while_running(lambda: alone.status().records_read == 100, "records", alone)
    alone.stop()
    with pytest.raises(CheckpointError, match="as it ran in one process"):
        world.start(reliability=reliability, checkpoint=place)
    again = world.start(reliability=None, checkpoint=place)
    world.finish()
    world.check()
    again.stop()


def test_a_damaged_record_of_a_shuffle_stops_the_job_and_is_named(world: World) -> None:
    first = world.start()
    world.send(100)
    while_running(lambda: first.status().records_read == 100 and world.table.stored, "records", first)
    first.stop()
    before = list(world.table.rows)
    [topic] = [name for name in world.broker.topic_names() if name.startswith("headrace-") and "state" not in name]
    log = world.broker.records(topic, 1)
    damaged = bytearray(log[-1])
    damaged[len(damaged) // 2] ^= 4
    world.broker.append(topic, 1, [bytes(damaged)])
    second = world.start()
    world.send(100)
    with pytest.raises(JobFailedError, match="a record of a shuffle is damaged") as failure:
        second.wait(timedelta(minutes=1))
    assert f"offset {len(log)}" in str(failure.value)
    assert topic in str(failure.value)
    assert [row for row in world.table.rows if row in before] == before


def test_a_sink_that_is_ahead_of_the_topics_is_refused(world: World) -> None:
    """As when the topics were made anew and the clock was put back: new results would be dropped as known."""
    first = world.start()
    world.send(100)
    while_running(lambda: first.status().records_read == 100 and world.table.stored, "records", first)
    first.stop()
    for queue, position in list(world.table.stored.items()):
        world.table.stored[queue] = Position(position.offset + 3_600_000_000, position.index)
    before = len(world.table.rows)
    second = world.start()
    world.send(200)
    world.finish()
    with pytest.raises(JobFailedError, match="new results would be dropped as already stored") as failure:
        second.wait(timedelta(minutes=1))
    assert isinstance(failure.value.__cause__, CheckpointError)
    assert len(world.table.rows) == before
    with pytest.raises(OptionError, match="this option cannot be used"):
        world.start(sinks_ahead="write")
