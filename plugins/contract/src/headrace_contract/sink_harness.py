"""What the author of a sink implements, and how the checks write through the writer and compare what a reader sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar

import msgspec
import polars as pl
from headrace.flow.messages import INDEX, OFFSET, TIME, Batch, Position, Queue
from headrace.flow.schema import Schema
from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobFailedError, RetriableError
from headrace.interfaces.sink import IdempotentSink, Sink, SinkBatch, TransactionalSink
from headrace.runtime.sink_writer import SinkWriter

from headrace_contract.contract import ContractViolation, expect, optional_hook, shortened, violated
from headrace_contract.options import OptionChecks
from headrace_contract.outages import WithOutages
from headrace_contract.values import BASIC_TYPES, counted, edge_values, sample

#: Columns of the rows in most checks, unless an author says otherwise.
DEFAULT_SCHEMA: Mapping[str, Any] = {"id": "int64", "text": "string", "amount": "float64", "flag": "boolean"}


class SinkHarness(WithOutages, OptionChecks):
    """The part of ``SinkContract`` that an author fills in."""

    #: The columns of the rows that most checks write. Their values are unique per row in int64 and string columns.
    schema: ClassVar[Mapping[str, Any]] = DEFAULT_SCHEMA
    #: The types that the sink stores so that ``read_rows`` gives them back; ``headrace_contract.ALL_TYPES`` is all of them.
    types: ClassVar[Sequence[str]] = BASIC_TYPES
    #: False when the sink's target cannot hold NULL.
    nullable: ClassVar[bool] = True
    #: Length of the longest text that the sink must store; 0 when its columns are fixed, so that it cannot be checked.
    longest_text: ClassVar[int] = 1_000_000
    #: Whether this check has created the target.
    _created: bool = False
    #: The columns of the key by which the sink writes, if the user chooses one: of rows with equal keys only one is kept.
    key: ClassVar[Sequence[str]] = ()

    # ------------------------------------------------------------------------------------------- the author gives

    def make_sink(self) -> Sink:
        """Return a new sink. All sinks made within one check must write to the same target, which is empty at the beginning.

        Name the target after ``self.unique_name``, or put it below ``self.tmp_path``.
        """
        raise NotImplementedError

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        """Return all rows in the target as another program sees them now: do not use the sink.

        Values have the columns' types. Columns that the schema does not have are ignored; a missing column is NULL.
        """
        raise NotImplementedError

    def make_row(self, number: int) -> dict[str, Any]:
        """Return a row of ``schema``, a different one for each number. Override it for columns that need special values."""
        return {name: sample(kind, number) for name, kind in Schema.of(self.schema).items()}

    def as_read(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return how ``read_rows`` shows a row that was written. Override it if the target has fewer types.

        Rows have the columns of ``schema`` or, in the checks of types and lengths, ``id`` and ``value``.
        """
        return row

    def edge_values(self, type_name: str) -> Sequence[Any]:
        """Return the values at the limits of a type that the target must keep. Override it if its range is smaller."""
        return edge_values(type_name)

    @optional_hook
    def create_target(self, schema: Schema) -> None:
        """Create the target with these columns, if the sink's ``prepare`` does not do it. Called once per check."""

    @optional_hook
    def bad_row(self) -> dict[str, Any]:
        """Return a row of ``schema`` that the target refuses."""
        raise NotImplementedError

    @optional_hook
    def make_sink_without_target(self) -> Sink:
        """Return a sink that names something that does not exist and that the sink does not create."""
        raise NotImplementedError

    @optional_hook
    def unfit_schema(self) -> Mapping[str, Any]:
        """Return columns that the sink must refuse in ``check``, without connecting."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------- the checks use

    def make_plugin(self) -> Any:
        return self.make_sink()

    def use(self, plugin: Any) -> None:
        schema = Schema.of(self.schema)
        plugin.prepare(schema)
        plugin.open()
        plugin.batch_insert(SinkBatch(Queue("q"), self.batches("q", 0, 1)[0].frame))

    @property
    def exactly_once(self) -> bool:
        """Whether the sink's class promises that readers see each row once, whatever is replayed."""
        return isinstance(self.make_sink(), IdempotentSink | TransactionalSink)

    def prepared_sink(self, schema: Schema | None = None, *, job: str = "job", **settings: Any) -> Sink:
        """Return a sink as the job of that name has it at its start: after ``check`` and ``prepare``.

        ``settings``: options of the sink to replace.
        """
        columns = schema if schema is not None else Schema.of(self.schema)
        sink = self.make_sink()
        expect(
            isinstance(sink, Sink),
            expected="make_sink() returns a headrace.Sink",
            found=shortened(sink),
            mend="derive the class from Sink, IdempotentSink or TransactionalSink",
        )
        if settings:
            sink.settings = msgspec.structs.replace(sink.settings, **settings)
        sink.writer_name = f"{self.unique_name}.{job}.sink"  # a shared server has positions of other checks
        sink.check(columns)
        if self.provides("create_target") and not self._created:
            self.create_target(columns)
            self._created = True
        sink.prepare(columns)
        return sink

    @contextmanager
    def writing(
        self,
        sink: Sink | None = None,
        *,
        dead_letters: list[Batch] | None = None,
        clock: Clock | None = None,
    ) -> Iterator[SinkWriter]:
        """Give a writer around a sink, as a runtime uses it; at the end flush and close it.

        Dead letters fail the check, unless ``dead_letters`` is a list, which then gets them.
        """
        __tracebackhide__ = True
        refused: list[Batch] = []
        taking = refused if dead_letters is None else dead_letters
        writer = SinkWriter(
            sink if sink is not None else self.prepared_sink(),
            "contract",
            on_dead_letters=taking.append,
            clock=clock,
            auto_flush=False,
        )
        try:
            yield writer
            writer.flush()
        except JobFailedError as error:
            writer.close(flush=False)
            if dead_letters is not None or isinstance(error.__cause__, RetriableError):
                raise
            raise ContractViolation(
                "the sink stores every row that fits its columns",
                shortened(str(error), 600),
                "make batch_insert accept such rows, or declare the type or value as not supported",
            ) from error
        except BaseException:
            writer.close(flush=False)
            raise
        writer.close()
        if refused:
            row = refused[0].frame.row(0, named=True)
            violated(
                expected="the sink stores every row that fits its columns",
                found=f"it refused {shortened(row['row'])}: {row['error']}: {row['reason']}",
                mend="make batch_insert accept such a row, or declare the type or value as not supported",
            )

    def batches(
        self, queue: str, first: int, records: int, per_batch: int = 1000, *, rows_per_record: int = 1
    ) -> list[Batch]:
        """Return batches of ``records`` records of a queue, from offset ``first`` on. A record always has the same rows."""
        made = []
        for begin in range(first, first + records, per_batch):
            offsets = range(begin, min(begin + per_batch, first + records))
            places = [(offset, index) for offset in offsets for index in range(rows_per_record)]
            rows = [self.make_row(_number(queue, offset, index)) for offset, index in places]
            made.append(batch_of(Queue(queue), places, rows, Schema.of(self.schema)))
        return made

    def expect_stored(self, sent: Sequence[Batch], *, once: bool = True, mend: str) -> None:
        """Fail the check unless a reader sees the rows of these batches, each once (or at least once), and no others."""
        __tracebackhide__ = True
        rows = [row for batch in sent for row in batch.user_frame().to_dicts()]
        self.expect_rows(rows, once=once, mend=mend)

    def expect_rows(self, rows: Sequence[dict[str, Any]], *, once: bool = True, mend: str) -> None:
        """Fail the check unless a reader sees these rows, each once (or at least once), and no others."""
        __tracebackhide__ = True
        columns = list(rows[0]) if rows else list(self.schema)
        wanted, seen = counted(map(self.as_read, rows), columns), counted(self.read_rows(), columns)
        missing, foreign = wanted - seen, [row for row in seen if row not in wanted]
        promise = "each once" if once else "each at least once"
        expected = f"a reader sees the {len(rows)} rows that were written, {promise}, and no others"
        if missing or foreign:
            violated(expected=expected, found=_difference(list(missing), foreign), mend=mend)
        extra = seen - wanted
        if once and extra:
            shown = "; ".join(f"{seen[row]} × {shortened(dict(row), 200)}" for row in list(extra)[:3])
            violated(expected=expected, found=f"{len(extra)} rows are there more than once: {shown}", mend=mend)


def _difference(missing: Sequence[Any], foreign: Sequence[Any]) -> str:
    """Return a text that says which rows are missing, and which rows are there that were not written."""
    parts = [
        f"{len(rows)} rows {what}: {'; '.join(shortened(dict(row), 200) for row in rows[:3])}"
        for what, rows in (("are missing", missing), ("were never written, or are changed", foreign))
        if rows
    ]
    return ", and ".join(parts)


def batch_of(queue: Queue, places: Sequence[tuple[int, int]], rows: Sequence[dict[str, Any]], schema: Schema) -> Batch:
    """Return a batch with header columns from positions and rows."""
    header = pl.DataFrame(
        {
            OFFSET: pl.Series([offset for offset, _ in places], dtype=pl.Int64),
            INDEX: pl.Series([index for _, index in places], dtype=pl.Int32),
            TIME: pl.Series([1_700_000_000_000_000 + offset for offset, _ in places], dtype=pl.Int64).cast(
                pl.Datetime("us", "UTC")
            ),
        }
    )
    user = pl.DataFrame(list(rows), schema=dict(schema), orient="row")
    return Batch(queue, pl.concat([header, user], how="horizontal"))


def sink_batch(batch: Batch, after: Position | None = None) -> SinkBatch:
    """Return the batch that the writer would give to a sink."""
    return SinkBatch(batch.queue, batch.frame, after)


def patience_settings(patience: timedelta) -> dict[str, Any]:
    """Return sink settings with quick retries, which end after ``patience``."""
    return {
        "retry_timeout": patience,
        "retry_backoff": timedelta(milliseconds=10),
        "retry_backoff_max": timedelta(milliseconds=200),
    }


_queue_numbers: dict[str, int] = {}


def _number(queue: str, offset: int, index: int) -> int:
    """Return a number for a row. It is unique among up to 1,000 queues, and small enough for most columns."""
    return _queue_numbers.setdefault(queue, len(_queue_numbers) % 1000) * 1_000_000 + offset * 10 + index
