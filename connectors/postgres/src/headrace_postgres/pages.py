"""Reads the rows of a table page by page, in the order of its key, each page by one COPY."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.byte_slices import SPARE_BYTES

from headrace_postgres.connection import literal, quoted, quoted_table, translating
from headrace_postgres.settings import PostgresSettings
from headrace_postgres.tables import TableColumn
from headrace_postgres.tuples import texts_of, values_of, walk

_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
_TRAILER = b"\xff\xff"

#: Types whose cast to text writes what their output function writes, as the log has it. That of others may not: true instead of t,
#: char(n) without its blanks, inet with its mask.
_SAME_AS_TEXT = {
    "int2", "int4", "int8", "float4", "float8", "numeric", "oid", "text", "varchar", "uuid", "json", "jsonb", "bytea", "date",
    "time", "timestamp", "timestamptz",
}  # fmt: skip

#: The key of a row, as the server writes its values.
Key = tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """Rows in the order of the key."""

    frame: pl.DataFrame
    #: A column of texts for each column of the key.
    keys: pl.DataFrame

    def key_at(self, row: int) -> Key:
        """Return the key of a row."""
        return tuple(self.keys.row(row))

    def head(self, rows_max: int) -> Page:
        """Return the first rows."""
        return self if self.frame.height <= rows_max else Page(self.frame.head(rows_max), self.keys.head(rows_max))


class Pages:
    """Reads pages of a table on connections that the caller gives.

    ``key``: the columns that identify a row; none: rows are read by where they lie in the table's file (``ctid``), which a row
    keeps until it is changed.
    """

    def __init__(
        self,
        settings: PostgresSettings,
        columns: Mapping[str, TableColumn],
        key: Sequence[TableColumn],
        plugin: str,
    ) -> None:
        self._settings = settings
        self._columns = dict(columns)
        self._plugin = plugin
        self._key = [(quoted(column.name), column.full_type) for column in key] or [("ctid", "tid")]

    def read(self, connection: Any, after: Key | None, rows_max: int) -> Page:
        """Return the rows behind a key. Raises RetriableError, or DataError for values that have no type here."""
        # With the table's name, else the texts that are selected would be ordered.
        order = ", ".join(f"t.{name}" for name, _ in self._key)
        listed = [f"{name}::text" for name, _ in self._key] + [_as_text(column) for column in self._columns.values()]
        query = (
            f"SELECT {', '.join(listed)} FROM {quoted_table(self._settings)} AS t{self._behind(after)}"  # noqa: S608
            f" ORDER BY {order} LIMIT {int(rows_max)}"
        )
        return self._page(*self._copied(connection, query))

    def last(self, connection: Any) -> Key | None:
        """Return the greatest key, or None if there are no rows."""
        names = ", ".join(f"{name}::text" for name, _ in self._key)
        order = ", ".join(f"t.{name} DESC" for name, _ in self._key)
        with translating(self._settings), connection.cursor() as cursor:
            cursor.execute(f"SELECT {names} FROM {quoted_table(self._settings)} AS t ORDER BY {order} LIMIT 1")  # noqa: S608
            found = cursor.fetchone()
        return None if found is None else tuple(found)

    def count(self, connection: Any, after: Key | None) -> int:
        """Return how many rows come after a key. For a large table it may take long: ``read_timeout`` limits only the
        reading of pages.
        """
        with translating(self._settings), connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 0")
            cursor.execute(f"SELECT count(*) FROM {quoted_table(self._settings)}{self._behind(after)}")  # noqa: S608
            [(found,)] = cursor.fetchall()
            cursor.execute("RESET statement_timeout")
        return int(found)

    def has_rows_without_key(self, connection: Any) -> bool:
        """Return whether a column of the key is NULL in some row: no page has such a row, as NULL is not greater than a key."""
        condition = " OR ".join(f"{name} IS NULL" for name, _ in self._key)
        with translating(self._settings), connection.cursor() as cursor:
            cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {quoted_table(self._settings)} WHERE {condition})")  # noqa: S608
            [(found,)] = cursor.fetchall()
        return bool(found)

    def _behind(self, after: Key | None) -> str:
        if after is None:
            return ""
        names = ", ".join(name for name, _ in self._key)
        values = ", ".join(f"{literal(value)}::{kind}" for value, (_, kind) in zip(after, self._key, strict=True))
        return f" WHERE ({names}) > ({values})"

    def _copied(self, connection: Any, query: str) -> tuple[bytearray, list[int]]:
        """Return the result of a query in COPY's binary format, and the places where each row's values begin."""
        buffer, begins = bytearray(), []
        statement = f"COPY ({query}) TO STDOUT (FORMAT binary)"
        with translating(self._settings), connection.cursor() as cursor, cursor.copy(statement) as copy:
            for data in copy:
                row = bytes(data)
                if row.startswith(_SIGNATURE):
                    row = row[len(_SIGNATURE) + 8 :]
                if row and row != _TRAILER:
                    begins.append(len(buffer) + 2)
                    buffer += row
        buffer += bytes(SPARE_BYTES)
        return buffer, begins

    def _page(self, buffer: bytearray, begins: list[int]) -> Page:
        array = np.frombuffer(buffer, dtype=np.uint8)
        count = len(self._key) + len(self._columns)
        places, _ = walk(array, np.array(begins, dtype=np.int64), count, marked=False)
        texts = [texts_of(buffer, each, self._plugin) for each in places]
        keys = pl.DataFrame([text.alias(f"k{number}") for number, text in enumerate(texts[: len(self._key)])])
        values = [
            values_of(column, text, self._plugin)
            for column, text in zip(self._columns.values(), texts[len(self._key) :], strict=True)
        ]
        return Page(pl.DataFrame(values), keys)


def _as_text(column: TableColumn) -> str:
    """Return the expression for a value as the server's log writes it."""
    name = f"t.{quoted(column.name)}"
    if column.kind in _SAME_AS_TEXT:
        return f"{name}::text"
    # concat() calls the output function, but makes an empty text of NULL.
    return f"CASE WHEN num_nulls({name}) = 0 THEN concat({name}) END"
