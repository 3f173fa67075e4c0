"""What the verbs have in common: binding to columns when the job is built, or to each shape of row while it runs.

Behind a ``map`` without schema a stream's columns are known only row by row. A verb is then bound to each *shape* (the
names and types of a row's values) when a row of that shape first comes. Rows of one shape are processed together, and
what becomes of a row depends on that row alone, never on which rows share its batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from headrace.flow.messages import HEADER_COLUMNS, INDEX, OFFSET, ROW, Batch
from headrace.flow.rows import pack_rows, unpack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import HeadraceError, JobError
from headrace.interfaces.operator import Operator, OperatorSpec, RejectedRows
from headrace_columnar.evaluation import RowFailure

#: (output, rows that go there, with header columns)
Results = tuple[list[tuple[str, pl.DataFrame]], RejectedRows | None]


class BoundVerb(ABC):
    """A verb bound to the columns of its input."""

    #: The columns of each output.
    schemas: Mapping[str, Schema]

    @abstractmethod
    def process(self, frame: pl.DataFrame) -> Results:
        """Process rows (user and header columns). Rows keep their order and header."""


class VerbSpec(OperatorSpec):
    """A verb whose work is on columns."""

    takes_functions = True
    #: Whether rows are passed on unchanged (where, split): then rows of unknown columns need not be packed again.
    keeps_rows = False

    @abstractmethod
    def bind(self, schema: Schema) -> BoundVerb:
        """Check the verb against columns. Raises JobError."""

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return None if schema is None else self.bind(schema).schemas[output]

    def open(self, schema: Schema | None) -> Operator:
        return ShapedVerb(self) if schema is None else ColumnarVerb(self.bind(schema))


class ColumnarVerb(Operator):
    """Runs a verb over columns that are known."""

    def __init__(self, bound: BoundVerb) -> None:
        self._bound = bound

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        outputs, rejected = self._bound.process(batch.frame)
        for output, frame in outputs:
            if frame.height:
                yield batch.with_frame(frame, output)
        if rejected is not None:
            yield rejected


@dataclass(frozen=True)
class _Shape:
    """A bound verb for rows of one shape, or why there is none."""

    bound: BoundVerb | None
    schema: Schema | None = None
    error: HeadraceError | None = None


class ShapedVerb(Operator):
    """Runs a verb over rows whose columns are known only from the rows: each shape of row by itself."""

    def __init__(self, spec: VerbSpec) -> None:
        self._spec = spec
        self._shapes: dict[tuple[Any, ...], _Shape] = {}

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        rows = unpack_rows(frame[ROW])
        groups: dict[tuple[Any, ...], list[int]] = {}
        for place, row in enumerate(rows):
            groups.setdefault(tuple((name, shape_of(value)) for name, value in row.items()), []).append(place)
        outputs: dict[str, list[pl.DataFrame]] = {}
        for key, places in groups.items():
            shape = self._shapes.get(key)
            if shape is None:
                shape = self._shapes[key] = self._bind([rows[place] for place in places])
            part = frame[places]
            if shape.bound is None or shape.schema is None:
                assert shape.error is not None
                yield RejectedRows(part, [str(shape.error)] * len(places), [type(shape.error).__name__] * len(places))
                continue
            columns = pl.DataFrame([rows[place] for place in places], schema=dict(shape.schema), orient="row")
            typed = pl.concat([part, columns], how="horizontal")
            made, rejected = shape.bound.process(typed)
            for output, result in made:
                outputs.setdefault(output, []).append(self._packed(result))
            if rejected is not None:
                kept = [name for name in rejected.frame.columns if name in frame.columns]
                yield RejectedRows(rejected.frame.select(kept), rejected.reasons, rejected.errors)
        for output, frames in outputs.items():
            merged = frames[0] if len(frames) == 1 else pl.concat(frames).sort(OFFSET, INDEX)
            if merged.height:
                yield batch.with_frame(merged, output)

    def _bind(self, rows: Sequence[Mapping[str, Any]]) -> _Shape:
        try:
            schema = Schema({name: type_of_value(value) for name, value in rows[0].items()})
            return _Shape(self._spec.bind(schema), schema)
        except JobError as error:
            return _Shape(None, error=error)

    def _packed(self, frame: pl.DataFrame) -> pl.DataFrame:
        header = [name for name in HEADER_COLUMNS if name in frame.columns]
        if self._spec.keeps_rows:
            return frame.select([*header, ROW])
        rows = frame.drop([*header, ROW], strict=False).to_dicts()
        return frame.select(header).with_columns(pl.Series(ROW, pack_rows(rows), dtype=pl.Binary))


def shape_of(value: Any) -> Any:
    """Return what tells apart values of different types, also inside lists and dicts."""
    if isinstance(value, dict):
        return ("struct", tuple((name, shape_of(inner)) for name, inner in value.items()))
    if isinstance(value, list):
        return ("array", tuple(sorted({shape_of(inner) for inner in value}, key=repr)))
    return type(value)


def type_of_value(value: Any) -> pl.DataType:
    """Return the column type that holds a value."""
    try:
        return pl.Series([value], strict=True).dtype
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise JobError(
            f"a row contains a value that does not fit the type of its column: {value!r:.100}: {error}"
        ) from error


def rejected_of(frame: pl.DataFrame, failures: Sequence[RowFailure]) -> RejectedRows | None:
    """Return the failed rows with the reasons, or None when none failed."""
    if not failures:
        return None
    reasons = [
        error.message if isinstance(error, HeadraceError) else (str(error) or repr(error)) for _, error in failures
    ]
    return RejectedRows(
        frame[[place for place, _ in failures]], reasons, [type(error).__name__ for _, error in failures]
    )


def without_failed(frame: pl.DataFrame, failures: Sequence[RowFailure]) -> pl.DataFrame:
    """Return the rows that did not fail."""
    if not failures:
        return frame
    keep = pl.Series([True]).new_from_index(0, frame.height).scatter([place for place, _ in failures], False)
    return frame.filter(keep)
