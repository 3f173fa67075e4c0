"""The table in which sinks store the position of each queue, in the same transaction as the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pymysql
from headrace.flow.messages import Position, Queue
from headrace.foundation.errors import JobError
from headrace.interfaces.output_notes import NOTE, OutputNote, definition_of, definition_pieces
from headrace.interfaces.sink import SinkBatch, StaleWriterError

from headrace_mysql.connection import quoted, quoted_for_parameters, translating
from headrace_mysql.settings import MySQLSinkSettings

#: Names of writers and queues can be longer than an index allows, and differ only in case: so hashes are the key.
STATEMENT = """
CREATE TABLE IF NOT EXISTS {table} (
  writer_id BINARY(32) NOT NULL COMMENT 'SHA-256 of the writer',
  queue_id BINARY(32) NOT NULL COMMENT 'SHA-256 of the queue',
  writer VARCHAR(500) NOT NULL COMMENT 'namespace.pipeline.node of the sink',
  queue VARCHAR(1000) NOT NULL,
  last_offset BIGINT NOT NULL COMMENT 'rows up to this offset of the queue are stored,',
  last_index INT NOT NULL COMMENT 'of that offset those up to this index',
  updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (writer_id, queue_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4
"""
#: Distinguishes the rows of pieces from positions, which are never negative.
_OF_PIECES = -1
_COLUMNS = {"writer_id", "queue_id", "writer", "queue", "last_offset", "last_index"}


class Positions:
    """The positions of one writer. Every method uses the connection, in its present transaction."""

    def __init__(self, settings: MySQLSinkSettings, writer: str) -> None:
        self.settings = settings
        # Every statement is executed with parameters, even if there are none: see `quoted_for_parameters`.
        self._table = quoted_for_parameters(settings.offsets_table)
        self._writer = writer

    def prepare(self, connection: Any) -> None:
        """Create the table unless it exists. Raises JobError when it is another table, or the user may not create or use it."""
        settings = self.settings
        with translating(settings), connection.cursor() as cursor:
            cursor.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
                (settings.database, settings.offsets_table),
            )
            found = {name for (name,) in cursor.fetchall()}
            if not found:  # asked first, because IF NOT EXISTS needs the right to create even when it does not
                try:
                    cursor.execute(STATEMENT.format(table=self._table), ())
                except pymysql.MySQLError as error:
                    _explain_denied(error, settings)
                    raise
            elif not found >= _COLUMNS:
                raise JobError(
                    f"table {settings.database}.{settings.offsets_table} is not a table of positions",
                    plugin="mysql",
                    option="offsets_table",
                    hint="name a table that does not exist; it will be created",
                )
            cursor.execute(f"SELECT last_offset FROM {self._table} WHERE FALSE", ())  # noqa: S608
            cursor.execute(f"UPDATE {self._table} SET last_index = last_index WHERE FALSE", ())  # noqa: S608
            connection.rollback()

    def last(self, connection: Any, queue: Queue) -> Position | None:
        """Return the queue's position, or None."""
        with translating(self.settings), connection.cursor() as cursor:
            cursor.execute(
                f"SELECT last_offset, last_index FROM {self._table} WHERE writer_id = %s AND queue_id = %s",  # noqa: S608
                self._key(queue),
            )
            found = cursor.fetchone()
        return None if found is None else Position(*found)

    def advance(self, cursor: Any, batch: SinkBatch) -> None:
        """Move the queue's position, if it is the one that this writer expects; another writer that has moved it wins.

        The row stays locked until the transaction ends. Raises StaleWriterError.
        """
        last = batch.last
        key = self._key(batch.queue)
        if batch.after is None:
            moved = cursor.execute(
                f"INSERT IGNORE INTO {self._table} (writer_id, queue_id, writer, queue, last_offset, last_index)"  # noqa: S608
                " VALUES (%s, %s, %s, %s, %s, %s)",
                (*key, self._writer[:500], batch.queue.id[:1000], last.offset, last.index),
            )
        else:
            moved = cursor.execute(
                f"UPDATE {self._table} SET last_offset = %s, last_index = %s"  # noqa: S608
                " WHERE writer_id = %s AND queue_id = %s AND last_offset = %s AND last_index = %s",
                (last.offset, last.index, *key, batch.after.offset, batch.after.index),
            )
        if moved != 1:
            raise StaleWriterError("another writer has written rows of the queue", plugin="mysql", queue=batch.queue.id)

    def note(self, connection: Any) -> OutputNote | None:
        """Return what is stored about the job of this writer's rows; None: nothing. Raises JobError when it is damaged."""
        with translating(self.settings), connection.cursor() as cursor:
            cursor.execute(
                f"SELECT queue FROM {self._table} WHERE writer_id = %s AND queue_id = %s",  # noqa: S608
                (_digest(self._writer), _digest(NOTE)),
            )
            found = cursor.fetchone()
        if found is None:
            return None
        try:
            return OutputNote.from_text(found[0])
        except (ValueError, KeyError, TypeError) as error:
            raise JobError(
                f"what {self.settings.offsets_table} says of the job of writer {self._writer!r} is damaged: {error}",
                plugin="mysql",
                option="offsets_table",
                hint="it is the row whose queue begins with '#job': remove it if this job, in its present form, "
                "has written the rows of the table",
            ) from error

    def definition(self, connection: Any) -> Mapping[str, Any] | None:
        """Return the definition of this writer's rows, for people; None: it was not stored, or cannot be read."""
        with translating(self.settings), connection.cursor() as cursor:
            cursor.execute(
                f"SELECT last_index, queue FROM {self._table} WHERE writer_id = %s AND last_offset = %s",  # noqa: S608
                (_digest(self._writer), _OF_PIECES),
            )
            pieces = dict(cursor.fetchall())
        return definition_of(pieces)

    def keep_definition(self, connection: Any, definition: Mapping[str, Any]) -> None:
        """Store the definition of this writer's rows, in pieces."""
        writer = _digest(self._writer)
        with translating(self.settings), connection.cursor() as cursor:
            cursor.execute(
                f"DELETE FROM {self._table} WHERE writer_id = %s AND last_offset = %s",  # noqa: S608
                (writer, _OF_PIECES),
            )
            for number, piece in enumerate(definition_pieces(definition)):
                cursor.execute(
                    f"INSERT IGNORE INTO {self._table} (writer_id, queue_id, writer, queue, last_offset, last_index)"  # noqa: S608
                    " VALUES (%s, %s, %s, %s, %s, %s)",
                    (writer, _digest(f"{NOTE} {number}"), self._writer[:500], piece, _OF_PIECES, number),
                )
            connection.commit()

    def keep_note(self, connection: Any, note: OutputNote) -> None:
        """Store the job of this writer's rows."""
        values = (_digest(self._writer), _digest(NOTE), self._writer[:500], note.to_text())
        with translating(self.settings), connection.cursor() as cursor:
            # The index is changed so that the server counts the row as changed when the text is the same.
            changed = cursor.execute(
                f"UPDATE {self._table} SET queue = %s, last_index = 1 - last_index WHERE writer_id = %s AND queue_id = %s",  # noqa: S608
                (values[3], *values[:2]),
            )
            if not changed:
                cursor.execute(
                    f"INSERT IGNORE INTO {self._table} (writer_id, queue_id, writer, queue, last_offset, last_index)"  # noqa: S608
                    " VALUES (%s, %s, %s, %s, 0, 0)",
                    values,
                )
            connection.commit()

    def any(self, connection: Any) -> bool:
        """Return whether this writer has stored rows of any queue."""
        with translating(self.settings), connection.cursor() as cursor:
            cursor.execute(
                f"SELECT 1 FROM {self._table} WHERE writer_id = %s AND queue_id <> %s AND last_offset <> %s LIMIT 1",  # noqa: S608
                (_digest(self._writer), _digest(NOTE), _OF_PIECES),
            )
            return cursor.fetchone() is not None

    def forget(self, connection: Any) -> None:
        """Remove all positions of this writer, and the entry of its job: for a table that holds none of its rows."""
        with translating(self.settings), connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {self._table} WHERE writer_id = %s", (_digest(self._writer),))  # noqa: S608
            connection.commit()

    def _key(self, queue: Queue) -> tuple[bytes, bytes]:
        return _digest(self._writer), _digest(queue.id)


@dataclass(frozen=True)
class Notes:
    """The notes of one writer, on one connection: see ``headrace.interfaces.output_notes``."""

    positions: Positions
    connection: Any
    table: str

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
        with translating(self.positions.settings), self.connection.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {quoted(self.table)} LIMIT 1")  # noqa: S608
            return cursor.fetchone() is not None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _explain_denied(error: pymysql.MySQLError, settings: MySQLSinkSettings) -> None:
    """Raise a JobError that says what to do when the user may not create the table."""
    if error.args and error.args[0] == 1142:
        raise JobError(
            f"MySQL at {settings.host}:{settings.port}: user {settings.user!r} may not create the table"
            f" {settings.database}.{settings.offsets_table}, which holds the positions of the queues",
            plugin="mysql",
            option="offsets_table",
            hint="let an administrator create it once (the statement is in docs/connectors/mysql.md), or grant CREATE",
        ) from error
