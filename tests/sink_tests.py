"""What tests of sinks share: batches of known rows, a sink as a job has it, and the text of an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Batch, Position, Queue
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings

SinkT = TypeVar("SinkT", bound=Sink)


def batch(
    queue: str, rows: Sequence[Mapping[str, Any]], schema: Mapping[str, Any], first: int = 0, **header: Any
) -> Batch:
    """Return rows as records ``first`` … of a queue, one row each. ``header`` are further columns of the header."""
    places = pl.DataFrame(
        {OFFSET: range(first, first + len(rows)), INDEX: [0] * len(rows), **header},
        schema_overrides={OFFSET: pl.Int64, INDEX: pl.Int32},
    )
    user = pl.DataFrame([dict(row) for row in rows], schema=dict(Schema.of(schema)), orient="row")
    return Batch(Queue(queue), pl.concat([places, user], how="horizontal"))


def numbers(queue: str, first: int, count: int) -> Batch:
    """Return records whose ``id`` is their offset."""
    return batch(queue, [{"id": n} for n in range(first, first + count)], {"id": "int64"}, first)


def insert(sink: Sink, made: Batch, after: Position | None = None) -> None:
    """Insert a batch as the writer does."""
    sink.batch_insert(SinkBatch(made.queue, made.frame, after, sink.writer_name))


def as_in_a_job(sink: SinkT, schema: Mapping[str, Any] | None = None, *, prepare: bool = True) -> SinkT:
    """Return a sink as a job has it once it runs; without ``prepare``, as it is when the job is built."""
    sink.writer_name = "test.job.sink"
    declared = None if schema is None else Schema.of(schema)
    sink.check(declared)
    if prepare:
        sink.prepare(declared)
        sink.open()
    return sink


def text_of(kind: type[Exception], action: Callable[[], object]) -> str:
    """Return what an error says that an action must raise."""
    with pytest.raises(kind) as caught:
        action()
    return str(caught.value)


class TableOptionChecks:
    """What every sink into a table says of options that do not go together."""

    settings: type[SinkSettings]
    plugin: str
    #: Another spelling of the table ``t``, as the server sees it.
    same_table = "t"

    def refused(self, **options: Any) -> str:
        """Return why options are refused."""
        given = {"table": "t", "database": "d", **options}
        return text_of(OptionError, lambda: self.settings.of(given, plugin=self.plugin))

    def test_key_without_create_table(self) -> None:
        assert "the option key has an effect only together with create_table" in self.refused(key=["id"])

    def test_upsert_into_a_new_table_needs_a_key(self) -> None:
        text = self.refused(mode="upsert", create_table=True)
        assert "mode 'upsert' needs a key" in text
        assert "hint: name the columns that are the primary key" in text

    def test_the_table_itself_holds_no_offsets(self) -> None:
        assert "must not be the table that the sink writes" in self.refused(offsets_table=self.same_table)

    def test_two_columns_to_one(self) -> None:
        assert "two columns of the stream are mapped to 'x'" in self.refused(columns={"a": "x", "b": "x"})

    def test_ssl_key_without_certificate(self) -> None:
        text = self.refused(ssl_key="k")
        assert f"it can be used only together with ssl_certificate [plugin '{self.plugin}', option 'ssl_key']" in text


class RowsByKey:
    """Base of contracts of sinks into tables that write rows by the key ``id``."""

    key: ClassVar[Sequence[str]] = ("id",)
    more: ClassVar[Mapping[str, Any]] = {"key": ["id"]}
    types: ClassVar[Sequence[str]] = ("string", "int64", "decimal(38, 18)")
