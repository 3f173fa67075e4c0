"""Maps Avro types to column types: the default columns of an Avro schema, and an Avro schema for declared columns."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import OptionError

from headrace_avro.schemas import AvroField, AvroType

_UTC = pl.Datetime("us", "UTC")
_LOCAL = pl.Datetime("us")
_BY_LOGICAL: Mapping[str, pl.DataType] = {
    "uuid": pl.String(), "date": pl.Date(), "time-millis": pl.Time(), "time-micros": pl.Time(),
    "timestamp-millis": _UTC, "timestamp-micros": _UTC, "timestamp-nanos": _UTC,
    "local-timestamp-millis": _LOCAL, "local-timestamp-micros": _LOCAL, "local-timestamp-nanos": _LOCAL,
}  # fmt: skip
_BY_KIND: Mapping[str, pl.DataType] = {
    "boolean": pl.Boolean(), "int": pl.Int32(), "long": pl.Int64(), "float": pl.Float32(), "double": pl.Float64(),
    "bytes": pl.Binary(), "fixed": pl.Binary(), "string": pl.String(), "enum": pl.String(),
}  # fmt: skip


def column_type(kind: AvroType) -> pl.DataType | None:
    """Return the type of a column for an Avro type; None for those whose values are kept as JSON texts."""
    found = kind.nullable
    if found is not None:
        return column_type(found[1])
    if kind.logical == "decimal":
        return pl.Decimal(kind.precision, kind.scale)
    if kind.logical is not None:
        return _BY_LOGICAL[kind.logical]
    if kind.kind == "array":
        inner = column_type(kind.inner)
        return None if inner is None else pl.List(inner)
    if kind.kind == "record":
        fields = {each.name: column_type(each.type) for each in kind.fields}
        made = {name: found for name, found in fields.items() if found is not None}
        return pl.Struct(made) if len(made) == len(fields) and made else None
    return _BY_KIND.get(kind.kind)


def columns_of(record: AvroType) -> Schema:
    """Return the default columns of a record. A field without a column type becomes JSON text."""
    types = {each.name: column_type(each.type) for each in record.fields}
    texts = [name for name, kind in types.items() if kind is None]
    return Schema({name: kind or pl.String() for name, kind in types.items()}, json_columns=texts)


def record_of(schema: Schema, name: str, plugin: str) -> AvroType:
    """Return the record for declared columns: each may be NULL, which is also its default. Raises OptionError for
    types that Avro does not have.
    """
    fields = []
    for column, kind in schema.items():
        made = _avro_type(kind, f"{name}_{column}")
        if made is None:
            raise OptionError(
                f"column {column!r} is {type_name(kind)}, for which Avro has no type",
                plugin=plugin,
                option="schema",
                hint="convert it by an expression",
            )
        fields.append(AvroField(column, _or_null(made), has_default=True))
    return AvroType("record", name=name, fields=tuple(fields))


def _or_null(kind: AvroType) -> AvroType:
    return AvroType("union", branches=(AvroType("null"), kind))


def _avro_type(kind: pl.DataType, name: str) -> AvroType | None:
    if isinstance(kind, pl.Decimal):
        return AvroType("bytes", "decimal", kind.precision or 38, kind.scale)
    if isinstance(kind, pl.Datetime):
        return AvroType("long", "timestamp-micros" if kind.time_zone else "local-timestamp-micros")
    if isinstance(kind, pl.List):
        inner = _avro_type(kind.inner, f"{name}_item")  # type: ignore[arg-type]
        return None if inner is None else AvroType("array", items=_or_null(inner))
    if isinstance(kind, pl.Struct):
        made = []
        for each in kind.fields:
            inner = _avro_type(each.dtype, f"{name}_{each.name}")  # type: ignore[arg-type]
            if inner is None:
                return None
            made.append(AvroField(each.name, _or_null(inner), has_default=True))
        return AvroType("record", name=name, fields=tuple(made))
    simple = {
        pl.Boolean: AvroType("boolean"), pl.Int8: AvroType("int"), pl.Int16: AvroType("int"), pl.Int32: AvroType("int"),
        pl.Int64: AvroType("long"), pl.Float32: AvroType("float"), pl.Float64: AvroType("double"),
        pl.String: AvroType("string"), pl.Binary: AvroType("bytes"), pl.Date: AvroType("int", "date"),
        pl.Time: AvroType("long", "time-micros"),
    }  # fmt: skip
    return simple.get(type(kind))
