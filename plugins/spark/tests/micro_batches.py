"""Runs the micro-batches of a job as Spark does, stage by stage, but in this process: for tests of what they do."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.clock import ManualClock
from headrace_spark.checkpoints.offsets import JobIdentity, JobOffsets
from headrace_spark.planning.planner import Planner
from headrace_spark.transit.envelopes import Envelope, from_arrow, to_arrow
from headrace_spark.transit.marks import control_of
from headrace_spark.transit.payload import JobPayload, KeyedPlan, pickled, sources_of
from headrace_spark.transit.task_counts import TaskCounts
from headrace_spark.workers import keyed_stage, lanes, sink_stage
from headrace_spark.workers.keyed_stage import run_shards
from headrace_spark.workers.lanes import read_ranges
from headrace_spark.workers.shipping import in_order
from headrace_spark.workers.sink_stage import write_envelopes
from spark_parts import LineSink


@pytest.fixture
def line_sink(tmp_path: Path) -> LineSink:
    made = LineSink(tmp_path / "lines")
    made.prepare(None)
    return made


class MicroBatches:
    """One run of a job. Envelopes come to the shards in another order each time, as Spark's shuffle brings them."""

    def __init__(
        self, job: hr.Job, directory: Path, *, shards: int = 3, until: str | None = "end", seed: int = 0, **changes: Any
    ) -> None:
        plan = job.plan()
        state = (directory / "shards").as_uri()
        directory.mkdir(exist_ok=True)
        values: dict[str, Any] = dict(
            token=uuid.uuid4().hex, identity=JobIdentity.of(plan), sources_bytes=b"",
            plan_bytes=pickled(plan, plan.job_name), import_paths=(), working_directory=None,
            run_directory=str(directory), until=until, discovery_seconds=0.0, idle_wait_seconds=0.1, retry_seconds=60.0,
            batch_records=7, micro_batch_records=100, parallelism=2, keyed=KeyedPlan.of(plan, shards, state),
        )  # fmt: skip
        self.payload = JobPayload(**{**values, **changes})
        self.clock = ManualClock(1_000_000.0)
        self._sources = sources_of(plan)
        self.planner = Planner(self.payload, self._sources, self.clock)
        self.offsets = self.planner.initial()
        self.next_batch = 0
        self._chance = random.Random(seed)
        self.counts: list[TaskCounts] = []

    def run_to_end(self, records_max: int | None = None) -> MicroBatches:
        while self.run_batch(records_max):
            pass
        return self

    def run_batch(self, records_max: int | None = None) -> bool:
        """Plan and run one micro-batch; return False when there is nothing to do."""
        start = self.offsets
        end = self.planner.next_end(start, records_max)
        if end == start:
            return False
        self.run(start, end, self.next_batch)
        self.offsets, self.next_batch = end, self.next_batch + 1
        return True

    def restarted(self) -> MicroBatches:
        """Begin another run from the same checkpoint, in processes that know nothing."""
        self.planner = Planner(self.payload, self._sources, self.clock)
        self.payload = replace(self.payload, token=uuid.uuid4().hex)
        return self

    def run(self, start: JobOffsets, end: JobOffsets, batch_id: int) -> None:
        """Run a micro-batch, perhaps again."""
        self.counts = [
            write_envelopes(self.payload, rows, batch_id, repeated=False)
            for rows in self.before_sinks(start, end, batch_id)
        ]

    def before_sinks(self, start: JobOffsets, end: JobOffsets, batch_id: int) -> list[Iterable[Envelope]]:
        """Return what each task of the sink stage writes; it is made while it is written."""
        start, end = through_json(start), through_json(end)
        control = control_of(start, end)
        parts = self.planner.partitions(start, end) or [[]]
        sent: list[list[Envelope]] = []
        for place, read in self._chance.sample(list(enumerate(parts)), len(parts)):
            if self.payload.cuts_ranges:
                forget_lanes()  # the pieces of a queue are read by several processes
            sent.append(through_arrow(read_ranges(self.payload, read, batch_id, None if place else control)))
        keyed = self.payload.keyed
        if keyed is None:
            assert self.payload.cuts_ranges
            return [in_order(part) for part in self._shuffled(sent, self.payload.parallelism)]
        last = len(keyed.levels)
        for level in range(1, last):
            sent = [
                through_arrow(run_shards(self.payload, level, number, part, batch_id))
                for number, part in enumerate(self._shuffled(sent, keyed.shards))
            ]
        return [
            run_shards(self.payload, last, number, part, batch_id)
            for number, part in enumerate(self._shuffled(sent, keyed.shards))
        ]

    def _shuffled(self, sent: Iterable[Iterable[Envelope]], partitions: int) -> list[list[Envelope]]:
        """Return what comes to each partition, in any order."""
        parts: list[list[Envelope]] = [[] for _ in range(partitions)]
        for each in (envelope for part in sent for envelope in part):
            parts[each.partition].append(each)
        return [self._chance.sample(part, len(part)) for part in parts]

    def shard_figures(self) -> Mapping[str, Mapping[str, int | None]]:
        return {name: figures for counts in self.counts for name, figures in counts.shards.items()}


def through_arrow(envelopes: Iterator[Envelope]) -> list[Envelope]:
    return list(from_arrow(to_arrow(envelopes)))


def through_json(offsets: JobOffsets) -> JobOffsets:
    return JobOffsets.from_json(json.loads(json.dumps(offsets.to_json())))


@contextmanager
def another_process() -> Iterator[None]:
    """Run what is inside with nothing kept, as in a worker process that is new; what it keeps is lost."""
    kept = [(module._kept, module._kept.copy()) for module in (keyed_stage, lanes, sink_stage)]
    for now, _ in kept:
        now.clear()
    try:
        yield
    finally:
        forget_all()
        for now, before in kept:
            now.update(before)


def forget_lanes() -> None:
    """Close the lanes that this process keeps."""
    for lane in lanes._kept.values():
        lane.close()
    lanes._kept.clear()


def forget_all() -> None:
    """Close what this process keeps."""
    forget_lanes()
    for writers in sink_stage._kept.values():
        writers.outlets.close(flush=False)
    for kept in keyed_stage._kept.values():
        kept.shard.close()
    for module in (keyed_stage, sink_stage):
        module._kept.clear()
