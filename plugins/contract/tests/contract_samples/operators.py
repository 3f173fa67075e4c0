"""Healthy operators of every shape: one row for one, fewer, more, several outputs, rejections, packed rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import headrace as hr
import polars as pl
from headrace.flow.messages import HEADER_COLUMNS, ROW
from headrace.flow.rows import pack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError, did_you_mean

Results = Iterable[hr.Batch | hr.RejectedRows]


@dataclass(frozen=True)
class Scale(hr.OperatorSpec):
    """Multiplies a column; rejects rows whose value is negative."""

    column: str
    factor: float = 2.0

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        assert schema is not None
        if self.column not in schema:
            raise PlanError(f"no column {self.column!r}", hint=did_you_mean(self.column, schema, known="columns"))
        return schema

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return None if wanted is None else {*wanted, self.column}

    def open(self, schema: Schema | None) -> hr.Operator:
        return ScaleOperator(self)


class ScaleOperator(hr.Operator):
    def __init__(self, spec: Scale) -> None:
        self.spec = spec

    def process(self, batch: hr.Batch) -> Results:
        bad = pl.col(self.spec.column).fill_null(0) < 0
        rejected = batch.frame.filter(bad)
        if rejected.height:
            reasons = [f"{value} is negative" for value in rejected[self.spec.column]]
            yield hr.RejectedRows(rejected, reasons)
        yield batch.with_frame(self.scaled(batch.frame.filter(~bad)))

    def scaled(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame with the column multiplied."""
        return frame.with_columns(pl.col(self.spec.column) * self.spec.factor)


@dataclass(frozen=True)
class Even(hr.OperatorSpec):
    """Sends rows with an even number to one output, with an odd number to another, and drops the rest."""

    outputs = ("even", "odd")

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return None if wanted is None else {*wanted, "number"}

    def open(self, schema: Schema | None) -> hr.Operator:
        return EvenOperator()


class EvenOperator(hr.Operator):
    def process(self, batch: hr.Batch) -> Results:
        yield batch.with_frame(batch.frame.filter(pl.col("number") % 2 == 0), "even")
        yield batch.with_frame(batch.frame.filter(pl.col("number") % 2 == 1), "odd")


@dataclass(frozen=True)
class Repeat(hr.OperatorSpec):
    """Makes as many rows of each as its number says, modulo 3, packed: columns are known only row by row."""

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return None

    def open(self, schema: Schema | None) -> hr.Operator:
        return RepeatOperator()


class RepeatOperator(hr.Operator):
    def process(self, batch: hr.Batch) -> Results:
        rows = [
            (place, {"number": number, "turn": turn})
            for place, number in enumerate(batch.frame["number"].to_list())
            for turn in range((number or 0) % 3)
        ]
        header = batch.frame.select([name for name in HEADER_COLUMNS if name in batch.frame.columns])
        frame = header[[place for place, _ in rows]]
        packed = pl.Series(ROW, pack_rows(row for _, row in rows), dtype=pl.Binary)
        yield batch.with_frame(hr.renumber(frame.with_columns(packed)))
