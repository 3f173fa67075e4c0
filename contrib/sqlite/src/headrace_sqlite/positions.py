"""The table in which sinks store the position of each queue, in the same transaction as the rows."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from headrace_changes.databases.offsets_table import OffsetsTable

from headrace_sqlite.connection import quoted, translating
from headrace_sqlite.settings import SQLiteSinkSettings

STATEMENT = """
CREATE TABLE IF NOT EXISTS {table} (
  writer_id BLOB NOT NULL,          -- SHA-256 of the writer
  queue_id BLOB NOT NULL,           -- SHA-256 of the queue
  writer TEXT NOT NULL,             -- namespace.pipeline.node of the sink
  queue TEXT NOT NULL,
  last_offset INTEGER NOT NULL,     -- rows up to this offset of the queue are stored,
  last_index INTEGER NOT NULL,      -- and of this offset, rows up to this index
  updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (writer_id, queue_id)
)
"""


class Positions(OffsetsTable):
    """The positions of one writer. Every method uses the connection, in its present transaction."""

    plugin = "sqlite"

    def __init__(self, settings: SQLiteSinkSettings, writer: str) -> None:
        self._settings = settings
        self._quoted = quoted(settings.offsets_table)
        super().__init__(self._quoted, settings.offsets_table, writer)

    def translating(self) -> AbstractContextManager[None]:
        return translating(self._settings)

    def found_columns(self, cursor: Any) -> set[str]:
        cursor.execute(f"PRAGMA table_info({self._quoted})")
        return {row[1] for row in cursor.fetchall()}

    def create(self, connection: Any, cursor: Any) -> None:
        cursor.execute(STATEMENT.format(table=self._quoted))
        connection.commit()

    def inserting(self, values: str) -> str:
        columns = "writer_id, queue_id, writer, queue, last_offset, last_index"
        return f"INSERT OR IGNORE INTO {self._table} ({columns}) VALUES {values}"  # noqa: S608
