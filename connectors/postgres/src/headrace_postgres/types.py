"""Which types of a stream's columns fit which types of a table."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from headrace.flow.schema import type_name

from headrace_postgres.tables import TableColumn

INTEGERS = {"int2", "int4", "int8"}
_TEXTS = {"text", "varchar", "bpchar", "name", "citext"}
#: What the server reads from a text, and refuses if it cannot.
_TEXT_LIKE = {"uuid", "json", "jsonb", "xml", "inet", "cidr", "macaddr", "macaddr8", "tsvector", "ltree", "hstore"}
_JSON = {"json", "jsonb"}
#: Digits of the largest decimal that polars has; a longer one is read as text.
_DECIMAL_DIGITS_MAX = 38


def column_type(column: TableColumn) -> pl.DataType:
    """Return the type of a stream's column for a column of a table."""
    if column.kind == "numeric":
        fits = 0 < column.precision <= _DECIMAL_DIGITS_MAX and 0 <= column.scale <= column.precision
        return pl.Decimal(column.precision, column.scale) if fits else pl.String()
    simple: Mapping[str, pl.DataType] = {
        "bool": pl.Boolean(), "int2": pl.Int32(), "int4": pl.Int32(), "int8": pl.Int64(), "oid": pl.Int64(),
        "float4": pl.Float32(), "float8": pl.Float64(), "bytea": pl.Binary(), "date": pl.Date(), "time": pl.Time(),
        "timestamp": pl.Datetime("us"), "timestamptz": pl.Datetime("us", "UTC"),
    }  # fmt: skip
    return simple.get(column.kind, pl.String())


def declared_type(kind: pl.DataType) -> str:
    """Return the column type for a table that is created."""
    if isinstance(kind, pl.Decimal):
        return f"numeric({kind.precision}, {kind.scale})"
    if isinstance(kind, pl.Datetime):
        return "timestamp with time zone" if kind.time_zone else "timestamp"
    if isinstance(kind, pl.List | pl.Array | pl.Struct):
        return "jsonb"
    names: Mapping[type[pl.DataType], str] = {
        pl.Boolean: "boolean", pl.Int8: "smallint", pl.Int16: "smallint", pl.Int32: "integer", pl.Int64: "bigint",
        pl.UInt8: "smallint", pl.UInt16: "integer", pl.UInt32: "bigint", pl.UInt64: "numeric(20, 0)", pl.Float32: "real",
        pl.Float64: "double precision", pl.Date: "date", pl.Time: "time", pl.Duration: "interval", pl.Binary: "bytea",
    }  # fmt: skip
    return names.get(type(kind), "text")


def misfit(kind: pl.DataType, column: TableColumn) -> str | None:
    """Return why values of a type cannot go into a column of a table, or None when they can.

    Types are refused if the server would change values without an error: a time of day cut off, a number rounded to an integer.
    Values that are too long or out of range are errors of single rows.
    """
    if column.generated:
        return f"the server computes the column {column.name!r}"
    text = isinstance(kind, pl.String | pl.Categorical | pl.Enum)
    if isinstance(kind, pl.Null) or (text and column.category in "ES"):
        return None
    return None if column.kind in _accepting(kind) else (
        f"{type_name(kind)} values do not fit the column {column.name!r} {column.full_type.upper()}"
    )  # fmt: skip


def _accepting(kind: pl.DataType) -> set[str]:
    if kind.is_integer():
        small = isinstance(kind, pl.Int8 | pl.Int16 | pl.UInt8 | pl.UInt16)
        exact = {"float4", "float8"} if small else {"float8"} if isinstance(kind, pl.Int32 | pl.UInt32) else set()
        return {*INTEGERS, "numeric", "oid", *exact}
    if isinstance(kind, pl.Decimal):
        return {"numeric", "float4", "float8", *(INTEGERS if kind.scale == 0 else ())}
    if isinstance(kind, pl.List | pl.Array | pl.Struct):
        return _JSON | _TEXTS
    accepting: Mapping[type[pl.DataType], set[str]] = {
        pl.Float32: {"float4", "float8", "numeric"}, pl.Float64: {"float4", "float8", "numeric"},
        pl.Boolean: {"bool"}, pl.Datetime: {"timestamp", "timestamptz"}, pl.Date: {"date", "timestamp", "timestamptz"},
        pl.Time: {"time"}, pl.Duration: {"interval", "int8"}, pl.Binary: {"bytea"}, pl.String: _TEXTS | _TEXT_LIKE,
        pl.Categorical: _TEXTS, pl.Enum: _TEXTS,
    }  # fmt: skip
    return accepting.get(type(kind), set())
