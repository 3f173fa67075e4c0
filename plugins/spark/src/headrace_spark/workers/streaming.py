"""What Spark calls: one Python data source that is the source stage of a job, and one that is its sink stage.

Spark makes and calls these objects in several processes: ``LaneReader``'s planning methods in one long-lived process on
the driver's machine, ``read`` and ``write`` in the workers, ``commit`` in another process on the driver's machine.
"""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.foundation.faults import fault_point
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from headrace_spark.planning.micro_batch_size import FOUND_BY_PLANNER
from headrace_spark.transit.blobs import remove_blobs
from headrace_spark.transit.failures import carried_to_driver, reported
from headrace_spark.transit.payload import JobPayload
from headrace_spark.transit.run_directory import RunDirectory
from headrace_spark.transit.totals import KEY

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headrace_spark.checkpoints.offsets import JobOffsets
    from headrace_spark.planning.planner import Planner
    from headrace_spark.transit.envelopes import Envelope
    from headrace_spark.transit.marks import Control
    from headrace_spark.transit.ranges import QueueRange
    from headrace_spark.transit.task_counts import TaskCounts


_spared: set[str] = set()


def _spare_the_collector(work: str) -> None:
    """Exempt the objects of imported modules from garbage collection, after the first piece of each kind of work.

    Spark's Python processes collect garbage after every task, which takes 25 ms because everything that was imported is
    walked again.
    """
    if work not in _spared:
        _spared.add(work)
        gc.collect()
        gc.freeze()


class LanePartition(InputPartition):
    """The ranges that one task reads, and its control data for the shards of keyed stages."""

    def __init__(self, ranges: Sequence[QueueRange], control: Control | None = None) -> None:
        super().__init__(list(ranges))
        self.control = control


def _partitions(
    planner: Planner, start: JobOffsets, end: JobOffsets, *, control_from: JobOffsets
) -> Sequence[LanePartition]:
    """Return the ranges of the tasks of a micro-batch. The first task sends the shards the control data since ``control_from``."""
    from headrace_spark.transit.marks import control_of

    first, *others = planner.partitions(start, end) or [[]]
    return [LanePartition(first, control_of(control_from, end)), *(LanePartition(ranges) for ranges in others)]


def _read(payload: JobPayload, partition: InputPartition, batch_id: int) -> Iterator[pa.RecordBatch]:
    """Yield the output of the lanes for a task's ranges; the ranges themselves if the sink stage reads them in the same task."""
    from headrace_spark.transit.envelopes import to_arrow

    assert isinstance(partition, LanePartition)
    if payload.shuffles:
        from headrace_spark.workers.lanes import read_ranges

        made = read_ranges(payload, partition.value, batch_id, partition.control)
        yield from to_arrow(made, payload.blobs(batch_id))
    else:
        from headrace_spark.transit.carried_ranges import carried

        yield from to_arrow([carried(partition.value)])


class LaneReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads them in the workers."""

    def __init__(self, payload: JobPayload) -> None:
        self._payload = payload
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_payload": self._payload, "_planner": None}

    def _plan(self) -> Planner:
        if self._planner is None:
            from headrace_spark.planning.planner import Planner

            self._planner = Planner(self._payload)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        with carried_to_driver():
            return self._plan().initial().to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with carried_to_driver():
            records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            begin = _offsets(start)
            self._plan().stored(begin)
            return self._plan().next_end(begin, records_max).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        records_max = self._payload.micro_batch_records
        return ReadMaxRows(FOUND_BY_PLANNER if records_max is None else records_max)

    def prepareForTriggerAvailableNow(self) -> None:
        # The planner takes the ends when it is first asked: only then does it know where the job is.
        if self._payload.in_user_query and self._payload.until is None:  # the user has chosen the trigger
            self.stop()
            self._planner, self._payload = None, replace(self._payload, until="end")
        assert self._payload.until == "end"

    def reportLatestOffset(self) -> dict[str, Any]:
        with carried_to_driver():
            # Spark only shows it, so the figures of the job can stand there too.
            offsets = {queue.id: offset for queue, offset in self._plan().latest().items()}
            return {**offsets, KEY: self._plan().figures()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with carried_to_driver():
            begin, to = _offsets(start), _offsets(end)
            return _partitions(self._plan(), begin, to, control_from=begin)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with carried_to_driver():
            if self._payload.shuffles:
                _note_attempt(self._payload, "source stage")
            yield from _read(self._payload, partition, _batch_id())
            if self._payload.shuffles:
                _spare_the_collector("read")

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()


class KeyedStage:
    """Takes the shards of one partition through a micro-batch, in the workers: a level of keyed stages that is not the last."""

    def __init__(self, payload: JobPayload, level: int) -> None:
        self._payload = payload
        self._level = level

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reported(self._payload):
            from headrace_spark.transit.envelopes import from_arrow, to_arrow
            from headrace_spark.workers.keyed_stage import run_shards
            from headrace_spark.workers.tasks import BatchClock, in_task

            payload, task = in_task(self._payload)
            clock = BatchClock(batches)
            _note_attempt(payload, f"keyed stage {self._level}")
            envelopes = from_arrow(clock)
            made = run_shards(payload, self._level, task.partition, envelopes, task.batch_id, clock.time_us)
            yield from to_arrow(made, payload.blobs(task.batch_id))
            _spare_the_collector("keyed stage")


class LaneWriter(DataSourceStreamArrowWriter):
    """Runs the last stage of a job in the workers, which writes to its sinks, and reports the written rows to the driver.

    The last stage is the lanes of a task's queues or, behind shuffles, the last level of keyed stages. What it makes does not
    go through Java to another process that writes it: it is written by the process that has made it.
    """

    def __init__(self, payload: JobPayload) -> None:
        self._payload = payload

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with carried_to_driver():
            return _written(self._payload, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with carried_to_driver():
            self._payload.check_owned_on_driver()
            done = [message.counts for message in messages if isinstance(message, TaskDone)]
            RunDirectory.at(self._payload.run_directory).add_event(
                "batch", batch_id=batchId, tasks=[asdict(counts) for counts in done]
            )
            if self._payload.run_directory is not None:
                remove_blobs(self._payload.run_directory, batchId)
            fault_point("checkpoint.after_save")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: sinks keep stored rows, and drop them when they come again."""


class BatchWriter(DataSourceArrowWriter):
    """The same for a plain batch query."""

    def __init__(self, payload: JobPayload) -> None:
        self._payload = payload

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with carried_to_driver():
            return _written(self._payload, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with carried_to_driver():
            done = [asdict(message.counts) for message in messages if isinstance(message, TaskDone)]
            RunDirectory.at(self._payload.run_directory).add_event("batch", batch_id=0, tasks=done)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to undo, as for a micro-batch."""


def _written(given: JobPayload, batches: Iterator[pa.RecordBatch]) -> TaskDone:
    """Write the output of the last stage for a task's envelopes."""
    from headrace_spark.transit.carried_ranges import ranges_in
    from headrace_spark.transit.envelopes import from_arrow
    from headrace_spark.workers.keyed_stage import run_shards
    from headrace_spark.workers.lanes import read_ranges
    from headrace_spark.workers.shipping import in_order, with_frames_ahead
    from headrace_spark.workers.sink_stage import write_envelopes
    from headrace_spark.workers.tasks import BatchClock, in_task

    payload, task = in_task(given)
    clock = BatchClock(batches)
    keyed, batch_id, envelopes = payload.keyed, task.batch_id, from_arrow(clock)
    _note_attempt(payload, "sink stage")
    made: Iterable[Envelope]
    if keyed is not None:
        made = run_shards(payload, len(keyed.levels), task.partition, envelopes, batch_id, clock.time_us)
    elif payload.frames is not None:
        made = envelopes
    elif not payload.shuffles:
        made = read_ranges(payload, ranges_in(envelopes), batch_id)
    else:
        made = with_frames_ahead(in_order(envelopes))
    if payload.frames is not None:
        from headrace_spark.workers.frame_stage import for_sinks

        made = for_sinks(payload, made, task)
    context = TaskContext.get()
    assert context is not None
    repeated = context.attemptNumber() > 0 and batch_id != payload.replayed_batch_id
    counts = write_envelopes(payload, made, batch_id, repeated=repeated)
    if payload.frames is not None:
        from headrace_spark.workers.frame_stage import by_frame

        counts.dead_letters = by_frame(payload.frames, counts.dead_letters)
    _spare_the_collector("write")
    return TaskDone(counts)


@dataclass
class TaskDone(WriterCommitMessage):
    """What a task that wrote tells the driver."""

    counts: TaskCounts


class _JobDataSource(DataSource):
    """Base of the two data sources of a run: classes made for it, which carry its payload."""

    payload: ClassVar[JobPayload]
    provider: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        return cls.provider

    def schema(self) -> str:
        from headrace_spark.transit.envelopes import SPARK_SCHEMA

        return SPARK_SCHEMA


class _SourceStage(_JobDataSource):
    def streamReader(self, schema: StructType) -> LaneReader:
        if threading.current_thread() is threading.main_thread():
            # Ctrl-C reaches every process of the terminal; it is the driver program that stops the job.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return LaneReader(self.payload)


class _SinkStage(_JobDataSource):
    def streamWriter(self, schema: StructType, overwrite: bool) -> LaneWriter:
        # Called for every micro-batch in two processes on the driver's machine, to plan writing and to commit it.
        _spare_the_collector("make writer")
        return LaneWriter(self.payload)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(self.payload)


class _BatchReader(DataSourceReader):
    """Reads the sources of a job once, from their beginning to the end that they have when Spark plans the query."""

    def __init__(self, payload: JobPayload) -> None:
        self._payload = payload

    def partitions(self) -> Sequence[InputPartition]:
        with reported(self._payload):
            from headrace_spark.planning.planner import Planner

            planner = Planner(self._payload)
            try:
                begin, end = planner.whole_input()
                return _partitions(planner, begin, end, control_from=replace(begin, keyed=None))
            finally:
                planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with reported(self._payload):
            yield from _read(self._payload, partition, 0)


class _BatchStage(_JobDataSource):
    def reader(self, schema: StructType) -> _BatchReader:
        return _BatchReader(self.payload)


def batch_source_of(payload: JobPayload) -> type[DataSource]:
    """Return the source stage of a plain batch query, to be registered with Spark under its ``name()``."""
    return type("BatchStage", (_BatchStage,), {"payload": payload, "provider": f"headrace_source_{payload.token}"})


def data_sources_of(payload: JobPayload) -> tuple[type[DataSource], type[DataSource]]:
    """Return the source stage and the sink stage of a run, to be registered with Spark under their ``name()``.

    The classes carry the payload themselves: options of a data source are shown in Spark's UI and logs.
    """
    source = type("SourceStage", (_SourceStage,), {"payload": payload, "provider": f"headrace_source_{payload.token}"})
    sink = type("SinkStage", (_SinkStage,), {"payload": payload, "provider": f"headrace_sink_{payload.token}"})
    return source, sink


def _offsets(value: dict[str, Any]) -> JobOffsets:
    from headrace_spark.checkpoints.offsets import JobOffsets

    return JobOffsets.from_json(value)


def _batch_id() -> int:
    context = TaskContext.get()
    assert context is not None, "called outside a Spark task"
    return int(context.getLocalProperty("streaming.sql.batchId") or 0)


def _note_attempt(payload: JobPayload, stage: str) -> None:
    from headrace_spark.transit.troubles import TroubleNotes

    context = TaskContext.get()
    assert context is not None, "called outside a Spark task"
    TroubleNotes(payload.run_directory).begun(stage, _batch_id(), context.attemptNumber())
