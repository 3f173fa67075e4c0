"""Sinks that SQL texts need: ``blackhole``, and the one behind ``collect``."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import polars as pl
from headrace.flow.messages import CHANGE, HEADER_COLUMNS, Batch, ChangeKind
from headrace.interfaces.operator import Changes, Operator, OperatorSpec
from headrace.interfaces.settings import option
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings

if TYPE_CHECKING:
    from headrace.flow.schema import Schema


_KINDS = {
    ChangeKind.INSERT: "+I", ChangeKind.UPDATE_BEFORE: "-U", ChangeKind.UPDATE_AFTER: "+U", ChangeKind.DELETE: "-D",
}  # fmt: skip


class BlackholeSink(Sink):
    """Takes rows and changes of any kind and forgets them: for figures, and for trying a job."""

    Settings: ClassVar[type[SinkSettings]] = SinkSettings
    accepts = "changelog"
    concurrent = True

    def __init__(self, settings: SinkSettings | None = None) -> None:
        self.settings = settings if settings is not None else SinkSettings()

    def batch_insert(self, batch: SinkBatch) -> None:
        """Forget the rows."""


class CollectSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of the collect sink."""

    path: Annotated[str, option("directory for the collected rows; created if it does not exist")]


class CollectSink(Sink):
    """Keeps every row with its kind of change in Arrow files of a directory, for ``collect`` to read. At least once."""

    Settings: ClassVar[type[SinkSettings]] = CollectSettings
    accepts = "changelog"
    concurrent = True

    def __init__(self, settings: CollectSettings) -> None:
        self.settings: CollectSettings = settings

    def prepare(self, schema: Schema | None) -> None:
        os.makedirs(self.settings.path, exist_ok=True)

    def batch_insert(self, batch: SinkBatch) -> None:
        first = batch.first
        name = f"{first.offset:020d}-{first.index:010d}-{uuid.uuid4().hex}.arrow"
        batch.frame.write_ipc(os.path.join(self.settings.path, name))


#: The column of ``collected`` that holds the kind of a change: no column of a result has this name.
MARK = "__hr_mark"


def collected(path: str, types: dict[str, Any]) -> pl.DataFrame:
    """Return what a CollectSink kept: its rows in order, with the column ``MARK`` (+I, -U, +U, -D)."""
    frames = []
    for name in sorted(os.listdir(path)):
        frame = pl.read_ipc(os.path.join(path, name))
        kinds = frame[CHANGE] if CHANGE in frame.columns else pl.Series([0] * frame.height, dtype=pl.Int8)
        ops = kinds.replace_strict(_KINDS, return_dtype=pl.String).alias(MARK)
        frames.append(frame.drop(HEADER_COLUMNS, strict=False).with_columns(ops))
    if not frames:
        return pl.DataFrame(schema={**types, MARK: pl.String()})
    return pl.concat(frames)


def materialized(changes: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that are left when all changes are applied, in the order in which they came last."""
    columns = [name for name in changes.columns if name != MARK]
    if not changes[MARK].is_in(["-U", "-D", "+U"]).any():
        return changes.select(columns)
    sign = pl.when(pl.col(MARK).is_in(["+I", "+U"])).then(1).otherwise(-1).alias("__sign")
    totals = changes.with_columns(sign).with_row_index("__row")
    counted = (
        totals.group_by(columns, maintain_order=True).agg(pl.col("__sign").sum(), pl.col("__row").max()).sort("__row")
    )
    kept = counted.filter(pl.col("__sign") > 0)
    return (
        kept.select(pl.all().repeat_by("__sign").explode(empty_as_null=False)).select(columns)
        if kept.height
        else kept.select(columns)
    )


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
