"""``CURRENT_WATERMARK(ts)``: the watermark before each row as a column."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import ClassVar

import polars as pl
from headrace.flow.messages import WATERMARK, Batch
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Operator, OperatorSpec
from headrace_stateful.keys import keyed_rows

#: Flink's watermark is the last moment of which nothing is expected any more, ours the first of which something is.
_MILLISECOND_US = 1_000


class CurrentWatermark(OperatorSpec):
    """Adds the column ``target``: the watermark as Flink has it, as a time of the type of ``on``; NULL where there is none."""

    name: ClassVar[str] = "current_watermark"

    def __init__(self, on: str, target: str) -> None:
        self.on = on
        self.target = target

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        return Schema({**columns, self.target: columns[self.on]}, json_columns=columns.json_columns)

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return None if wanted is None else {self.on, *(name for name in wanted if name != self.target)}

    def open(self, schema: Schema | None) -> Operator:
        return _Running(self, keyed_rows.known(schema)[self.on])

    def describe(self) -> str:
        return self.on


class _Running(Operator):
    def __init__(self, spec: CurrentWatermark, kind: pl.DataType) -> None:
        self._spec = spec
        self._kind = kind

    def process(self, batch: Batch) -> Iterable[Batch]:
        has = WATERMARK in batch.frame.columns
        mark = pl.col(WATERMARK) - _MILLISECOND_US if has else pl.lit(None, dtype=pl.Int64)
        yield batch.with_frame(batch.frame.with_columns(mark.cast(self._kind).alias(self._spec.target)))
