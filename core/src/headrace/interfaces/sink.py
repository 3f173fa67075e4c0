"""The interface of sinks. ``batch_insert`` is the only required method; ``headrace.runtime.sink_writer`` does the
rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from headrace.flow.messages import INDEX, OFFSET, ROW, Position, Queue, position_of
from headrace.foundation.errors import RetriableError
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.table_options import TableOptions

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from headrace.flow.schema import Schema
    from headrace.interfaces.operator import Changes
    from headrace.interfaces.output_definition import InputRead, OutputDefinition


class SinkSettings(Settings, frozen=True, kw_only=True):
    """Options that every sink has: how rows are cached, flushed and retried."""

    batch_size: Annotated[int, option("maximum number of rows in one call of batch_insert", ge=1)] = 10_000
    max_cached_rows: Annotated[int, option("rows cached per queue before a flush is forced", ge=1)] = 50_000
    max_cached_bytes: Annotated[int, option("bytes cached per queue before a flush is forced", ge=1)] = 64 * 1024**2
    flush_interval: Annotated[
        timedelta, option("longest time that a row waits in the cache; `0 s`: each batch is inserted at once")
    ] = timedelta(seconds=1)
    retry_timeout: Annotated[timedelta, option("how long a retriable error is retried before the job fails")] = (
        timedelta(minutes=2)
    )
    retry_backoff: Annotated[timedelta, option("wait before the first retry; it doubles with every further retry")] = (
        timedelta(milliseconds=100)
    )
    retry_backoff_max: Annotated[timedelta, option("longest wait between two retries")] = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Rows of one queue to insert: never empty, ordered by position, at most ``batch_size`` of them."""

    queue: Queue
    #: User columns and header columns.
    frame: pl.DataFrame
    #: The position up to which this sink's rows of the queue are stored, as far as the writer knows; None if it knows
    #: of none.
    after: Position | None = None
    #: The sink's ``writer_name``: it distinguishes the rows that two jobs make from one record.
    writer: str = ""

    def __len__(self) -> int:
        return self.frame.height

    @property
    def first(self) -> Position:
        """The position, (offset, index), of the first row: the smallest in the batch."""
        return position_of(self.frame, 0)

    @property
    def last(self) -> Position:
        """The greatest (offset, index) in the batch: what a transactional sink stores with the rows."""
        return position_of(self.frame, -1)

    @property
    def dynamic(self) -> bool:
        """Whether columns are known only row by row (a ``map`` without schema came before)."""
        return ROW in self.frame.columns

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dicts of Python values, without header."""
        if self.dynamic:
            from headrace.flow.rows import unpack_rows

            return unpack_rows(self.frame[ROW])
        return self.to_polars().to_dicts()

    def to_polars(self) -> pl.DataFrame:
        """Return the user columns. Rows of unknown columns get the types their values have in this batch."""
        if self.dynamic:
            import polars as pl

            return pl.from_dicts(self.rows(), infer_schema_length=None)
        from headrace.flow.messages import HEADER_COLUMNS, picked

        columns = [name for name in self.frame.columns if name not in HEADER_COLUMNS]
        return picked(self.frame, columns) if columns else self.frame.drop(HEADER_COLUMNS, strict=False)

    def to_arrow(self) -> pa.Table:
        """Return the user columns as an Arrow table (needs pyarrow)."""
        return self.to_polars().to_arrow()

    def positions(self) -> Iterator[Position]:
        """Yield the position of each row."""
        for offset, index in self._places():
            yield Position(offset, index)

    def ids(self) -> Sequence[str]:
        """Return one string per row that never changes: writer, queue, offset and index. For idempotent sinks."""
        prefix = f"{self.writer}:{self.queue.id}" if self.writer else self.queue.id
        return [f"{prefix}:{offset}:{index}" for offset, index in self._places()]

    def _places(self) -> Iterable[tuple[int, int]]:
        return zip(self.frame.get_column(OFFSET).to_list(), self.frame.get_column(INDEX).to_list(), strict=True)


class Sink(ABC):
    """Where rows go. Guarantee: at least once. Implement ``batch_insert``; everything else has a default.

    One object per sink node of one job, made when the job is built. It must survive ``cloudpickle`` until ``open``;
    every process that writes has its own copy and opens it.
    """

    #: The declared options; ``to_<name>(**options)`` validates against it.
    Settings: ClassVar[type[SinkSettings]] = SinkSettings
    #: How SQL texts write the options, by the connector's name in ``WITH ('connector' = …)``, as for sources.
    table_options: ClassVar[Mapping[str, TableOptions]] = {}
    #: How rows are cached and retried. Instances made from options have their own.
    settings: SinkSettings = SinkSettings()
    #: ``namespace.pipeline.node``, set when the job is built. A transactional sink stores its positions under this
    #: name. So two jobs can write to the same place, and neither drops rows because of the other's positions.
    writer_name: str = ""
    #: ``namespace.pipeline``, set when the job is built. Another job cannot use the object, because it would write
    #: under this job's names.
    writer_job: str = ""
    #: Whether each definition of the job has its own writer name: for outputs that the user did not name, such as
    #: default dead letters.
    names_writer_by_definition: bool = False
    #: Calls for one queue never overlap. Set to True if calls for different queues may.
    concurrent: bool = False
    #: Which changes the sink takes: "append", "upsert" (by key) or "changelog".
    accepts: str = "append"
    #: Whether ``adopt`` can remove the stored rows when ``output.replace`` is set.
    can_replace: bool = False
    #: Whether stored rows are removed when the job starts without a checkpoint, as by ``INSERT OVERWRITE``. Only for
    #: sinks with ``can_replace``.
    replaces: bool = False
    #: Whether rows change earlier results, and by which key; set when the job is built. Then ``SinkBatch.frame`` has
    #: the ``CHANGE`` column, and the sink's own settings say what it does with it.
    changes: Changes | None = None

    @property
    def prints_to_terminal(self) -> bool:
        """Whether rows are printed to the terminal. Then the command shows no progress line."""
        return False

    def check(self, schema: Schema | None) -> None:
        """Check options against the columns that will come. Called when the job is built; must not connect.

        ``schema`` is None when the columns are known only row by row. Raises JobError.
        """

    def prepare(self, schema: Schema | None) -> None:
        """Prepare the target: check permissions and columns, create what is missing.

        Called once per start of the job, in the process that starts it, before anything is read. Raises JobError for
        problems that a person must fix.
        """

    def adopt(self, output: OutputDefinition) -> InputRead | None:
        """Compare the definition of this output with the stored one, and store it for the next start.

        Called once per start of the job, after ``prepare`` and before anything is read. For sinks that keep
        positions: they would drop new rows of another job as already stored. If the job repeats its results
        (``output.repeats_results``), returns the input for which all results are stored, otherwise None. Raises
        JobError if the stored rows belong to another job, or are only a part of such results. The default stores
        nothing.
        """
        return None

    def completed(self, read: InputRead) -> None:
        """Store, for ``adopt``, that all results for this input are stored. Called when a run without a checkpoint has
        reached the end of its input.

        Called in the process that called ``adopt``, after all rows are stored. If it raises RetriableError, it is
        called again. The default does nothing.
        """

    def open(self) -> None:
        """Connect. Called once in each process before its first ``batch_insert``."""

    @abstractmethod
    def batch_insert(self, batch: SinkBatch) -> None:
        """Insert the rows; on return they are stored.

        Raises RetriableError if the same call may succeed later (it is repeated, with back-off), JobError if
        the job must stop, and any other error if rows are bad: the batch is then halved until the bad rows
        are found, and they go to the dead letters. After an exception some rows may be stored already.
        """

    def queue_removed(self, queue: Queue) -> None:
        """Called when this process no longer writes rows of the queue. Release the memory that belongs to the queue."""

    def close(self) -> None:
        """Release the sink's resources, such as connections. May be called twice. It is not called if the process is
        killed.
        """


class IdempotentSink(Sink):
    """A sink that writes each row under a key (of the header, or of the user). Inserting a row again changes nothing.

    Guarantee: a reader sees each row exactly once, if the key identifies the row.
    """


class TransactionalSink(Sink):
    """A sink that stores rows and the greatest position of their queue in one transaction. Guarantee: exactly once.

    ``batch_insert`` must store ``batch.rows`` and ``batch.last`` for ``batch.queue`` atomically. Another process may
    still write rows of the same queue, although it no longer owns the queue. So compare the stored position with
    ``batch.after`` within the transaction, and raise StaleWriterError if they differ.
    """

    @abstractmethod
    def last_offset(self, queue: Queue) -> Position | None:
        """Return the greatest position stored for the queue, or None. Called before the first rows of a queue."""

    def check_rows(self, batch: SinkBatch) -> None:
        """Raise what ``batch_insert`` would raise for these rows, and store nothing. May be left out.

        Called only after ``batch_insert`` has raised an error, with smaller and smaller parts of the batch, to find
        the bad rows. These are then stored as dead letters together, before the position moves past them. Without
        this method each bad row is stored alone, between the good ones. It may accept rows that ``batch_insert``
        refuses because of rows that are stored already. An error must depend on the row alone, not on the rows before
        it.
        """
        raise NotImplementedError

    @classmethod
    def can_check_rows(cls) -> bool:
        """Return whether the class implements ``check_rows``."""
        return cls.check_rows is not TransactionalSink.check_rows


class StaleWriterError(RetriableError):
    """Raised by ``batch_insert`` when another process has written rows of this queue. The writer asks ``last_offset``
    again.
    """
