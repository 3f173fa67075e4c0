"""Verbs that call a Python function for each row: map, flat_map, for_each."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec
import polars as pl
from headrace.flow.messages import HEADER_COLUMNS, ROW, Batch
from headrace.flow.rows import pack_row, unpack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import NOT_THE_FAULT_OF_A_ROW, DataError, FunctionError
from headrace.interfaces.functions import TableFunction, import_object
from headrace.interfaces.operator import Operator, OperatorSpec, RejectedRows, renumber
from headrace_columnar.evaluation import RowFailure
from headrace_columnar.python_values import series_of
from headrace_columnar.verbs.base import rejected_of

RowFunction = Callable[[dict[str, Any]], Any]


class _RowFunctionSpec(OperatorSpec):
    """Common to the verbs that call a function per row."""

    def __init__(self, function: Any, *, schema: Mapping[str, Any] | None = None) -> None:
        self.function = _row_function(function, self.name)
        self._returns = Schema.of(schema) if schema is not None else _annotated_schema(self.function, self.name)

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return self._returns

    def open(self, schema: Schema | None) -> Operator:
        return _RowOperator(self._results, self._returns, expands=self.name == "flat_map")

    def describe(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__name__)

    def _results(self, row: dict[str, Any]) -> Iterable[Any]:
        raise NotImplementedError


class Map(_RowFunctionSpec):
    """Replaces each row by the result of a function; None drops the row."""

    name: ClassVar[str] = "map"

    def _results(self, row: dict[str, Any]) -> Iterable[Any]:
        result = self.function(row)
        return () if result is None else (result,)


class FlatMap(_RowFunctionSpec):
    """Replaces each row by the rows that a function returns or yields for it."""

    name: ClassVar[str] = "flat_map"

    def __init__(self, function: Any, *, schema: Mapping[str, Any] | None = None) -> None:
        if isinstance(function, TableFunction):
            function, schema = _of_columns(function), schema or function.schema
        super().__init__(function, schema=schema)

    def _results(self, row: dict[str, Any]) -> Iterable[Any]:
        results = self.function(row)
        if results is None:
            return ()
        if isinstance(results, Mapping) or not isinstance(results, Iterable):
            raise DataError(f"the function of flat_map returned {type(results).__name__}, not an iterable of rows")
        return results


class ForEach(OperatorSpec):
    """Calls a function for each row and passes the row on."""

    name: ClassVar[str] = "for_each"

    def __init__(self, function: Any) -> None:
        self.function = _row_function(function, self.name)

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def open(self, schema: Schema | None) -> Operator:
        return _CallingOperator(self.function)

    def describe(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__name__)


class _RowOperator(Operator):
    """Calls a function per row and makes a frame, or packed rows, from its results."""

    def __init__(
        self, results: Callable[[dict[str, Any]], Iterable[Any]], schema: Schema | None, *, expands: bool
    ) -> None:
        self._results = results
        self._schema = schema
        self._expands = expands
        self._columns = frozenset(schema or ())

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        made: list[Any] = []
        places: list[int] = []
        failures: list[RowFailure] = []
        accept = self._pack if self._schema is None else self._checked
        for place, row in enumerate(rows_of(frame)):
            try:
                results = [accept(result) for result in self._results(row)]
            except NOT_THE_FAULT_OF_A_ROW:
                raise
            except Exception as error:  # the user's code may raise anything: the row goes to the dead letters with it
                failures.append((place, error))
                continue
            made += results
            places += [place] * len(results)
        header = frame.select([name for name in HEADER_COLUMNS if name in frame.columns])
        if self._schema is None:
            columns = pl.DataFrame({ROW: pl.Series(made, dtype=pl.Binary)})
        else:
            columns, made_failures = self._typed(made, places)
            if made_failures:
                failed = {place for place, _ in made_failures}
                kept = [at for at, place in enumerate(places) if place not in failed]
                columns, places = columns[kept], [places[at] for at in kept]
                failures = sorted([*failures, *made_failures], key=lambda failure: failure[0])
        if places:
            result = pl.concat([header if len(places) == header.height else header[places], columns], how="horizontal")
            if not self._expands and len(places) == header.height:
                yield batch.with_frame(result)
            else:
                result = pl.concat([header[places], columns], how="horizontal")
                yield batch.with_frame(renumber(result) if self._expands else result)
        rejected = rejected_of(frame, failures)
        if rejected is not None:
            yield rejected

    @staticmethod
    def _pack(result: Any) -> bytes:
        return pack_row(_as_mapping(result))

    def _checked(self, result: Any) -> Mapping[str, Any]:
        row = _as_mapping(result)
        if not row.keys() <= self._columns:
            extra = sorted(str(name) for name in row.keys() - self._columns)
            raise DataError(f"the function returned the column {extra[0]!r}, which its schema does not have")
        return row

    def _typed(self, rows: list[Mapping[str, Any]], places: list[int]) -> tuple[pl.DataFrame, list[RowFailure]]:
        """Make columns of the declared types; rows with values of other types fail, with every row of their record."""
        assert self._schema is not None
        schema = dict(self._schema)
        try:
            return _frame_of(rows, schema), []
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            pass  # find out which rows are to blame
        failures: dict[int, Exception] = {}
        good: list[Mapping[str, Any]] = []
        for row, place in zip(rows, places, strict=True):
            try:
                _frame_of([row], schema)
                good.append(row)
            except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
                failures.setdefault(
                    place, DataError(f"the function returned a value of another type than its schema: {error}")
                )
                good.append({})
        return _frame_of(good, schema), sorted(failures.items())


def _frame_of(rows: list[Mapping[str, Any]], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    return pl.DataFrame([series_of(name, [row.get(name) for row in rows], kind) for name, kind in schema.items()])


class _CallingOperator(Operator):
    def __init__(self, function: RowFunction) -> None:
        self._function = function

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        failures: list[RowFailure] = []
        for place, row in enumerate(rows_of(batch.frame)):
            try:
                self._function(row)
            except NOT_THE_FAULT_OF_A_ROW:
                raise
            except Exception as error:  # as above
                failures.append((place, error))
        if not failures:
            yield batch.with_frame(batch.frame)
            return
        rejected = rejected_of(batch.frame, failures)
        assert rejected is not None
        keep = pl.Series([True]).new_from_index(0, len(batch)).scatter([place for place, _ in failures], False)
        yield batch.with_frame(batch.frame.filter(keep))
        yield rejected


def rows_of(frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows as dicts of user columns, each a new dict that the caller may change."""
    if ROW in frame.columns:
        return iter(unpack_rows(frame[ROW]))
    return iter(frame.drop(HEADER_COLUMNS, strict=False).to_dicts())


def _as_mapping(result: Any) -> Mapping[str, Any]:
    if isinstance(result, Mapping):
        return result
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return dataclasses.asdict(result)
    if isinstance(result, msgspec.Struct):
        return msgspec.structs.asdict(result)
    raise DataError(f"the function returned {type(result).__name__}, not a row (a dict)")


def _of_columns(function: TableFunction) -> RowFunction:
    """Return a function of a row that calls a table function with the columns that its parameters name."""
    names = list(inspect.signature(function.function).parameters)
    columns = list(function.schema)

    @functools.wraps(function.function)
    def call(row: dict[str, Any]) -> Iterator[Any]:
        missing = [name for name in names if name not in row]
        if missing:
            raise DataError(
                f"table function {function.name!r} has a parameter {missing[0]!r}, but there is no such column"
            )
        for result in function.function(*(row[name] for name in names)):
            if isinstance(result, Mapping):
                yield result
            else:
                values = result if isinstance(result, tuple) else (result,)
                yield dict(zip(columns, values, strict=True))

    return call


def _row_function(function: Any, verb: str) -> RowFunction:
    if isinstance(function, str):
        function = import_object(function)
    if isinstance(function, type):
        try:
            function = function()
        except TypeError as error:
            raise FunctionError(f"{verb}: {function.__name__} cannot be made without arguments: {error}") from error
    target = getattr(function, "eval", function)
    if not callable(target):
        raise FunctionError(f"{verb} needs a function of a row, not {function!r}")
    return typing.cast(RowFunction, target)


def _annotated_schema(function: RowFunction, verb: str) -> Schema | None:
    """Return the columns that the return annotation declares (a TypedDict, dataclass or msgspec Struct), if it does."""
    try:
        returned = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        return None  # annotations that cannot be resolved declare nothing
    if verb == "flat_map" and typing.get_args(returned):
        returned = typing.get_args(returned)[0]
    kinds = [kind for kind in typing.get_args(returned) if kind is not type(None)]
    if type(None) in typing.get_args(returned) and len(kinds) == 1:
        returned = kinds[0]
    if typing.is_typeddict(returned) or dataclasses.is_dataclass(returned) or _is_struct(returned):
        return Schema.of({name: _without_none(kind) for name, kind in typing.get_type_hints(returned).items()})
    return None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _without_none(kind: Any) -> Any:
    kinds = [one for one in typing.get_args(kind) if one is not type(None)]
    return kinds[0] if type(None) in typing.get_args(kind) and len(kinds) == 1 else kind
