"""Which columns a table had at a place of the binary log, and how the log writes their values.

A table map, which comes before the rows, has the type and length of each column. The names, whether numbers are unsigned, the texts
of ENUM and SET and the character sets are not in it (unless ``binlog_row_metadata`` is FULL, not the default of servers). They come from
the table's description at the begin, and from statements that change it.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classbinary__log_1_1Table__map__event.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.foundation.errors import JobError

from headrace_mysql.binlog.images import Extent
from headrace_mysql.tables import TableColumn

TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24 = 1, 2, 3, 4, 5, 8, 9
OLD_TIMESTAMP, DATE, OLD_TIME, OLD_DATETIME, YEAR, NEWDATE, VARCHAR, BIT = 7, 10, 11, 12, 13, 14, 15, 16
TIMESTAMP, DATETIME, TIME = 17, 18, 19
JSON, DECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 245, 246, 247, 248, 252, 253, 254, 255
_BLOB_COMPRESSED, _VARCHAR_COMPRESSED, _VECTOR = 140, 141, 242

_WIDTHS = {
    TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8, FLOAT: 4, DOUBLE: 8, YEAR: 1, DATE: 3, NEWDATE: 3,
    OLD_TIMESTAMP: 4, OLD_TIME: 3, OLD_DATETIME: 8,
}  # fmt: skip
_METADATA_BYTES = {
    FLOAT: 1, DOUBLE: 1, DECIMAL: 2, BIT: 2, VARCHAR: 2, VAR_STRING: 2, _VARCHAR_COMPRESSED: 2, BLOB: 1, JSON: 1,
    GEOMETRY: 1, _BLOB_COMPRESSED: 1, _VECTOR: 1, STRING: 2, ENUM: 2, SET: 2, TIMESTAMP: 1, DATETIME: 1, TIME: 1,
}  # fmt: skip
#: Bytes of the digits that fill no group of nine.
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)

_WIRE_TYPES: Mapping[str, set[int]] = {
    "tinyint": {TINY}, "smallint": {SHORT}, "mediumint": {INT24}, "int": {LONG}, "bigint": {LONGLONG},
    "float": {FLOAT}, "double": {DOUBLE}, "decimal": {DECIMAL}, "year": {YEAR}, "bit": {BIT}, "enum": {ENUM}, "set": {SET},
    "date": {DATE, NEWDATE}, "datetime": {DATETIME}, "timestamp": {TIMESTAMP}, "time": {TIME},
    "char": {STRING}, "binary": {STRING}, "varchar": {VARCHAR, VAR_STRING}, "varbinary": {VARCHAR, VAR_STRING},
    "json": {JSON, BLOB}, "uuid": {STRING}, "inet6": {STRING}, "inet4": {STRING},
}  # fmt: skip
_SHAPES = {
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    "geomcollection",
}  # fmt: skip
_BLOBS = {"tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob"}
_REFUSED = {
    _BLOB_COMPRESSED: "is a COMPRESSED column", _VARCHAR_COMPRESSED: "is a COMPRESSED column", _VECTOR: "is a VECTOR",
    JSON: "is JSON in MySQL's binary form",
    OLD_TIMESTAMP: "has the format of MySQL 5.5", OLD_TIME: "has the format of MySQL 5.5",
    OLD_DATETIME: "has the format of MySQL 5.5",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WireColumn:
    """How the log writes the values of a column: its type, and two numbers whose meaning depends on the type."""

    kind: int
    #: Digits of a DECIMAL, bytes of an ENUM, SET or BIT, most bytes of a text, digits of a fraction of a second.
    size: int = 0
    #: Digits after the point of a DECIMAL.
    scale: int = 0

    @property
    def extent(self) -> Extent:
        """How many bytes a value takes."""
        kind, size = self.kind, self.size
        if kind in _WIDTHS:
            return Extent(_WIDTHS[kind])
        if kind in (TIME, DATETIME, TIMESTAMP):
            return Extent({TIME: 3, DATETIME: 5, TIMESTAMP: 4}[kind] + (size + 1) // 2)
        if kind == DECIMAL:
            whole = size - self.scale
            groups = whole // 9 + self.scale // 9
            return Extent(4 * groups + _DIGIT_BYTES[whole % 9] + _DIGIT_BYTES[self.scale % 9])
        if kind in (BIT, ENUM, SET):
            return Extent(size)
        if kind in (VARCHAR, VAR_STRING, STRING, _VARCHAR_COMPRESSED):
            return Extent(prefix=2 if size > 255 else 1)
        return Extent(prefix=size)


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table map: names of database and table, and its columns in their order."""

    database: str
    table: str
    columns: Sequence[WireColumn]


def table_map_of(payload: bytes) -> TableMap:
    """Read a table map event, from behind its table id and flags. Raises JobError for column types that are not known."""
    at = 1 + payload[0]
    database = payload[1:at].decode()
    end = at + 2 + payload[at + 1]
    table = payload[at + 2 : end].decode()
    count, at = _length(payload, end + 1)
    kinds, at = payload[at : at + count], at + count
    _, at = _length(payload, at)
    columns = []
    for kind in kinds:
        metadata = payload[at : at + _METADATA_BYTES.get(kind, 0)]
        at += len(metadata)
        columns.append(_wire_column(kind, metadata, f"{database}.{table}"))
    return TableMap(database, table, columns)


def _wire_column(kind: int, metadata: bytes, table: str) -> WireColumn:
    if kind == STRING:
        real, size = metadata
        if real & 0x30 != 0x30:
            # Lengths over 255: https://bugs.mysql.com/bug.php?id=37426
            real, size = real | 0x30, size | ((real & 0x30) ^ 0x30) << 4
        return WireColumn(real, size)
    if kind in (VARCHAR, VAR_STRING, _VARCHAR_COMPRESSED):
        return WireColumn(kind, int.from_bytes(metadata, "little"))
    if kind == DECIMAL:
        return WireColumn(kind, metadata[0], metadata[1])
    if kind == BIT:
        return WireColumn(kind, metadata[1] + (metadata[0] > 0))
    if metadata and kind not in (FLOAT, DOUBLE):
        return WireColumn(kind, metadata[0])
    if kind not in _WIDTHS:
        raise JobError(
            f"table {table} has a column of type {kind} in the binary log, which this connector does not know",
            plugin="mysql",
        )
    return WireColumn(kind)


def misfit(column: TableColumn, wire: WireColumn) -> str | None:
    """Return why a column cannot be the one that the log has at its place; None if it can."""
    if wire.kind in _REFUSED:
        return f"{column.name!r} {column.full_type.upper()} {_REFUSED[wire.kind]}, which is not read"
    known = {BLOB} if column.kind in _BLOBS else {GEOMETRY} if column.kind in _SHAPES else _WIRE_TYPES.get(column.kind)
    if known is None:
        return f"{column.name!r} {column.full_type.upper()} is of a type that is not read from the binary log"
    same = wire.kind != DECIMAL or (wire.size, wire.scale) == (column.precision, column.scale)
    if wire.kind in known and same:
        return None
    return f"{column.name!r} is {column.full_type.upper()}, but the binary log has another type there ({wire.kind})"


def columns_to_json(columns: Sequence[TableColumn]) -> list[list[str]]:
    """Return what ``columns_from_json`` reads."""
    return [[column.name, column.full_type, column.character_set] for column in columns]


def columns_from_json(values: Sequence[Sequence[str]]) -> tuple[TableColumn, ...]:
    """Return columns as a position's hint has them."""
    return tuple(_column(*value) for value in values)


def _column(name: str, full_type: str, character_set: str) -> TableColumn:
    found = re.match(r"(\w+)(?:\((\d+),(\d+)\))?", full_type)
    if found is None:
        return TableColumn(name, "", full_type)
    precision, scale = int(found[2] or 0), int(found[3] or 0)
    return TableColumn(name, found[1], full_type, precision=precision, scale=scale, character_set=character_set)


def _length(payload: bytes, at: int) -> tuple[int, int]:
    """Read a length-encoded integer; return it and the place behind it."""
    first = payload[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(payload[at + 1 : at + 1 + width], "little"), at + 1 + width


def table_maps_differ(columns: Sequence[TableColumn], table_map: TableMap, wanted: Mapping[str, Any]) -> str | None:
    """Return how a table map contradicts the known columns of the table, or None."""
    if len(columns) != len(table_map.columns):
        return f"the binary log has {len(table_map.columns)} columns, but the table had {len(columns)}"
    for column, wire in zip(columns, table_map.columns, strict=True):
        problem = misfit(column, wire) if column.name in wanted else None
        if problem is not None:
            return problem
    return None
