"""How the types of columns go together with those of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from headrace.errors import JobError
from headrace.schema import type_name

from headrace_mysql.connection import translating
from headrace_mysql.settings import MySQLSettings

_INTEGERS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum", "set"}
_BINARIES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as ``information_schema`` describes it."""

    name: str
    kind: str
    full_type: str
    nullable: bool
    has_default: bool
    precision: int
    scale: int
    in_primary_key: bool

    @property
    def unsigned(self) -> bool:
        return "unsigned" in self.full_type


def columns_of(connection: Any, settings: MySQLSettings) -> list[TableColumn]:
    """Return the columns of the table, none when there is no such table."""
    with translating(settings), connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, data_type, column_type, is_nullable, column_default, extra, numeric_precision,"
            " numeric_scale, column_key FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
            " ORDER BY ordinal_position",
            (settings.database, settings.table),
        )
        rows = cursor.fetchall()
        connection.commit()
    return [
        TableColumn(
            name, kind.lower(), full_type.lower(), nullable == "YES", default is not None or bool(extra), precision or 0,
            scale or 0, key == "PRI",
        )
        for name, kind, full_type, nullable, default, extra, precision, scale, key in rows
    ]  # fmt: skip


def column_type(column: TableColumn) -> pl.DataType:
    """Return the type of a stream's column for a column of a table."""
    kind = column.kind
    if column.full_type == "tinyint(1)":
        return pl.Boolean()
    if kind in _INTEGERS:
        wide = pl.Decimal(20, 0) if kind == "bigint" and column.unsigned else pl.Int64()
        return wide if kind == "bigint" or (kind == "int" and column.unsigned) else pl.Int32()
    if kind == "decimal":
        return pl.Decimal(min(38, column.precision), min(column.scale, 38))
    simple: Mapping[str, pl.DataType] = {
        "float": pl.Float32(), "double": pl.Float64(), "date": pl.Date(), "time": pl.Duration("us"),
        "datetime": pl.Datetime("us", "UTC"), "timestamp": pl.Datetime("us", "UTC"), "year": pl.Int32(), "bit": pl.Binary(),
    }  # fmt: skip
    if kind in simple:
        return simple[kind]
    return pl.Binary() if kind in _BINARIES else pl.String()


def declared_type(kind: pl.DataType, *, in_key: bool) -> str:
    """Return the column type for a table that is created."""
    if isinstance(kind, pl.String):
        return "VARCHAR(255)" if in_key else "LONGTEXT"
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
        pl.Duration: "TIME(6)",
    }  # fmt: skip
    return names.get(type(kind), "LONGTEXT")


def misfit(kind: pl.DataType, column: TableColumn) -> str | None:
    """Return why values of a type cannot go into a column of a table, or None when they can."""
    accepted = True
    target = column.kind
    if kind.is_integer():
        accepted = target in {*_INTEGERS, "decimal", "float", "double", "year", "bit"}
    elif kind.is_float():
        accepted = target in {"float", "double", "decimal"}
    elif isinstance(kind, pl.Decimal):
        accepted = target in {"decimal", "float", "double", *_INTEGERS}
    elif isinstance(kind, pl.Boolean):
        accepted = target in {*_INTEGERS, "bit"}
    elif isinstance(kind, pl.Datetime):
        accepted = target in {"datetime", "timestamp", "date"}
    elif isinstance(kind, pl.Date):
        accepted = target in {"date", "datetime", "timestamp"}
    elif isinstance(kind, pl.Time | pl.Duration):
        accepted = target == "time"
    elif isinstance(kind, pl.Binary):
        accepted = target in _BINARIES | {"bit"}
    elif isinstance(kind, pl.String):
        accepted = target in _TEXTS | {"inet6", "inet4", "uuid"}
    elif isinstance(kind, pl.List | pl.Struct):
        accepted = target in _TEXTS
    return (
        None
        if accepted
        else f"{type_name(kind)} values do not fit the column {column.name!r} {column.full_type.upper()}"
    )


def insertable(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Return rows of values that the driver takes: instants as UTC without zone, nested values as JSON."""
    changes = []
    for name, kind in frame.schema.items():
        if isinstance(kind, pl.Datetime) and kind.time_zone:
            changes.append(pl.col(name).dt.convert_time_zone("UTC").dt.replace_time_zone(None))
        elif isinstance(kind, pl.List | pl.Struct):
            from msgspec import json

            texts = [None if value is None else json.encode(value).decode() for value in frame[name].to_list()]
            changes.append(pl.Series(name, texts, dtype=pl.String))
        elif kind.is_float():
            changes.append(pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name))
    return frame.with_columns(changes).rows() if changes else frame.rows()


def key_of(columns: Sequence[TableColumn], wanted: str | None, settings: MySQLSettings) -> TableColumn:
    """Return the integer column to read a table by. Raises JobError when there is none."""
    keys = (
        [column for column in columns if column.name == wanted] if wanted else [c for c in columns if c.in_primary_key]
    )
    if len(keys) != 1 or keys[0].kind not in _INTEGERS:
        raise JobError(
            f"table {settings.database}.{settings.table} cannot be read by "
            + (f"the column {wanted!r}" if wanted else "its primary key")
            + ": an integer column is needed",
            plugin="mysql",
            option="key",
            hint="name a column of integers that is unique and indexed",
        )
    return keys[0]
