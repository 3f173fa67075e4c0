"""What a worker process asks Spark about the task that it runs: its number, its micro-batch, its query, the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace_spark.transit.payload import JobPayload

#: The column of envelopes that holds the time of the micro-batch, in jobs without a planner that depend on the clock.
TIME_COLUMN = "batch_time_us"


@dataclass(frozen=True)
class Task:
    """What a worker process works on: a partition of a micro-batch. A plain batch query has one micro-batch, 0."""

    batch_id: int
    partition: int
    #: Unique among all attempts of all tasks of a Spark.
    attempt: int


def in_task(payload: JobPayload) -> tuple[JobPayload, Task]:
    """Return the payload as it is for the query of the task that this process runs, and the task.

    A batch query that runs inside a micro-batch of another query (``foreachBatch``) sees that one's properties.
    """
    context = TaskContext.get()
    assert context is not None, "called outside a Spark task"
    batch_id = 0 if payload.batch else int(context.getLocalProperty("streaming.sql.batchId") or 0)
    if payload.state_by_query and not payload.batch:
        query_id = context.getLocalProperty("sql.streaming.queryId")
        payload = payload.of_query(str(query_id))
    return payload, Task(batch_id, context.partitionId(), context.taskAttemptId())


class BatchClock:
    """Passes Arrow batches on, and notes the time of the micro-batch that they carry."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._time_us = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if batch.num_rows and TIME_COLUMN in batch.schema.names:
                self._time_us = batch.column(TIME_COLUMN)[0].as_py()
            yield batch

    def time_us(self) -> int:
        """Return the time of the micro-batch, microseconds since the Unix epoch; 0 if no batch has set it."""
        return self._time_us
