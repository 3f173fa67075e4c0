"""What a sink is. A user writes ``batch_insert`` alone; ``sink_writer`` does the rest around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
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

    batch_size: Annotated[int, option("most rows in one batch_insert call", ge=1)] = 10_000
    max_cached_rows: Annotated[int, option("rows cached per queue before a flush is forced", ge=1)] = 50_000
    max_cached_bytes: Annotated[int, option("bytes cached per queue before a flush is forced", ge=1)] = 64 * 1024**2
    flush_interval: Annotated[timedelta, option("longest time a row waits in the cache")] = timedelta(seconds=1)
    retry_timeout: Annotated[timedelta, option("how long a retriable error is retried before the job fails")] = (
        timedelta(minutes=2)
    )
    retry_backoff: Annotated[timedelta, option("first wait before a retry; doubles each time")] = timedelta(
        milliseconds=100
    )
    retry_backoff_max: Annotated[timedelta, option("longest wait between two retries")] = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Rows of one queue to insert: never empty, ordered by position, at most ``batch_size`` of them."""

    queue: Queue
    #: User columns and header columns.
    frame: pl.DataFrame
    #: Position up to which the writer knows this sink's rows of the queue to be stored; None: none known.
    after: Position | None = None
    #: The sink's ``writer_name``: tells apart what two jobs make of one record.
    writer: str = ""

    def __len__(self) -> int:
        return self.frame.height

    @property
    def first(self) -> Position:
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
        from headrace.flow.messages import HEADER_COLUMNS

        return self.frame.drop(HEADER_COLUMNS, strict=False)

    def to_arrow(self) -> pa.Table:
        """Return the user columns as an Arrow table (needs pyarrow)."""
        return self.to_polars().to_arrow()

    def positions(self) -> Iterator[Position]:
        """Yield the position of each row."""
        for offset, index in self.frame.select(OFFSET, INDEX).iter_rows():
            yield Position(offset, index)

    def ids(self) -> Sequence[str]:
        """Return one string per row that names it for ever: writer, queue, offset and index. For idempotent sinks."""
        prefix = f"{self.writer}:{self.queue.id}" if self.writer else self.queue.id
        return [f"{prefix}:{offset}:{index}" for offset, index in self.frame.select(OFFSET, INDEX).iter_rows()]


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
    #: ``namespace.pipeline.node``, set when the job is built: under it a transactional sink keeps its positions, so that
    #: two jobs that write to one place do not take each other's rows for replays.
    writer_name: str = ""
    #: ``namespace.pipeline``, set when the job is built. Another job is refused the object: it would write under its own names.
    writer_job: str = ""
    #: Whether the rows of each definition of the job are written under a name of their own: for outputs that nobody asked for.
    names_writer_by_definition: bool = False
    #: Calls for one queue never overlap. Set to True if calls for different queues may.
    concurrent: bool = False
    #: Which changes the sink takes: "append", "upsert" (by key) or "changelog".
    accepts: str = "append"
    #: Whether rows change earlier results, and by which key; set when the job is built. Then ``SinkBatch.frame`` has the
    #: ``CHANGE`` column, and the sink's own settings say what it does with it.
    changes: Changes | None = None

    @property
    def prints_to_terminal(self) -> bool:
        """Whether rows go to the terminal: then the command shows no progress line between them."""
        return False

    def check(self, schema: Schema | None) -> None:
        """Check options against the columns that will come. Called when the job is built; must not connect.

        ``schema`` is None when the columns are known only row by row. Raises JobError.
        """

    def prepare(self, schema: Schema | None) -> None:
        """Make the outside world ready: check permissions and columns, create what is missing.

        Called once per start of the job, in the process that starts it, before anything is read. Raises JobError for
        what a person must mend.
        """

    def adopt(self, output: OutputDefinition) -> InputRead | None:
        """Compare what makes the rows with what made those that are there, and remember it for the next start.

        Called once per start of the job, behind ``prepare`` and before anything is read. For sinks that keep positions: there, new
        rows of another job would be dropped as known. Returns, where results come again (``output.repeats_results``), the input over which
        all of them are there; else None. Raises JobError when what is there is another job's, or a part of such results. The
        default remembers nothing.
        """
        return None

    def completed(self, read: InputRead) -> None:
        """A run that began anew has come to the end of its input: all results over it are there. Remember it for ``adopt``.

        Called by the process that called ``adopt``, when everything is stored. The default does nothing.
        """

    def open(self) -> None:
        """Connect. Called once in each process before its first ``batch_insert``."""

    @abstractmethod
    def batch_insert(self, batch: SinkBatch) -> None:
        """Insert the rows; on return they are stored.

        Raises RetriableError when the same call may succeed later (it is then repeated, with back-off), JobError when
        the job must stop, and anything else when the rows are to blame: the batch is then halved until the bad rows
        are found, which go to the dead letters. After an exception some rows may be stored already.
        """

    def queue_removed(self, queue: Queue) -> None:
        """The queue is no longer written by this process: forget what is kept for it."""

    def close(self) -> None:
        """Give back what the sink holds. May be called twice; never called when the process is killed."""


class IdempotentSink(Sink):
    """A sink whose writes are keyed (by header or a user key): inserting a row again changes nothing.

    Guarantee: exactly once as seen by readers, provided the key is right.
    """


class TransactionalSink(Sink):
    """A sink that stores rows and their queue's greatest position in one transaction. Guarantee: exactly once.

    ``batch_insert`` must store ``batch.rows`` and ``batch.last`` for ``batch.queue`` atomically. Another process may
    believe that it owns the same queue (a zombie): within the transaction, compare the stored position with
    ``batch.after`` and raise StaleWriterError when they differ.
    """

    @abstractmethod
    def last_offset(self, queue: Queue) -> Position | None:
        """Return the greatest position stored for the queue, or None. Called before the first rows of a queue."""

    def check_rows(self, batch: SinkBatch) -> None:
        """Raise what ``batch_insert`` would raise for these rows, and store nothing. May be left out.

        Called only after ``batch_insert`` has refused them, with ever smaller parts, to find the bad rows: these are then
        stored as dead letters together, before the position moves behind them. Without it each bad row is stored by itself,
        between the good ones. May let rows pass that ``batch_insert`` refuses for what is stored already. What it raises must be the
        row's own fault, whatever stands before it.
        """
        raise NotImplementedError

    @classmethod
    def can_check_rows(cls) -> bool:
        """Return whether the class has a ``check_rows`` of its own."""
        return cls.check_rows is not TransactionalSink.check_rows


class StaleWriterError(RetriableError):
    """Somebody else has written rows of this queue meanwhile. The writer asks ``last_offset`` again and drops them."""
