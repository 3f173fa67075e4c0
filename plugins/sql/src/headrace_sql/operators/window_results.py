"""Results of windows: without updates that change nothing, and with a watermark for later operators that use their time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import polars as pl
from headrace.flow.messages import CHANGE, HEADER_COLUMNS, WATERMARK, Batch, ChangeKind
from headrace.interfaces.operator import Changes, Operator, OperatorSpec

if TYPE_CHECKING:
    from headrace.flow.schema import Schema


class WithoutEqualUpdates(OperatorSpec):
    """Leaves out updates of a changelog that change nothing: of windows whose last result is the early one before it."""

    name: ClassVar[str] = "without_equal_updates"

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def changes(self, before: Changes | None) -> Changes | None:
        return before

    def open(self, schema: Schema | None) -> Operator:
        return _RunningWithoutEqualUpdates()


class _RunningWithoutEqualUpdates(Operator):
    def process(self, batch: Batch) -> Iterable[Batch]:
        frame = batch.frame
        if CHANGE not in frame.columns or frame.height < 2:
            yield batch.with_frame(frame)
            return
        kind = pl.col(CHANGE)
        starts = (kind == ChangeKind.UPDATE_BEFORE) & (kind.shift(-1) == ChangeKind.UPDATE_AFTER)
        columns = [name for name in frame.columns if name not in HEADER_COLUMNS]
        same = [pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in columns]
        equal = frame.select(pl.all_horizontal(starts.fill_null(value=False), *same)).to_series()
        gone = equal | equal.shift(1, fill_value=False)
        if gone.any():
            frame = frame.filter(~gone)
        if frame.height:
            yield batch.with_frame(frame)


class TimedResults(OperatorSpec):
    """Lets results of windows come before the watermark reaches their time, which is the last millisecond of their window.

    Otherwise later operators that use that time would drop them as late: their watermark is just before the window's end.
    """

    name: ClassVar[str] = "timed_results"

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def changes(self, before: Changes | None) -> Changes | None:
        return before

    def open(self, schema: Schema | None) -> Operator:
        return _RunningTimedResults()


class _RunningTimedResults(Operator):
    def process(self, batch: Batch) -> Iterable[Batch]:
        frame = batch.frame
        if WATERMARK in frame.columns:
            frame = frame.with_columns(pl.col(WATERMARK) - 1_000)
        yield batch.with_frame(frame)
