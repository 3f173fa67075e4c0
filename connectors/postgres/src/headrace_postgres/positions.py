"""The table in which sinks store the position of each queue, in the same transaction as the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.flow.messages import Position, Queue
from headrace.foundation.errors import JobError
from headrace.interfaces.output_notes import NOTE, OutputNote, definition_of, definition_pieces
from headrace.interfaces.sink import SinkBatch, StaleWriterError

from headrace_postgres.connection import quoted, quoted_table, translated, translating
from headrace_postgres.settings import PostgresSinkSettings

#: Names of writers and queues can be longer than an index allows: so hashes are the key.
STATEMENT = """
CREATE TABLE IF NOT EXISTS {table} (
  writer_id bytea NOT NULL,         -- SHA-256 of the writer
  queue_id bytea NOT NULL,          -- SHA-256 of the queue
  writer varchar(500) NOT NULL,     -- namespace.pipeline.node of the sink
  queue varchar(1000) NOT NULL,
  last_offset bigint NOT NULL,      -- rows up to this offset of the queue are stored,
  last_index integer NOT NULL,      -- of that offset those up to this index
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (writer_id, queue_id)
)
"""
#: Distinguishes the rows of pieces from positions, which are never negative.
_OF_PIECES = -1
_COLUMNS = {"writer_id", "queue_id", "writer", "queue", "last_offset", "last_index", "updated_at"}
_PERMISSION = "42501"


class Positions:
    """The positions of one writer. Every method uses the connection, in its present transaction."""

    def __init__(self, settings: PostgresSinkSettings, writer: str) -> None:
        self.settings = settings
        self._table = f"{quoted(settings.schema)}.{quoted(settings.offsets_table)}"
        # Every statement is executed with parameters, in which % marks a place.
        self._in_statements = self._table.replace("%", "%%")
        self._writer = writer

    def prepare(self, connection: Any) -> None:
        """Create the table unless it exists. Raises JobError when it is another table, or the user may not create or use it."""
        settings = self.settings
        with translating(settings), connection.cursor() as cursor:
            cursor.execute(
                "SELECT column_name::text FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
                (settings.schema, settings.offsets_table),
            )
            found = {name for (name,) in cursor.fetchall()}
            if not found:  # asked first, because IF NOT EXISTS needs the right to create even when it does not
                self._create(connection)
            elif not found >= _COLUMNS:
                raise JobError(
                    f"table {settings.database}.{settings.schema}.{settings.offsets_table} is not a table of positions",
                    plugin="postgres",
                    option="offsets_table",
                    hint="name a table that does not exist; it will be created",
                )
            cursor.execute(f"SELECT last_offset FROM {self._table} WHERE FALSE")  # noqa: S608
            cursor.execute(f"UPDATE {self._table} SET last_index = last_index WHERE FALSE")  # noqa: S608
            cursor.execute(
                f"INSERT INTO {self._table} (writer_id, queue_id, writer, queue, last_offset, last_index)"
                " SELECT ''::bytea, ''::bytea, '', '', 0, 0 WHERE FALSE"
            )
            connection.rollback()

    def _create(self, connection: Any) -> None:
        import psycopg

        settings = self.settings
        try:
            with connection.cursor() as cursor:
                # Two sessions that create a table of one name at once would collide in the catalog.
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(self._table),))
                cursor.execute(STATEMENT.format(table=self._table))
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

    def last(self, connection: Any, queue: Queue) -> Position | None:
        """Return the queue's position, or None."""
        rows = self._rows(
            connection, "SELECT last_offset, last_index FROM {table} WHERE writer_id = %s AND queue_id = %s", self._key(queue)
        )  # fmt: skip
        return Position(*rows[0]) if rows else None

    def advance(self, cursor: Any, batch: SinkBatch) -> None:
        """Move the queue's position, if it is the one that this writer expects; another writer that has moved it wins.

        The row stays locked until the transaction ends. Raises StaleWriterError.
        """
        last = batch.last
        key = self._key(batch.queue)
        if batch.after is None:
            cursor.execute(
                f"INSERT INTO {self._in_statements} (writer_id, queue_id, writer, queue, last_offset, last_index)"  # noqa: S608
                " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (*key, self._writer[:500], batch.queue.id[:1000], last.offset, last.index),
            )
        else:
            cursor.execute(
                f"UPDATE {self._in_statements} SET last_offset = %s, last_index = %s, updated_at = now()"  # noqa: S608
                " WHERE writer_id = %s AND queue_id = %s AND last_offset = %s AND last_index = %s",
                (last.offset, last.index, *key, batch.after.offset, batch.after.index),
            )
        if cursor.rowcount != 1:
            raise StaleWriterError(
                "another writer has written rows of the queue", plugin="postgres", queue=batch.queue.id
            )

    def note(self, connection: Any) -> OutputNote | None:
        """Return what is stored about the job of this writer's rows; None: nothing. Raises JobError when it is damaged."""
        key = (_digest(self._writer), _digest(NOTE))
        rows = self._rows(connection, "SELECT queue FROM {table} WHERE writer_id = %s AND queue_id = %s", key)
        if not rows:
            return None
        try:
            return OutputNote.from_text(rows[0][0])
        except (ValueError, KeyError, TypeError) as error:
            raise JobError(
                f"what {self.settings.offsets_table} says of the job of writer {self._writer!r} is damaged: {error}",
                plugin="postgres",
                option="offsets_table",
                hint="it is the row whose queue begins with '#job': remove it if this job, in its present form, "
                "has written the rows of the table",
            ) from error

    def definition(self, connection: Any) -> Mapping[str, Any] | None:
        """Return the definition of this writer's rows, for people; None: it was not stored, or cannot be read."""
        pieces = self._rows(
            connection,
            "SELECT last_index, queue FROM {table} WHERE writer_id = %s AND last_offset = %s",
            (_digest(self._writer), _OF_PIECES),
        )
        return definition_of(dict(pieces))

    def keep_definition(self, connection: Any, definition: Mapping[str, Any]) -> None:
        """Store the definition of this writer's rows, in pieces."""
        writer = _digest(self._writer)
        self._run(
            connection, "DELETE FROM {table} WHERE writer_id = %s AND last_offset = %s", [(writer, _OF_PIECES)], commit=False
        )  # fmt: skip
        rows = [
            (writer, _digest(f"{NOTE} {number}"), self._writer[:500], piece, _OF_PIECES, number)
            for number, piece in enumerate(definition_pieces(definition))
        ]
        self._run(
            connection,
            "INSERT INTO {table} (writer_id, queue_id, writer, queue, last_offset, last_index)"
            " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            rows,
        )

    def keep_note(self, connection: Any, note: OutputNote) -> None:
        """Store the job of this writer's rows."""
        values = (_digest(self._writer), _digest(NOTE), self._writer[:500], note.to_text())
        self._run(
            connection,
            "INSERT INTO {table} AS t (writer_id, queue_id, writer, queue, last_offset, last_index)"
            " VALUES (%s, %s, %s, %s, 0, 0) ON CONFLICT (writer_id, queue_id) DO UPDATE SET queue = EXCLUDED.queue",
            [values],
        )

    def any(self, connection: Any) -> bool:
        """Return whether this writer has stored rows of any queue."""
        rows = self._rows(
            connection,
            "SELECT 1 FROM {table} WHERE writer_id = %s AND queue_id <> %s AND last_offset <> %s LIMIT 1",
            (_digest(self._writer), _digest(NOTE), _OF_PIECES),
        )
        return bool(rows)

    def forget(self, connection: Any, *, commit: bool = True) -> None:
        """Remove all positions of this writer, and the entry of its job: for a table that holds none of its rows."""
        self._run(
            connection, "DELETE FROM {table} WHERE writer_id = %s", [(_digest(self._writer),)], commit=commit
        )  # fmt: skip

    def _rows(self, connection: Any, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        with translating(self.settings), connection.cursor() as cursor:
            cursor.execute(statement.format(table=self._in_statements), parameters)
            return list(cursor.fetchall())

    def _run(self, connection: Any, statement: str, rows: Sequence[Sequence[Any]], *, commit: bool = True) -> None:
        with translating(self.settings), connection.cursor() as cursor:
            cursor.executemany(statement.format(table=self._in_statements), rows)
            if commit:
                connection.commit()

    def _key(self, queue: Queue) -> tuple[bytes, bytes]:
        return _digest(self._writer), _digest(queue.id)


@dataclass(frozen=True)
class Notes:
    """The notes of one writer, on one connection: see ``headrace.interfaces.output_notes``."""

    positions: Positions
    connection: Any

    def note(self) -> OutputNote | None:
        return self.positions.note(self.connection)

    def keep_note(self, note: OutputNote) -> None:
        self.positions.keep_note(self.connection, note)

    def definition(self) -> Mapping[str, Any] | None:
        return self.positions.definition(self.connection)

    def keep_definition(self, definition: Mapping[str, Any]) -> None:
        self.positions.keep_definition(self.connection, definition)

    def any(self) -> bool:
        return self.positions.any(self.connection)

    def forget(self) -> None:
        self.positions.forget(self.connection)

    def holds_rows(self) -> bool:
        settings = self.positions.settings
        with translating(settings), self.connection.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {quoted_table(settings)} LIMIT 1")  # noqa: S608
            return cursor.fetchone() is not None


def lock_number(name: str) -> int:
    """Return the number of the advisory lock for creating a table."""
    return int.from_bytes(hashlib.sha256(f"headrace {name}".encode()).digest()[:8], "big", signed=True)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
