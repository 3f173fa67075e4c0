"""Adds up what the processes of a run report: the figures of status and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.flow.dead_letters import DeadLetterReason, ReasonCounts
from headrace.flow.messages import Queue
from headrace.interfaces.backend import JobState, JobStatus, QueueStatus, event_time
from headrace.plan.dead_letter_places import dead_letter_places
from headrace.plan.graph import Plan
from headrace.plan.stages import upstream_of

from headrace_spark.transit.totals import Totals


@dataclass
class _QueueFigures:
    offset: int = 0
    latest: int | None = None
    records: int = 0
    dead_letters: int = 0
    broken: str | None = None


class Figures:
    """The figures of one run. Counts are those of completed micro-batches, each counted once."""

    def __init__(self, plan: Plan) -> None:
        behind = set() if plan.dead_letters_id is None else set(plan.reachable(plan.nodes[plan.dead_letters_id]))
        self._job = plan.job_name
        self._written = {sink_id: 0 for sink_id in plan.sinks if sink_id not in behind}
        self._queues: dict[str, _QueueFigures] = {}
        self._shuffles = set(plan.shuffles)
        self._totals = Totals(
            name for name, sides in upstream_of(plan).items() if not any(ids & self._shuffles for ids in sides)
        )
        self._shard_dead_letters = 0
        self._reasons = ReasonCounts()
        self._dead_letter_places = dead_letter_places(plan)

    @property
    def checkpoint_id(self) -> int:
        """The number of the last micro-batch that was completed, from 1; 0 before."""
        return self._totals.batch_id + 1

    def add_batch(self, batch_id: int, tasks: list[Mapping[str, Any]]) -> bool:
        """Add a completed micro-batch; return False when it is known already."""
        if batch_id <= self._totals.batch_id:  # they are completed in order
            return False
        self._totals.add(batch_id, tasks)
        for task in tasks:
            for sink_id, rows in task["written"].items():
                self._written[sink_id] += rows
            for queue_id, records in task["records"].items():
                self._queue(queue_id).records += records
            for queue_id, offset in task["ends"].items():
                self._queue(queue_id).offset = offset
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
            rows_skipped=self._totals.skipped,
            dead_letters=sum(queue.dead_letters for queue in queues) + self._shard_dead_letters,
            dead_letter_reasons=self._reasons.most_frequent(),
            dead_letter_places=self._dead_letter_places,
            queues=queues,
            checkpoint_id=self.checkpoint_id,
            seconds=seconds,
            error=error,
            watermark=event_time(self._totals.watermark_us),
            state_rows=self._totals.state_rows,
            late_rows=self._totals.late_rows,
        )

    def _queue(self, queue_id: str) -> _QueueFigures:
        return self._queues.setdefault(queue_id, _QueueFigures())


def _source_of(queue_id: str) -> str:
    return queue_id.partition("/")[0]
