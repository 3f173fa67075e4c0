"""Which types of a stream's columns fit which types of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from headrace.flow.schema import type_name

from headrace_mysql.connection import quoted
from headrace_mysql.tables import TableColumn

INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum", "set"}
_TEXT_LIKE = {"inet4", "inet6", "uuid"}
_BINARIES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_SHAPES = {
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection", "geomcollection", "vector",
}  # fmt: skip
#: Digits of the largest decimal that polars has; a longer one is read as text.
_DECIMAL_DIGITS_MAX = 38


# ------------------------------------------------------------------------------------------------------------ reading


def column_type(column: TableColumn) -> pl.DataType:
    """Return the type of a stream's column for a column of a table."""
    kind = column.kind
    if column.full_type in ("tinyint(1)", "bit(1)"):
        return pl.Boolean()
    if kind in INTEGER_BYTES:
        if kind == "bigint":
            return pl.Decimal(20, 0) if column.unsigned else pl.Int64()
        return pl.Int64() if kind == "int" and column.unsigned else pl.Int32()
    if kind == "decimal":
        return pl.String() if column.precision > _DECIMAL_DIGITS_MAX else pl.Decimal(column.precision, column.scale)
    simple: Mapping[str, pl.DataType] = {
        "float": pl.Float32(), "double": pl.Float64(), "date": pl.Date(), "time": pl.Duration("us"),
        "datetime": pl.Datetime("us"), "timestamp": pl.Datetime("us", "UTC"), "year": pl.Int32(), "bit": pl.Binary(),
    }  # fmt: skip
    if kind in simple:
        return simple[kind]
    return pl.Binary() if kind in _BINARIES | _SHAPES else pl.String()


def selected(column: TableColumn) -> str:
    """Return the SQL expression that reads a column without loss."""
    name = quoted(column.name)
    if column.kind == "float":
        return f"{name} + 0e0"  # else the server sends six digits only
    if column.full_type == "bit(1)":
        return f"{name} + 0"
    if column.kind == "decimal" and column.precision > _DECIMAL_DIGITS_MAX:
        return f"CAST({name} AS CHAR)"
    return name


def series_of(name: str, kind: pl.DataType, values: Sequence[Any]) -> pl.Series:
    """Return a column of the driver's values. Zero dates (0000-00-00), which the driver gives as text, are NULL."""
    if isinstance(kind, pl.Datetime | pl.Date | pl.Duration):
        whole = [None if isinstance(value, str) else value for value in values]
        if isinstance(kind, pl.Datetime) and kind.time_zone:
            return pl.Series(name, whole, dtype=pl.Datetime("us")).dt.replace_time_zone("UTC")
        return pl.Series(name, whole, dtype=kind)
    if isinstance(kind, pl.Boolean):
        return pl.Series(name, values, dtype=pl.Int64) != 0
    if isinstance(kind, pl.Decimal) and kind.precision == 20 and kind.scale == 0:
        return (
            pl.Series(name, values, dtype=pl.UInt64).cast(kind) if _integers(values) else pl.Series(name, values, kind)
        )
    return pl.Series(name, values, dtype=kind)


def _integers(values: Sequence[Any]) -> bool:
    return all(value is None or type(value) is int for value in values)


# ------------------------------------------------------------------------------------------------------------ writing


#: Collations that compare texts byte by byte, blanks at the end included: MariaDB's and MySQL's.
EXACT_COLLATIONS = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")


def declared_type(kind: pl.DataType, *, in_key: bool, collation: str = "utf8mb4_bin") -> str:
    """Return the column type for a table that is created. ``collation`` is that of texts in keys."""
    if isinstance(kind, pl.String):
        # Keys are compared byte by byte: 'a', 'A' and 'a ' are three keys of a stream.
        return f"VARCHAR(255) COLLATE {collation}" if in_key else "LONGTEXT"
    if isinstance(kind, pl.Binary):
        return "VARBINARY(255)" if in_key else "LONGBLOB"
    if isinstance(kind, pl.Decimal):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if isinstance(kind, pl.Datetime):
        return "DATETIME(6)"
    names: Mapping[type[pl.DataType], str] = {
        pl.Boolean: "BOOLEAN", pl.Int8: "TINYINT", pl.Int16: "SMALLINT", pl.Int32: "INT", pl.Int64: "BIGINT",
        pl.UInt8: "TINYINT UNSIGNED", pl.UInt16: "SMALLINT UNSIGNED", pl.UInt32: "INT UNSIGNED",
        pl.UInt64: "BIGINT UNSIGNED", pl.Float32: "FLOAT", pl.Float64: "DOUBLE", pl.Date: "DATE", pl.Time: "TIME(6)",
        # A TIME ends at 838 hours.
        pl.Duration: "BIGINT COMMENT 'microseconds'",
    }  # fmt: skip
    return names.get(type(kind), "LONGTEXT")


def misfit(kind: pl.DataType, column: TableColumn) -> str | None:
    """Return why values of a type cannot go into a column of a table, or None when they can.

    Types are refused if the server would change values without an error: a time of day cut off, a number rounded to an integer.
    Values that are too long or out of range are errors of single rows.
    """
    return None if column.kind in _accepting(kind) else (
        f"{type_name(kind)} values do not fit the column {column.name!r} {column.full_type.upper()}"
    )  # fmt: skip


def _accepting(kind: pl.DataType) -> set[str]:
    integers = set(INTEGER_BYTES)
    if kind.is_integer():
        small = isinstance(kind, pl.Int8 | pl.Int16 | pl.UInt8 | pl.UInt16)
        exact = {"float", "double"} if small else {"double"} if isinstance(kind, pl.Int32 | pl.UInt32) else set()
        return integers | {"decimal", "year", "bit"} | exact
    if isinstance(kind, pl.Null):
        return {*integers, *_TEXTS, *_TEXT_LIKE, *_BINARIES, *_SHAPES, "decimal", "float", "double", "date", "time",
                "datetime", "timestamp", "year", "bit"}  # fmt: skip
    if isinstance(kind, pl.List | pl.Array | pl.Struct):
        return _TEXTS
    accepting: Mapping[type[pl.DataType], set[str]] = {
        pl.Float32: {"float", "double", "decimal"}, pl.Float64: {"float", "double", "decimal"},
        pl.Decimal: {"decimal", "float", "double"}, pl.Boolean: integers | {"bit"},
        pl.Datetime: {"datetime", "timestamp"}, pl.Date: {"date", "datetime", "timestamp"}, pl.Time: {"time"},
        pl.Duration: {"time", "bigint"}, pl.Binary: _BINARIES, pl.String: _TEXTS | _TEXT_LIKE,
        pl.Categorical: _TEXTS, pl.Enum: _TEXTS,
    }  # fmt: skip
    if isinstance(kind, pl.Decimal) and kind.scale == 0:
        return accepting[pl.Decimal] | integers
    return accepting.get(type(kind), set())
