"""Rows that stand several times: what INTERSECT ALL and EXCEPT ALL make of the number of each row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import polars as pl
from headrace.flow.messages import CHANGE, HEADER_COLUMNS, OFFSET, Batch, ChangeKind
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Changes, Operator, OperatorSpec, renumber
from headrace_stateful.keys import keyed_rows


class Copies(OperatorSpec):
    """Gives each row as often as the column ``count`` says, without that column.

    It takes a changelog whose updates stand one after the other (that of an aggregation): when the count goes from 2 to 3, one row
    is added, not two taken back and three added. What it gives are rows added and rows taken back.
    """

    name: ClassVar[str] = "copies"

    def __init__(self, count: str) -> None:
        self.count = count

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        return Schema({name: kind for name, kind in columns.items() if name != self.count})

    def changes(self, before: Changes | None) -> Changes | None:
        return None if before is None else Changes(None)

    def open(self, schema: Schema | None) -> Operator:
        return _RunningCopies(self.count)

    def describe(self) -> str:
        return f"by {self.count}"


class _RunningCopies(Operator):
    def __init__(self, count: str) -> None:
        self._count = count

    def process(self, batch: Batch) -> Iterable[Batch]:
        frame = batch.frame
        counts = pl.col(self._count).fill_null(0).clip(lower_bound=0)
        if CHANGE in frame.columns:
            names = [name for name in frame.columns if name not in HEADER_COLUMNS and name != self._count]
            same = [pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in names]
            kind = pl.col(CHANGE)
            begins = (kind == ChangeKind.UPDATE_BEFORE) & (kind.shift(-1) == ChangeKind.UPDATE_AFTER)
            frame = frame.with_columns(
                counts.alias("__copies"), pl.all_horizontal(begins.fill_null(value=False), *same).alias("__begins")
            ).with_columns(pl.col("__begins").shift(1, fill_value=False).alias("__ends"))
            other = (
                pl.when("__begins").then(pl.col("__copies").shift(-1)).when("__ends").then(pl.col("__copies").shift(1))
            )
            gone = kind.is_in([ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE])
            frame = frame.with_columns(
                (pl.col("__copies") - other.otherwise(0)).clip(lower_bound=0).alias("__copies"),
                pl.when(gone)
                .then(ChangeKind.DELETE)
                .otherwise(ChangeKind.INSERT)
                .cast(frame.schema[CHANGE])
                .alias(CHANGE),
            )
        else:
            frame = frame.with_columns(counts.alias("__copies"))
        places = np.repeat(np.arange(frame.height), frame["__copies"].to_numpy())
        if places.size:
            made = frame[places].drop("__copies", "__begins", "__ends", self._count, strict=False)
            yield batch.with_frame(renumber(made) if OFFSET in made.columns else made)
