"""Each row with every row that a table function or an array makes of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl
from headrace.flow.messages import HEADER_COLUMNS, Batch
from headrace.flow.schema import Schema
from headrace.foundation.errors import NOT_THE_FAULT_OF_A_ROW
from headrace.interfaces.functions import TableFunction
from headrace.interfaces.operator import Changes, Operator, OperatorSpec, RejectedRows, renumber
from headrace_columnar.evaluation import evaluate_all
from headrace_columnar.expressions import compile_expression

_NUMBER = "__hr_number"


class Correlate(OperatorSpec):
    """Joins each row with the rows that a table function makes of its arguments, or with the elements of an array.

    With ``outer`` a row of which nothing comes is kept, with NULLs.
    """

    name: ClassVar[str] = "correlate"
    takes_functions = True

    def __init__(
        self,
        function: TableFunction | None,
        arguments: Sequence[str],
        columns: Mapping[str, pl.DataType],
        *,
        outer: bool = False,
        functions: Mapping[str, Any] | None = None,
        ordinal: str | None = None,
    ) -> None:
        self.function = function
        self.arguments = tuple(arguments)
        self.columns = dict(columns)
        self.outer = outer
        self.functions = functions
        #: Column for the place of each element, from 1.
        self.ordinal = ordinal

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        assert schema is not None
        added = {} if self.ordinal is None else {self.ordinal: pl.Int32()}
        return Schema({**schema, **self.columns, **added})

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        if wanted is None:
            return None
        compiled = [compile_expression(each, schema, self.functions) for each in self.arguments]
        return {*(name for name in wanted if name in schema), *(name for one in compiled for name in one.columns)}

    def changes(self, before: Changes | None) -> Changes | None:
        # Several rows come of one: its key names none of them.
        return None if before is None else Changes(None)

    def open(self, schema: Schema | None) -> Operator:
        assert schema is not None
        return _RunningCorrelate(self, schema)

    def describe(self) -> str:
        called = self.function.name if self.function is not None else "unnest"
        return f"{called}({', '.join(self.arguments)})" + (", outer" if self.outer else "")


class _RunningCorrelate(Operator):
    def __init__(self, spec: Correlate, schema: Schema) -> None:
        self._spec = spec
        self._compiled = [compile_expression(each, schema, spec.functions) for each in spec.arguments]

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        names = [f"__argument_{index}" for index in range(len(self._compiled))]
        arguments, failures = evaluate_all(self._compiled, frame, names)
        failed = {row: error for row, error in failures}
        if self._spec.function is None:
            rows, made = self._unnested(arguments, failed)
        else:
            rows, made = self._called(arguments, failed)
        if failed:
            places = sorted(failed)
            yield RejectedRows(
                frame[places], [str(failed[p]) for p in places], [type(failed[p]).__name__ for p in places]
            )
        if rows:
            header = [name for name in HEADER_COLUMNS if name in frame.columns]
            given = pl.concat([frame[rows], made], how="horizontal")
            if self._spec.ordinal is not None:
                given = given.with_columns(self._places(arguments.to_series(), rows))
            yield batch.with_frame(renumber(given) if header else given)

    def _places(self, lists: pl.Series, rows: list[int]) -> pl.Series:
        """Return the place of each element in its array; NULL for a row without elements."""
        counts = lists.list.len().fill_null(0).to_list()
        places: list[int | None] = []
        before = -1
        for row in rows:
            places.append(None if not counts[row] else 1 if row != before else (places[-1] or 0) + 1)
            before = row
        return pl.Series(str(self._spec.ordinal), places, dtype=pl.Int32())

    def _called(self, arguments: pl.DataFrame, failed: dict[int, Exception]) -> tuple[list[int], pl.DataFrame]:
        """Call the function for each row. Rows for which it raises are added to ``failed``."""
        function = self._spec.function
        assert function is not None
        width, rows, values = len(self._spec.columns), [], []
        for index, given in enumerate(arguments.iter_rows()):
            if index in failed:
                continue
            try:
                made = [_as_tuple(each, function.schema) for each in function(*given) or ()]
            except NOT_THE_FAULT_OF_A_ROW:
                raise
            except Exception as error:  # the user's own code: the row goes to the dead letters
                failed[index] = error
                continue
            if not made and self._spec.outer:
                made = [(None,) * width]
            rows += [index] * len(made)
            values += made
        return rows, pl.DataFrame(values, schema=self._spec.columns, orient="row") if values else pl.DataFrame(
            schema=self._spec.columns
        )

    def _unnested(self, arguments: pl.DataFrame, failed: Mapping[int, Exception]) -> tuple[list[int], pl.DataFrame]:
        lists = arguments.to_series()
        counts = lists.list.len().fill_null(0).to_list()
        rows: list[int] = []
        values: list[Any] = []
        elements = lists.to_list()
        for index, count in enumerate(counts):
            if index in failed:
                continue
            if count:
                rows += [index] * count
                values += elements[index]
            elif self._spec.outer:
                rows.append(index)
                values.append(None)
        columns = self._spec.columns
        inner = lists.dtype.inner  # type: ignore[attr-defined]
        series = pl.Series("value", values, dtype=inner)
        if isinstance(inner, pl.Struct) and len(columns) == len(inner.fields):
            return rows, series.struct.unnest().rename(dict(zip([f.name for f in inner.fields], columns, strict=True)))
        return rows, pl.DataFrame({next(iter(columns)): series})


def _as_tuple(value: Any, schema: Schema) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        return tuple(value.get(name) for name in schema)
    if isinstance(value, tuple | list):
        return tuple(value)
    return (value,)


def _split(text: str | None, separator: str | None) -> Iterable[str]:
    if text is not None and separator:
        yield from text.split(separator)


def _series(first: int | None, last: int | None) -> Iterable[int]:
    if first is not None and last is not None:
        yield from range(first, last + 1)


def _json_tuple(document: str | None, *paths: str | None) -> Iterable[tuple[str | None, str | None]]:
    """Blink's JSON_TUPLE: one row per path with its value."""

    try:
        parsed = json.loads(document) if document is not None else None
    except ValueError:
        parsed = None
    for path in paths:
        value = parsed
        for key in (path or "").removeprefix("$.").split("."):
            value = value.get(key) if isinstance(value, dict) else None
        yield path, value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


#: Table functions that need no CREATE FUNCTION.
BUILT_IN: Mapping[str, TableFunction] = {
    "string_split": TableFunction("string_split", _split, Schema({"value": pl.String()})),
    "generate_series": TableFunction("generate_series", _series, Schema({"value": pl.Int64()})),
    "json_tuple": TableFunction("json_tuple", _json_tuple, Schema({"key": pl.String(), "value": pl.String()})),
}
