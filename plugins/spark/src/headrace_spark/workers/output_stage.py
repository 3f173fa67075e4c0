"""Where the rows of a job become the rows of a DataFrame, in the workers: what Spark calls, for ``to_dataframe``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace_spark.transit.failures import reported
from headrace_spark.transit.payload import JobPayload

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from headrace.runtime.outlets import Outlets

    from headrace_spark.transit.envelopes import Envelope
    from headrace_spark.workers.tasks import Task

#: Rows of an Arrow batch that goes to Spark.
_ROWS_MAX = 10_000


@dataclass(frozen=True)
class Output:
    """Which rows a DataFrame gets, and how: those for the sink ``target``, as the columns of ``schema``."""

    target: str
    schema: pa.Schema
    #: The column that says how a row changes the result, and the one by which changes are put in order.
    kind_column: str | None = None
    order_column: str | None = None

    def batches(self, frame: pl.DataFrame) -> Iterator[pa.RecordBatch]:
        """Yield rows with their header as Arrow batches of the schema."""
        import polars as pl
        import pyarrow as pa

        made = frame
        if self.kind_column is not None and self.order_column is not None:
            made = made.with_columns(_kinds(frame).alias(self.kind_column), _order(frame).alias(self.order_column))
        table = made.select(self.schema.names).to_arrow(compat_level=pl.CompatLevel.oldest())
        assert isinstance(table, pa.Table)
        yield from table.cast(self.schema).to_batches(max_chunksize=_ROWS_MAX)


def _kinds(frame: pl.DataFrame) -> pl.Expr:
    import polars as pl
    from headrace.flow.changelog import KIND_NAMES
    from headrace.flow.messages import CHANGE, ChangeKind

    if CHANGE not in frame.columns:
        return pl.lit(KIND_NAMES[ChangeKind.INSERT])
    known = pl.col(CHANGE).fill_null(ChangeKind.INSERT).cast(pl.Int64)
    return known.replace_strict(dict(KIND_NAMES), return_dtype=pl.String)


def _order(frame: pl.DataFrame) -> pl.Expr:
    import polars as pl
    from headrace.flow.messages import INDEX, OFFSET

    return pl.col(OFFSET) * 2**32 + pl.col(INDEX).cast(pl.Int64)


class FrameStage:
    """Takes the rows of a DataFrame through the lane of their source, in the workers; gives envelopes for keyed stages."""

    def __init__(self, payload: JobPayload, source_id: str) -> None:
        self._payload = payload
        self._source_id = source_id

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reported(self._payload):
            from headrace_spark.transit.envelopes import to_arrow
            from headrace_spark.workers.frame_stage import rows_through_lane
            from headrace_spark.workers.tasks import in_task

            payload, task = in_task(self._payload)
            yield from to_arrow(rows_through_lane(payload, self._source_id, batches, task))


class OutputStage:
    """Runs the last stage of a job in the workers and returns its rows. ``source_id``: the DataFrame whose rows it processes.

    Without it the input is envelopes: with ranges of queues to read or, behind shuffles, with rows for shards.
    """

    def __init__(self, payload: JobPayload, output: Output, source_id: str | None = None) -> None:
        self._payload = payload
        self._output = output
        self._source_id = source_id

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reported(self._payload):
            from headrace_spark.workers.tasks import in_task

            payload, task = in_task(self._payload)
            letters = _DeadLetters(payload, task)
            try:
                for envelope in self._made(payload, task, batches):
                    if envelope.kind == "rows" and envelope.target == self._output.target:
                        yield from self._output.batches(envelope.frame())
                    elif envelope.kind == "rows":
                        letters.write(envelope)
                letters.close(flush=True)
            except GeneratorExit:  # Spark needs no more rows, as with limit(): keep what was found
                letters.close(flush=True)
                raise
            except BaseException:
                letters.close(flush=False)
                raise

    def _made(self, payload: JobPayload, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterable[Envelope]:
        from headrace_spark.transit.envelopes import from_arrow
        from headrace_spark.workers.tasks import BatchClock

        if self._source_id is not None and payload.keyed is None:
            from headrace_spark.workers.frame_stage import rows_through_lane

            return rows_through_lane(payload, self._source_id, batches, task)
        if payload.keyed is None:
            from headrace_spark.transit.carried_ranges import ranges_in
            from headrace_spark.workers.lanes import read_ranges

            return read_ranges(payload, ranges_in(from_arrow(batches)), task.batch_id)
        from headrace_spark.workers.keyed_stage import run_shards

        clock = BatchClock(batches)
        level = len(payload.keyed.levels)
        return run_shards(payload, level, task.partition, from_arrow(clock), task.batch_id, clock.time_us)


class _DeadLetters:
    """Writes the dead letters of one attempt of a task to their sink. They are stored when the task ends.

    Their sink knows them under a name of their own attempt: an attempt that is run again writes them again, and none is taken
    for a repetition of another. So they come at least once.
    """

    def __init__(self, payload: JobPayload, task: Task) -> None:
        self._payload = payload
        self._task = task
        self._outlets: Outlets | None = None

    def write(self, envelope: Envelope) -> None:
        from headrace.runtime.lane import DEAD_LETTERS
        from headrace.runtime.outlets import Outlets

        if envelope.target != DEAD_LETTERS:
            return
        if self._outlets is None:
            self._outlets = Outlets(self._payload.plan(), auto_flush=False)
        delivery, task = envelope.delivery(), self._task
        queue = delivery.batch.queue
        name = f"{queue.name}-{self._payload.token}-{task.batch_id}-{task.attempt}"
        self._outlets.deliver([replace(delivery, batch=replace(delivery.batch, queue=replace(queue, name=name)))])

    def close(self, *, flush: bool) -> None:
        outlets, self._outlets = self._outlets, None
        if outlets is not None:
            outlets.close(flush=flush)
