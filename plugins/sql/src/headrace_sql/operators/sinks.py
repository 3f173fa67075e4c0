"""Sinks that SQL texts need: ``blackhole``, and the one behind ``collect``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, ClassVar

from headrace.flow.messages import Batch
from headrace.interfaces.operator import Changes, Operator, OperatorSpec
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings
from headrace.jobs.collecting import CollectSettings, CollectSink, collected, materialized

if TYPE_CHECKING:
    from headrace.flow.schema import Schema


class BlackholeSink(Sink):
    """Takes rows and changes of any kind and forgets them: for figures, and for trying a job."""

    Settings: ClassVar[type[SinkSettings]] = SinkSettings
    accepts = "changelog"
    concurrent = True

    def __init__(self, settings: SinkSettings | None = None) -> None:
        self.settings = settings if settings is not None else SinkSettings()

    def batch_insert(self, batch: SinkBatch) -> None:
        """Forget the rows."""


class DeclareKey(OperatorSpec):
    """Says by which columns the rows of a changelog are known: the PRIMARY KEY of the table that they go into."""

    name: ClassVar[str] = "primary_key"
    takes_upserts = True

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return wanted

    def changes(self, before: Changes | None) -> Changes | None:
        return None if before is None else Changes(self.columns, before.before_images)

    def open(self, schema: Schema | None) -> Operator:
        return _PassedOn()

    def describe(self) -> str:
        return ", ".join(self.columns)


class _PassedOn(Operator):
    def process(self, batch: Batch) -> Iterable[Batch]:
        yield batch.with_frame(batch.frame)


__all__ = ["BlackholeSink", "CollectSettings", "CollectSink", "DeclareKey", "collected", "materialized"]
