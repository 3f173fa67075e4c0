"""Running a SQL text of headrace over tables in memory, as cheaply as possible, and collecting the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, ClassVar

import headrace as hr
import polars as pl
from headrace.flow.messages import CHANGE, HEADER_COLUMNS, Bodies, ChangeKind, Queue, RawBatch, ReadPosition
from headrace.flow.schema import Schema
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import Settings
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings
from headrace.interfaces.source import LATEST, Reader, Source, StartPosition
from headrace_sql import api
from headrace_sql.operators.range_reader import RangeReader

from tests.differential import user_functions
from tests.differential.comparing import Row, row_of
from tests.differential.tables import Table

FUNCTIONS = [
    each
    for each in vars(user_functions).values()
    if hasattr(each, "name") and type(each).__module__ == "headrace.interfaces.functions"
]


class TableSource(Source):
    """The rows of a table in its queues, as frames or as JSON bodies. It travels to other processes with its rows."""

    Settings: ClassVar[type[Settings]] = Settings
    bounded = True

    def __init__(self, table: Table) -> None:
        self._carried = table.carried
        count = table.queue_count
        self._frames: list[pl.DataFrame] = []
        self._bodies: list[list[bytes]] = []
        if table.carried == "json":
            self._bodies = [table.bodies(queue) for queue in range(count)]
        else:
            self._frames = [table.frame(queue) for queue in range(count)]

    def schema(self) -> Schema | None:
        return Schema(dict(self._frames[0].schema)) if self._frames else None

    def queues(self) -> Collection[Queue]:
        return [Queue(f"q{number}") for number in range(len(self._frames) or len(self._bodies))]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        number = int(queue.name[1:])
        total = len(self._bodies[number]) if self._bodies else self._frames[number].height
        first = start.offset if isinstance(start, ReadPosition) else total if start is LATEST else 0
        if self._bodies:
            return _BodyReader(self._bodies[number], first)
        frame = self._frames[number]
        return RangeReader(lambda begin, end: frame.slice(begin, end - begin), first, total)


class _BodyReader(RangeReader):
    """Reads bodies by number."""

    def __init__(self, bodies: Sequence[bytes], first: int) -> None:
        super().__init__(lambda begin, end: pl.DataFrame(), first, len(bodies))
        self._bodies = bodies

    def poll(self, max_records: int, timeout: Any) -> RawBatch | None:
        begin = self._next
        batch = super().poll(max_records, timeout)
        return (
            None
            if batch is None
            else RawBatch(batch.offsets, batch.next_position, bodies=Bodies.of(self._bodies[begin : self._next]))
        )


class FoldingSink(Sink):
    """Keeps the rows that are there after all changes. A row that is taken back but is not there is a fault, and kept as such."""

    accepts = "changelog"

    def __init__(self) -> None:
        self.settings = SinkSettings()
        self.table: Counter[Row] = Counter()
        self.faults: list[str] = []

    def batch_insert(self, batch: SinkBatch) -> None:
        frame = batch.frame
        kinds = frame[CHANGE].to_list() if CHANGE in frame.columns else [ChangeKind.INSERT] * frame.height
        for kind, values in zip(kinds, frame.drop(HEADER_COLUMNS, strict=False).rows(), strict=True):
            row = row_of(values)
            if kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER):
                self.table[row] += 1
            elif self.table[row] > 0:
                self.table[row] -= 1
            else:
                self.faults.append(f"{row} is retracted, but it is not there")


@dataclass(frozen=True)
class Result:
    """What a run gave: rows with their number, the names of the columns, and what went wrong on the way."""

    rows: Counter[Row]
    columns: tuple[str, ...] = ()
    faults: tuple[str, ...] = field(default=())


def register(tables: Sequence[Table], *, functions: Mapping[str, Any] | None = None) -> hr.Pipeline:
    """Forget what earlier texts have defined, and make the tables known to the next one. Bad records stop the job."""
    api.forget()
    pipeline = hr.stream("differential", "job", functions=functions or FUNCTIONS, bad_records="stop")
    for table in tables:
        if table.time:
            hr.sql(_with_time(table))
        else:
            hr.register(table.name, stream_of(pipeline, table))
    return pipeline


def columns_text(table: Table) -> str:
    """Return the columns of a table as CREATE TABLE has them. Event time may be a month late: no row is."""
    columns = [f"`{column.name}` {column.kind.flink}" for column in table.columns]
    if table.time:
        columns.append(f"WATERMARK FOR `{table.time}` AS `{table.time}` - INTERVAL '31' DAY")
    return ", ".join(columns)


class NamedSettings(Settings, frozen=True, kw_only=True):
    """Options of the source ``differential``, which texts name."""

    table: Annotated[str, hr.option("name of the table")]


class NamedSource(TableSource):
    """A table that CREATE TABLE can name, for those with event time."""

    Settings: ClassVar[type[Settings]] = NamedSettings
    known: ClassVar[dict[str, Table]] = {}

    def __init__(self, settings: NamedSettings) -> None:
        super().__init__(replace(self.known[settings.table], carried="frame"))
        self._frames = [frame.cast({pl.Datetime("us"): pl.Datetime("ms")}) for frame in self._frames]


class _Plugin:
    @hr.hookimpl
    def headrace_sources(self) -> dict[str, Any]:
        return {"differential": NamedSource}


@cache
def _offered() -> None:
    default_registry().register(_Plugin(), "differential")


def _with_time(table: Table) -> str:
    """Return the text that makes a table with event time known."""
    _offered()
    NamedSource.known[table.name] = table
    return f"CREATE TABLE `{table.name}` ({columns_text(table)}) WITH ('connector' = 'differential', 'table' = '{table.name}')"


def stream_of(pipeline: hr.Pipeline, table: Table) -> hr.Stream:
    """Return a table as a stream of the DSL."""
    if table.carried == "json":
        schema = {column.name: column.kind.headrace for column in table.columns}
        return pipeline.from_(TableSource(table), format="json", schema=schema, name=table.name)
    return pipeline.from_(TableSource(table), name=table.name)


def run_sql(tables: Sequence[Table], text: str, *, backend: str = "light", **options: Any) -> Result:
    """Run a text and return its rows as they are at the end. Raises what the run raises."""
    register(tables)
    job = hr.sql(text, pipeline="job")
    relation = next(iter(job.script.relations().values()))
    return run_stream(relation.stream, backend=backend, **options)


def run_stream(stream: hr.Stream, *, backend: str = "light", **options: Any) -> Result:
    """Run a stream of the DSL to its end and return its rows."""
    sink = FoldingSink()
    stream.to(sink).run(backend, show_progress=False, **options)
    return Result(+sink.table, tuple(stream.schema or ()), tuple(sink.faults))
