"""Keyed stages without an engine: the plan of a job, what an engine gives stages, and the lanes of its queues."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import headrace as hr
from headrace.flow.messages import Queue, QueueAdded, ReadPosition
from headrace.foundation.clock import ManualClock
from headrace.interfaces.source import Source
from headrace.jobs.dsl import Stream
from headrace.jobs.keyed import shuffled
from headrace.plan.graph import Plan
from headrace.runtime.lane import Lane, Shipment
from headrace.runtime.outlets import Outlets
from headrace.testing import MemoryTransactionalSink
from headrace_light.stages.interface import Host, Stages
from headrace_light.storing import Storing
from light_counting import Count

T = TypeVar("T")
#: When the clock of these tests begins.
BEGIN_SECONDS = 1_000_000.0


def at_once(what: str, action: Callable[[], T]) -> T:
    """Do what a start waits for; a server that is away is an error here."""
    return action()


def counted(stream: Stream) -> Stream:
    """Count the rows of each key."""
    return shuffled(stream, ("k",)).apply(Count("k"))


@dataclass
class StagesWorld:
    """A job that reads ``source`` and counts its rows per key, and what one process of it has."""

    source: Source
    directory: Path | None = None
    build: Callable[[Stream], Stream] = counted
    clock: ManualClock = field(default_factory=lambda: ManualClock(BEGIN_SECONDS))
    sink: MemoryTransactionalSink = field(default_factory=MemoryTransactionalSink)
    checkpoints: int = 0
    plan: Plan = field(init=False)
    outlets: Outlets = field(init=False)

    def __post_init__(self) -> None:
        schema = {"k": "string", "n": "int64"}
        stream = hr.stream("test", "stages").from_(self.source, format="json", schema=schema, name="events")
        self.plan = self.build(stream).to(self.sink).plan()
        stopping = threading.Event()
        self.outlets = Outlets(self.plan, clock=self.clock, auto_flush=False, stopping=stopping)
        self.outlets.open()
        self._storing = Storing(self.plan.job_name, self.directory, self.clock, stopping, 1.0)
        self.lanes: dict[Queue, Lane] = {}
        self._readers: dict[Queue, ReadPosition] = {}

    def host(self) -> Host:
        return Host(self.clock, self.directory, self.outlets, self._storing, 1.0, make_checkpoint=self._make_checkpoint)

    def _make_checkpoint(self) -> None:
        self.checkpoints += 1

    def begin(self, queue: Queue) -> list[Shipment]:
        """Begin with a queue of the source; return what its lane ships at its beginning."""
        node = self.plan.sources["events"]
        lane = Lane(self.plan, node, queue, decode_columns=self.plan.decode_columns()["events"])
        self.lanes[queue] = lane
        lane.on_system(QueueAdded(queue))
        return list(lane.take_shipments())

    def read(self, stages: Stages, queue: Queue, offset: int, records: int) -> None:
        """Read a range of a queue through its lane and the stages, as the engine does."""
        start = ReadPosition(offset)
        reader = self.plan.sources["events"].source.open(queue, start)
        raw = reader.poll(records, timedelta(0))
        reader.close()
        assert raw is not None
        assert len(raw) == records
        stages.log_read(queue, start, raw.next_position)
        lane = self.lanes[queue]
        self.outlets.deliver(lane.process(raw))
        stages.take(lane.take_shipments())

    def rows(self) -> list[tuple[str, int]]:
        """Return key and count of the results so far, sorted, after all writers were flushed."""
        for writer in self.outlets.writers.values():
            writer.flush()
        return sorted((row["k"], row["count"]) for row in self.sink.rows)


def bodies(keys: Iterable[str]) -> list[bytes]:
    """Return records with these keys."""
    return [json.dumps({"k": key, "n": number}).encode() for number, key in enumerate(keys)]
