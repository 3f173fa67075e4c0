"""The verb that calls a Python function for a whole batch: map_batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import polars as pl
from headrace.flow.messages import HEADER_COLUMNS, Batch
from headrace.flow.schema import Schema
from headrace.foundation.errors import NOT_THE_FAULT_OF_A_ROW, FunctionError, PlanError
from headrace.interfaces.operator import Operator, OperatorSpec, RejectedRows
from headrace_columnar.evaluation import RowFailure
from headrace_columnar.verbs.base import rejected_of, without_failed

BatchFunction = Callable[[pl.DataFrame], pl.DataFrame]


class MapBatches(OperatorSpec):
    """Replaces the columns of a batch by the result of a function of a polars frame; rows keep their places.

    How input is cut into batches is the backend's affair: the function must treat each row by itself.
    """

    name: ClassVar[str] = "map_batches"

    def __init__(self, function: BatchFunction, *, schema: Mapping[str, Any] | None = None) -> None:
        if not callable(function):
            raise FunctionError(f"map_batches needs a function of a frame, not {function!r}")
        self.function = function
        self._returns = None if schema is None else Schema.of(schema)

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        if schema is None:
            raise PlanError(
                "map_batches needs a stream whose columns are known when the job is built",
                hint="give the map() before it an option schema={...}",
            )
        return self._returns or schema

    def open(self, schema: Schema | None) -> Operator:
        returned = self.output_schema(schema)
        assert returned is not None
        return _BatchOperator(self.function, returned)

    def describe(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__name__)


class _BatchOperator(Operator):
    def __init__(self, function: BatchFunction, schema: Schema) -> None:
        self._function = function
        self._schema = dict(schema)

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        header = batch.frame.select([name for name in HEADER_COLUMNS if name in batch.frame.columns])
        columns, failures = self._call(batch.frame.drop(HEADER_COLUMNS, strict=False))
        if columns.height:
            yield batch.with_frame(pl.concat([without_failed(header, failures), columns], how="horizontal"))
        rejected = rejected_of(batch.frame, failures)
        if rejected is not None:
            yield rejected

    def _call(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, list[RowFailure]]:
        """Call the function; if it raises, halve until the rows that make it raise are found."""
        try:
            return self._checked(self._function(rows), rows.height), []
        except NOT_THE_FAULT_OF_A_ROW:
            raise
        except Exception as error:  # the user's code may raise anything: the row goes to the dead letters with it
            if rows.height == 1:
                return pl.DataFrame(schema=self._schema), [(0, error)]
        half = rows.height // 2
        first, failures = self._call(rows.slice(0, half))
        second, more = self._call(rows.slice(half))
        return pl.concat([first, second]), failures + [(place + half, error) for place, error in more]

    def _checked(self, result: Any, height: int) -> pl.DataFrame:
        if not isinstance(result, pl.DataFrame):
            raise FunctionError(f"the function of map_batches returned {type(result).__name__}, not a polars frame")
        if result.height != height:
            raise FunctionError(
                f"the function of map_batches returned {result.height} rows for {height}",
                hint="it must return one row for each row, in the same order; use where() or flat_map() to drop or add rows",
            )
        if set(result.columns) != set(self._schema):
            raise FunctionError(
                f"the function of map_batches returned the columns {result.columns}, not {list(self._schema)}",
                hint="pass schema={...} with the columns that it returns",
            )
        return result.select([pl.col(name).cast(kind) for name, kind in self._schema.items()])
