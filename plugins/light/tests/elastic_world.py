"""A broker in memory, a table, and instances of a job in this process that share its keyed stages."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.flow.messages import Position, Queue
from headrace.interfaces.backend import JobHandle, JobState
from headrace.interfaces.sink import SinkBatch
from headrace.jobs.dsl import Stream
from headrace.testing import MemoryTransactionalSink
from headrace_contract.memory_topics import MemoryBroker, MemoryTopicSettings, MemoryTopicSource

from tests.eventually import eventually

EVENTS = {"k": "string", "n": "int64", "ts": "timestamp"}


class SharedSink(MemoryTransactionalSink):
    """A sink whose table is shared by the instances of a test."""

    def __init__(self, table: Table) -> None:
        super().__init__(stored=table.stored)
        self.rows, self.kinds = table.rows, table.kinds
        self._table_lock = table.lock

    def batch_insert(self, batch: SinkBatch) -> None:
        with self._table_lock:
            super().batch_insert(batch)


@dataclass
class Table:
    """Rows, and how far each queue is in them."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    stored: dict[Queue, Position] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


class World:
    """A broker in memory with a topic of events, the job's sink, and its instances."""

    def __init__(self, directory: Path, *, queues: int = 4, build: Callable[[Stream], Stream] | None = None) -> None:
        self.broker = MemoryBroker()
        self.directory = directory
        self.table = Table()
        self.keys: Counter[str] = Counter()
        self.queues = queues
        for _ in range(queues):
            self.broker.add_queue("events")
        self._sent = 0
        self.instances: list[JobHandle] = []
        self._build = build or counted_by_minute

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
        return self._build(stream).to(SharedSink(self.table))

    def sink(self) -> SharedSink:
        """Return a sink that shows what the instances have stored."""
        return SharedSink(self.table)

    def close(self) -> None:
        """Stop every instance."""
        for handle in self.instances:
            handle.stop()

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
        while_running(lambda: sum(self.counted().values()) >= self._sent, "all windows", *running(self.instances))
        assert self.counted() == self.keys
        windows = [(row["k"], row["window_start"]) for row in self.rows()]
        assert len(windows) == len(set(windows))

    def counted(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for row in self.rows():
            found[row["k"]] += row["n"]
        return found


def counted_by_minute(events: Stream) -> Stream:
    return events.key_by("k").window(hr.tumbling("1 min", on="ts")).agg(n="count(*)", s="sum(n)")


def running(instances: list[JobHandle]) -> list[JobHandle]:
    """Return those that have not ended."""
    return [handle for handle in instances if handle.status().state is JobState.RUNNING]


def while_running(condition: Callable[[], object], what: str, *handles: JobHandle) -> None:
    """Wait until a condition holds; fail at once when one of the jobs has failed."""

    def probe() -> object:
        for handle in handles:
            assert handle.status().state is not JobState.FAILED, handle.status().error
        return condition()

    eventually(probe, what)
