"""Scalar subqueries without an aggregate: of several rows no value could be taken, so the job ends then, as in Flink."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import polars as pl
from headrace.flow.messages import CHANGE, Batch, ChangeKind
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError
from headrace.interfaces.operator import Changes, Operator, OperatorSpec


class SingleValue(OperatorSpec):
    """Lets rows through whose column ``count`` is 1 at most, without that column. The operator raises JobError for a greater one.

    ``query`` is the text of the subquery, for the message.
    """

    name: ClassVar[str] = "single_value"

    def __init__(self, count: str, query: str) -> None:
        self.count = count
        self.query = query

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        assert schema is not None
        return Schema({name: kind for name, kind in schema.items() if name != self.count})

    def changes(self, before: Changes | None) -> Changes | None:
        return before

    def open(self, schema: Schema | None) -> Operator:
        return _RunningSingleValue(self)

    def describe(self) -> str:
        return f"by {self.count}"


class _RunningSingleValue(Operator):
    def __init__(self, spec: SingleValue) -> None:
        self._spec = spec

    def process(self, batch: Batch) -> Iterable[Batch]:
        frame, spec = batch.frame, self._spec
        several = pl.col(spec.count) > 1
        if CHANGE in frame.columns:
            several = several & pl.col(CHANGE).is_in([ChangeKind.INSERT, ChangeKind.UPDATE_AFTER])
        if frame.select(several.any()).item():
            raise JobError(
                f"the subquery ({spec.query}) must return one value, but returns several rows",
                hint="aggregate it: (SELECT MAX(x) FROM t), or compare with x IN (SELECT …)",
            )
        yield batch.with_frame(frame.drop(spec.count))
