"""Adds up what the processes of a run report: the figures of status and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.flow.dead_letters import DeadLetterReason, ReasonCounts
from headrace.flow.messages import Queue
from headrace.interfaces.backend import JobState, JobStatus, QueueStatus
from headrace.plan.dead_letter_places import dead_letter_places
from headrace.plan.graph import Plan
from headrace.plan.stages import upstream_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class _QueueFigures:
    offset: int = 0
    latest: int | None = None
    records: int = 0
    dead_letters: int = 0
    broken: str | None = None


@dataclass
class _ShardFigures:
    watermark_us: int | None = None
    state_rows: int = 0
    late_rows: int = 0


class Figures:
    """The figures of one run. Counts are those of completed micro-batches, each counted once."""

    def __init__(self, plan: Plan) -> None:
        behind = set() if plan.dead_letters_id is None else set(plan.reachable(plan.nodes[plan.dead_letters_id]))
        self._job = plan.job_name
        self._written = {sink_id: 0 for sink_id in plan.sinks if sink_id not in behind}
        self._skipped = 0
        self._queues: dict[str, _QueueFigures] = {}
        self._batches: set[int] = set()
        self._shards: dict[str, _ShardFigures] = {}
        self._shuffles = set(plan.shuffles)
        self._first_shuffles = {
            name for name, sides in upstream_of(plan).items() if not any(ids & self._shuffles for ids in sides)
        }
        self._shard_dead_letters = 0
        self._reasons = ReasonCounts()
        self._dead_letter_places = dead_letter_places(plan)

    @property
    def checkpoint_id(self) -> int:
        """The number of the last micro-batch that was completed, from 1; 0 before."""
        return max(self._batches, default=-1) + 1

    def add_batch(self, batch_id: int, tasks: list[Mapping[str, Any]]) -> bool:
        """Add a completed micro-batch; return False when it is known already."""
        if batch_id in self._batches:
            return False
        self._batches = {batch_id}  # they are completed in order: the last is enough
        for task in tasks:
            self._skipped += task["skipped"]
            for sink_id, rows in task["written"].items():
                self._written[sink_id] += rows
            for queue_id, records in task["records"].items():
                self._queue(queue_id).records += records
            for queue_id, offset in task["ends"].items():
                self._queue(queue_id).offset = offset
            for queue_id, figures in task["shards"].items():
                shard = self._shards.setdefault(queue_id, _ShardFigures())
                shard.watermark_us, shard.state_rows = figures["watermark_us"], figures["state_rows"]
                shard.late_rows += figures["late_rows"]
            self._reasons.merge(DeadLetterReason(*each) for each in task["reasons"])
            for queue_id, count in task["dead_letters"].items():
                if _source_of(queue_id) in self._shuffles:
                    self._shard_dead_letters += count
                else:
                    self._queue(queue_id).dead_letters += count
        return True

    def add_queue(self, queue: Queue, offset: int) -> None:
        """Note that a queue is read, and from where."""
        self._queue(queue.id).offset = offset

    def set_latest(self, offsets: Mapping[str, int]) -> None:
        """Note where queues end."""
        for queue_id, offset in offsets.items():
            self._queue(queue_id).latest = offset

    def set_broken(self, queue_id: str, offset: int | None, why: str | None) -> None:
        """Note that a queue was set aside and why, or (None) that it can be read again."""
        if why is None and queue_id not in self._queues:
            return
        queue = self._queue(queue_id)
        queue.broken = why
        queue.offset = queue.offset if offset is None else offset

    def status(self, state: JobState, seconds: float, error: str | None) -> JobStatus:
        """Return the figures as they are."""
        queues = tuple(
            QueueStatus(queue_id, q.offset, q.latest, q.records, q.dead_letters, q.broken)
            for queue_id, q in sorted(self._queues.items())
        )
        return JobStatus(
            job=self._job,
            backend="spark",
            state=state,
            records_read=sum(queue.records for queue in queues),
            rows_written=dict(self._written),
            rows_skipped=self._skipped,
            dead_letters=sum(queue.dead_letters for queue in queues) + self._shard_dead_letters,
            dead_letter_reasons=self._reasons.most_frequent(),
            dead_letter_places=self._dead_letter_places,
            queues=queues,
            checkpoint_id=self.checkpoint_id,
            seconds=seconds,
            error=error,
            watermark=self._watermark(),
            state_rows=sum(shard.state_rows for shard in self._shards.values()),
            late_rows=sum(shard.late_rows for shard in self._shards.values()),
        )

    def _watermark(self) -> datetime | None:
        """Return the least watermark behind the first shuffles; None when a shard has none, or it is no date."""
        found = [each.watermark_us for at, each in self._shards.items() if _source_of(at) in self._first_shuffles]
        if not found or None in found:
            return None
        try:
            return _EPOCH + timedelta(microseconds=min(each for each in found if each is not None))
        except OverflowError:
            return None

    def _queue(self, queue_id: str) -> _QueueFigures:
        return self._queues.setdefault(queue_id, _QueueFigures())


def _source_of(queue_id: str) -> str:
    return queue_id.partition("/")[0]
