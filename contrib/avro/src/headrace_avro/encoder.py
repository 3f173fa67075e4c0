"""Encodes frames to bodies: it converts columns to Avro's values, and encodes each row with fastavro."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import polars as pl
from headrace.flow.messages import ROW
from headrace.flow.rows import unpack_rows
from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import DataError, OptionError, did_you_mean
from headrace.interfaces.codec import Encoder

from headrace_avro.conversions import TypeMismatchError, conversion, integer_bits, is_text_of
from headrace_avro.schemas import AvroType, rendered

_INT_MAX = 2**31 - 1
_DIVISORS = {"millis": 1000, "micros": 1}


class RecordEncoder(Encoder):
    """Encodes rows as records of a schema, each with ``prefix`` before it. Raises DataError for a row that is not a
    record of the schema.

    ``schema`` is None for rows whose columns are not known when the job is built.
    """

    def __init__(self, record: AvroType, schema: Schema | None, plugin: str, prefix: bytes = b"") -> None:
        self._plugin = plugin
        self._prefix = prefix
        self._parsed = fastavro.parse_schema(rendered(record))
        self._fields = [each.name for each in record.fields]
        self._steps: list[tuple[str, Callable[[pl.Series], pl.Series]]] = []
        if schema is not None:
            _check_columns(record, schema, plugin)
            self._steps = [
                (each.name, _step(each.type, schema[each.name])) for each in record.fields if each.name in schema
            ]

    def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
        """Return one body per row of ``frame``."""
        if ROW in frame.columns:
            return [self._body(self._of_known(row)) for row in unpack_rows(frame[ROW])]
        names = [name for name, _ in self._steps]
        if not names:
            return [self._body({})] * frame.height
        columns = [step(frame[name]).to_list() for name, step in self._steps]
        return [self._body(dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]

    def encode_lines(self, frame: pl.DataFrame) -> bytes:
        """Raise OptionError: bodies of Avro may contain any byte, so they cannot be lines of a file."""
        raise OptionError(
            "Avro records are binary and cannot be written as lines of a file",
            plugin=self._plugin,
            option="format",
            hint="write another format, such as format='json'",
        )

    def _of_known(self, row: Any) -> dict[str, Any]:
        for name in row:
            if name not in self._fields:
                hint = did_you_mean(name, self._fields, known="fields")
                raise DataError(
                    f"a row has the column {name!r}, which is not a field of the schema", plugin=self._plugin, hint=hint
                )
        return dict(row)

    def _body(self, record: dict[str, Any]) -> bytes:
        file = io.BytesIO()
        file.write(self._prefix)
        try:
            fastavro.schemaless_writer(file, self._parsed, record)
        except (ValueError, TypeError, OverflowError, AttributeError, KeyError) as error:
            raise DataError(f"the row is not a record of the schema: {error}", plugin=self._plugin) from error
        return file.getvalue()


def _check_columns(record: AvroType, schema: Schema, plugin: str) -> None:
    """Raise OptionError for columns that are not fields, fields without a value, and types that do not fit."""
    names = [each.name for each in record.fields]
    for name in schema:
        if name not in names:
            hint = did_you_mean(name, names, known="fields")
            raise OptionError(
                f"column {name!r} is not a field of the Avro schema", plugin=plugin, option="avro_schema", hint=hint
            )
    for each in record.fields:
        if each.name not in schema:
            if not each.has_default:
                raise OptionError(
                    f"there is no column for the field {each.name!r}, which has no default",
                    plugin=plugin,
                    option="avro_schema",
                )
            continue
        column = schema[each.name]
        try:
            fits = _fits(each.type, column)
        except TypeMismatchError:
            fits = False
        if not fits:
            raise OptionError(
                f"column {each.name!r} is {type_name(column)}, which Avro's {each.type} does not hold",
                plugin=plugin,
                option="avro_schema",
                hint="convert it by an expression",
            )


def _fits(kind: AvroType, column: pl.DataType, *, nested: bool = False) -> bool:
    """Return whether values of a column can be written as the type. Only a column at the top level may have integers
    that are too large.
    """
    inner = kind.nullable[1] if kind.nullable else kind
    bits = integer_bits(column)
    if bits is not None and inner.kind in ("int", "long") and inner.logical is None:
        return not nested or bits <= (32 if inner.kind == "int" else 64)
    if inner.kind == "double" and column == pl.Float32():
        return True
    if inner.logical == "decimal" and isinstance(column, pl.Decimal):
        return column.scale <= inner.scale
    if inner.kind == "array" and isinstance(column, pl.List):
        return _fits(inner.inner, column.inner, nested=True)  # type: ignore[arg-type]
    if inner.kind == "record" and isinstance(column, pl.Struct):
        columns = {each.name: each.dtype for each in column.fields}
        names = [each.name for each in inner.fields]
        return set(columns) <= set(names) and all(
            _fits(each.type, columns[each.name], nested=True) if each.name in columns else each.has_default  # type: ignore[arg-type]
            for each in inner.fields
        )
    return not is_text_of(kind, column) and conversion(kind, column) is not None


def _step(kind: AvroType, column: pl.DataType) -> Callable[[pl.Series], pl.Series]:
    """Return a function that converts values to Avro's encoding, or to the form that fastavro takes."""
    inner = kind.nullable[1] if kind.nullable else kind
    logical = inner.logical or ""
    if isinstance(column, pl.Datetime) and logical:
        divisor = _DIVISORS.get(logical.rpartition("-")[2])
        if divisor is None:
            return lambda values: values.cast(pl.Int64) * 1000
        return lambda values: values.cast(pl.Int64) // divisor
    if column == pl.Time() and logical:
        nanos = 1000 * _DIVISORS[logical.rpartition("-")[2]]
        return lambda values: values.cast(pl.Int64) // nanos
    if inner.kind == "int" and column == pl.Int64():
        return _in_32_bits
    if column == pl.Date():
        return lambda values: values.cast(pl.Int32)
    return lambda values: values


def _in_32_bits(values: pl.Series) -> pl.Series:
    """Return integers unchanged. Raises DataError for an integer that does not fit an ``int``."""
    outside = ~values.is_between(-_INT_MAX - 1, _INT_MAX)
    if outside.any():
        raise DataError(
            f"column {values.name!r}: {values.filter(outside)[0]} does not fit in a 32-bit int", plugin="avro"
        )
    return values
