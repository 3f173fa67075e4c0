"""Adds up what a run's processes tell: the figures of status and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.backend import JobState, JobStatus, QueueStatus
from headrace.messages import Queue
from headrace.plan import Plan


@dataclass
class _QueueFigures:
    offset: int = 0
    latest: int | None = None
    records: int = 0
    dead_letters: int = 0


class Figures:
    """The figures of one run. Counts are those of completed micro-batches, each counted once."""

    def __init__(self, plan: Plan) -> None:
        behind = set() if plan.dead_letters_id is None else set(plan.reachable(plan.nodes[plan.dead_letters_id]))
        self._job = plan.job_name
        self._written = {sink_id: 0 for sink_id in plan.sinks if sink_id not in behind}
        self._skipped = 0
        self._queues: dict[str, _QueueFigures] = {}
        self._batches: set[int] = set()

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
            for queue_id, count in task["dead_letters"].items():
                self._queue(queue_id).dead_letters += count
        return True

    def add_queue(self, queue: Queue, offset: int) -> None:
        """Note that a queue is read, and from where."""
        self._queue(queue.id).offset = offset

    def set_latest(self, offsets: Mapping[str, int]) -> None:
        """Note where queues end."""
        for queue_id, offset in offsets.items():
            self._queue(queue_id).latest = offset

    def status(self, state: JobState, seconds: float, error: str | None) -> JobStatus:
        """Return the figures as they are."""
        queues = tuple(
            QueueStatus(
                queue_id, q.offset, None if q.latest is None else max(q.latest, q.offset), q.records, q.dead_letters
            )
            for queue_id, q in sorted(self._queues.items())
        )
        return JobStatus(
            job=self._job,
            backend="spark",
            state=state,
            records_read=sum(queue.records for queue in queues),
            rows_written=dict(self._written),
            rows_skipped=self._skipped,
            dead_letters=sum(queue.dead_letters for queue in queues),
            queues=queues,
            checkpoint_id=self.checkpoint_id,
            seconds=seconds,
            error=error,
        )

    def _queue(self, queue_id: str) -> _QueueFigures:
        return self._queues.setdefault(queue_id, _QueueFigures())
