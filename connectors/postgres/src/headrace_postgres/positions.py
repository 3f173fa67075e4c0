"""The table in which sinks store the position of each queue, in the same transaction as the rows."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from typing import Any

from headrace.foundation.errors import JobError
from headrace_changes.databases.offsets_table import OffsetsTable

from headrace_postgres.connection import quoted, translated, translating
from headrace_postgres.settings import PostgresSinkSettings

STATEMENT = """
CREATE TABLE IF NOT EXISTS {table} (
  writer_id bytea NOT NULL,         -- SHA-256 of the writer
  queue_id bytea NOT NULL,          -- SHA-256 of the queue
  writer varchar(500) NOT NULL,     -- namespace.pipeline.node of the sink
  queue varchar(1000) NOT NULL,
  last_offset bigint NOT NULL,      -- rows up to this offset of the queue are stored,
  last_index integer NOT NULL,      -- and of this offset, rows up to this index
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (writer_id, queue_id)
)
"""
_PERMISSION = "42501"


class Positions(OffsetsTable):
    """The positions of one writer. Every method uses the connection, in its present transaction."""

    plugin = "postgres"

    def __init__(self, settings: PostgresSinkSettings, writer: str) -> None:
        self._settings = settings
        self._quoted = f"{quoted(settings.schema)}.{quoted(settings.offsets_table)}"
        super().__init__(self._quoted, f"{settings.database}.{settings.schema}.{settings.offsets_table}", writer)

    def translating(self) -> AbstractContextManager[None]:
        return translating(self._settings)

    def found_columns(self, cursor: Any) -> set[str]:
        cursor.execute(
            "SELECT column_name::text FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            (self._settings.schema, self._settings.offsets_table),
        )
        return {name for (name,) in cursor.fetchall()}

    def create(self, connection: Any, cursor: Any) -> None:
        import psycopg

        settings = self._settings
        try:
            # Two sessions that create a table of one name at once would collide in the catalog.
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(self._quoted),))
            cursor.execute(STATEMENT.format(table=self._quoted))
            connection.commit()
        except psycopg.Error as error:
            if error.sqlstate != _PERMISSION:
                raise translated(error, settings) from error
            raise JobError(
                f"PostgreSQL at {settings.host}:{settings.port}: user {settings.user!r} may not create the table"
                f" {settings.database}.{settings.schema}.{settings.offsets_table}, which holds the positions of the queues",
                plugin="postgres",
                option="offsets_table",
                hint="let an administrator create it once (the statement is in docs/connectors/postgres.md), or grant CREATE on "
                "the schema",
            ) from error

    def inserting(self, values: str) -> str:
        columns = "writer_id, queue_id, writer, queue, last_offset, last_index"
        return f"INSERT INTO {self._table} ({columns}) VALUES {values} ON CONFLICT DO NOTHING"  # noqa: S608


def lock_number(name: str) -> int:
    """Return the number of the advisory lock for creating a table."""
    return int.from_bytes(hashlib.sha256(f"headrace {name}".encode()).digest()[:8], "big", signed=True)
