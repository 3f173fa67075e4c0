"""Instances of a job that share its keyed stages: they come, go and die, and the results are as if nothing had happened."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.backend import JobHandle, JobState
from headrace.errors import OptionError, PlanError
from headrace.messages import Position, Queue
from headrace.sink import SinkBatch
from headrace.testing import MemorySink, MemorySource, MemoryTransactionalSink
from headrace_contract.memory_topics import MemoryBroker, MemoryTopicSettings, MemoryTopicSource

EVENTS = {"k": "string", "n": "int64", "ts": "timestamp"}


class SharedSink(MemoryTransactionalSink):
    """A sink whose table is shared by the instances of a test."""

    def __init__(self, table: Table) -> None:
        super().__init__(stored=table.stored)
        self.rows = table.rows
        self._table_lock = table.lock

    def batch_insert(self, batch: SinkBatch) -> None:
        with self._table_lock:
            super().batch_insert(batch)


@dataclass
class Table:
    """Rows, and how far each queue is in them."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    stored: dict[Queue, Position] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


class World:
    """A broker in memory with a topic of events, the job's sink, and its instances."""

    def __init__(self, directory: Path, *, queues: int = 4) -> None:
        self.broker = MemoryBroker()
        self.directory = directory
        self.table = Table()
        self.keys: Counter[str] = Counter()
        self.queues = queues
        for _ in range(queues):
            self.broker.add_queue("events")
        self._sent = 0
        self.instances: list[JobHandle] = []

    def send(self, count: int) -> None:
        """Send events, one a second of event time, in turn to all queues."""
        for _ in range(count):
            number = self._sent
            key = f"key-{number * 7 % 11}"
            self.keys[key] += 1
            event = {
                "k": key,
                "n": number,
                "ts": f"2024-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z",
            }
            self.broker.append("events", number % self.queues, [json.dumps(event).encode()])
            self._sent += 1

    def finish(self) -> None:
        """Send what closes all windows."""
        for queue in range(self.queues):
            self.broker.append("events", queue, [b'{"k": "last", "n": -1, "ts": "2025-01-01T00:00:00Z"}'])

    def expel_all(self) -> None:
        """Let every instance seem dead to the broker: queues and shards change hands before the instances know."""
        for topic, group in [("events", "job"), *((name, name) for name in self.broker.topic_names())]:
            self.broker.expel_members(topic, group)

    def job(self) -> hr.Job:
        source = MemoryTopicSource(MemoryTopicSettings(broker=self.broker.name, topic="events", group="job"))
        stream = hr.stream("test", "elastic").from_(source, format="json", schema=EVENTS, name="events")
        counts = stream.key_by("k").window(hr.tumbling("1 min", on="ts")).agg(n="count(*)", s="sum(n)")
        return counts.to(SharedSink(self.table))

    def start(self, **options: Any) -> JobHandle:
        number = len(self.instances)
        given: dict[str, Any] = {
            "reliability": "high", "shards": 3, "checkpoint_interval": "50 ms", "discovery_interval": "50 ms",
            "checkpoint": str(self.directory / str(number)),
        }  # fmt: skip
        handle = self.job().start("light", until=None, **given | options)
        self.instances.append(handle)
        return handle

    def rows(self) -> list[dict[str, Any]]:
        return [row for row in list(self.table.rows) if row["k"] != "last"]

    def check(self) -> None:
        """Wait until every window has come; each must have come once, with the right count."""
        running = [handle for handle in self.instances if handle.status().state is JobState.RUNNING]
        eventually(lambda: sum(self.counted().values()) >= self._sent, "all windows", *running)
        assert self.counted() == self.keys
        windows = [(row["k"], row["window_start"]) for row in self.rows()]
        assert len(windows) == len(set(windows))

    def counted(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for row in self.rows():
            found[row["k"]] += row["n"]
        return found


def eventually(condition: Any, what: str, *handles: JobHandle) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        for handle in handles:
            assert handle.status().state is not JobState.FAILED, handle.status().error
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for handle in made.instances:
        handle.stop()


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
    eventually(lambda: first.status().records_read >= 100, "records", first)
    second, third = world.start(), world.start()
    eventually(
        lambda: all(len(h.status().shards) == 1 for h in (first, second, third)), "one shard each", first, second
    )
    world.send(300)
    first.stop()
    world.send(300)
    eventually(
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
    eventually(lambda: first.status().records_read == 200, "records", first)
    second = world.start()
    eventually(lambda: len(second.status().shards) >= 1, "a shard", second)
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
    eventually(lambda: first.status().records_read == 250, "records", first)
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


def test_an_outage_of_the_broker_is_waited_for(world: World) -> None:
    handle = world.start()
    world.send(200)
    eventually(lambda: handle.status().records_read >= 100, "records", handle)
    world.broker.begin_outage()
    time.sleep(0.3)
    assert handle.status().state is JobState.RUNNING
    world.broker.end_outage()
    world.send(200)
    world.finish()
    world.check()


def test_fast_keeps_state_on_the_machine(world: World) -> None:
    first = world.start(reliability="fast")
    world.send(250)
    eventually(lambda: first.status().records_read == 250, "records", first)
    first.stop()
    world.send(250)
    world.start(reliability="fast", checkpoint=str(world.directory / "0"))
    world.finish()
    world.check()
    assert not any(name.endswith("-state") for name in world.broker.topic_names())


def test_fast_loses_what_a_moved_shard_remembered_and_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first = world.start(reliability="fast")
    world.send(250)
    eventually(lambda: first.status().records_read == 250, "records", first)
    first.stop()
    world.start(reliability="fast")  # its directory is another: as on another machine
    world.send(250)
    world.finish()
    eventually(lambda: world.counted().total() > 100, "windows", *world.instances[1:])
    assert all(world.counted()[key] <= count for key, count in world.keys.items())


def test_what_cannot_be_shared_is_refused_before_anything_is_read(world: World, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="none of them knows when all has been read"):
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
