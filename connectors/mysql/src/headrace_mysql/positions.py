"""The table in which sinks store the position of each queue, in the same transaction as the rows."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pymysql
from headrace.flow.messages import Position, Queue
from headrace.foundation.errors import JobError
from headrace.interfaces.output_definition import InputRead
from headrace.interfaces.sink import SinkBatch, StaleWriterError

from headrace_mysql.connection import quoted_for_parameters, translating
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
#: Stands instead of a queue's name in the row that names the job of a writer's rows.
_NOTE = "#job"
_EARLIER_MAX = 20
#: The definition of the rows is stored in pieces, each a row of the table; it is for people, and a larger one is not stored.
_PIECE_CHARACTERS = 900
_PIECES_MAX = 64
#: Distinguishes the rows of pieces from positions, which are never negative.
_OF_PIECES = -1
_COLUMNS = {"writer_id", "queue_id", "writer", "queue", "last_offset", "last_index"}


@dataclass(frozen=True, slots=True)
class OutputNote:
    """The job of a writer's rows: stored as a row of the table of positions, so that no other table and no other right is needed.

    ``complete``: the input for which the table has all results of the job, if there is one.
    """

    digest: str
    earlier: tuple[str, ...] = ()
    complete: InputRead | None = None

    def to_text(self) -> str:
        """Return a text of at most 1,000 characters; ``from_text`` reads it."""
        complete = None if self.complete is None else self.complete.to_json()
        text = json.dumps({"digest": self.digest, "earlier": self.earlier[:_EARLIER_MAX], "complete": complete})
        return f"{_NOTE} {crc32(text.encode()):08x} {text}"

    @classmethod
    def from_text(cls, content: str) -> OutputNote:
        """Read a text. Raises ValueError, KeyError or TypeError when it is another."""
        _, checksum, text = content.split(" ", 2)
        if int(checksum, 16) != crc32(text.encode()):
            raise ValueError("its checksum does not match")
        value = json.loads(text)
        earlier = tuple(str(digest) for digest in value["earlier"])
        return cls(str(value["digest"]), earlier, InputRead.from_json(value["complete"]))


class Positions:
    """The positions of one writer. Every method uses the connection, in its present transaction."""

    def __init__(self, settings: MySQLSinkSettings, writer: str) -> None:
        self._settings = settings
        # Every statement is executed with parameters, even if there are none: see `quoted_for_parameters`.
        self._table = quoted_for_parameters(settings.offsets_table)
        self._writer = writer

    def prepare(self, connection: Any) -> None:
        """Create the table unless it exists. Raises JobError when it is another table, or the user may not create or use it."""
        settings = self._settings
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
        with translating(self._settings), connection.cursor() as cursor:
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
        with translating(self._settings), connection.cursor() as cursor:
            cursor.execute(
                f"SELECT queue FROM {self._table} WHERE writer_id = %s AND queue_id = %s",  # noqa: S608
                (_digest(self._writer), _digest(_NOTE)),
            )
            found = cursor.fetchone()
        if found is None:
            return None
        try:
            return OutputNote.from_text(found[0])
        except (ValueError, KeyError, TypeError) as error:
            raise JobError(
                f"what {self._settings.offsets_table} says of the job of writer {self._writer!r} is damaged: {error}",
                plugin="mysql",
                option="offsets_table",
                hint="it is the row whose queue begins with '#job': remove it if this job, in its present form, "
                "has written the rows of the table",
            ) from error

    def definition(self, connection: Any) -> Mapping[str, Any] | None:
        """Return the definition of this writer's rows, for people; None: it was not stored, or cannot be read."""
        with translating(self._settings), connection.cursor() as cursor:
            cursor.execute(
                f"SELECT last_index, queue FROM {self._table} WHERE writer_id = %s AND last_offset = %s",  # noqa: S608
                (_digest(self._writer), _OF_PIECES),
            )
            pieces = dict(cursor.fetchall())
        try:
            content = "".join(pieces[number].removeprefix(_NOTE + " ") for number in range(len(pieces)))
            value = json.loads(zlib.decompress(base64.b64decode(content, validate=True)))
        except (ValueError, KeyError, zlib.error):
            return None
        return value if isinstance(value, dict) else None

    def keep_definition(self, connection: Any, definition: Mapping[str, Any]) -> None:
        """Store the definition of this writer's rows, in pieces."""
        text = base64.b64encode(zlib.compress(json.dumps(definition, default=str).encode())).decode()
        pieces = [text[at : at + _PIECE_CHARACTERS] for at in range(0, len(text), _PIECE_CHARACTERS)]
        writer = _digest(self._writer)
        with translating(self._settings), connection.cursor() as cursor:
            cursor.execute(
                f"DELETE FROM {self._table} WHERE writer_id = %s AND last_offset = %s",  # noqa: S608
                (writer, _OF_PIECES),
            )
            for number, piece in enumerate(pieces if len(pieces) <= _PIECES_MAX else ()):
                cursor.execute(
                    f"INSERT IGNORE INTO {self._table} (writer_id, queue_id, writer, queue, last_offset, last_index)"  # noqa: S608
                    " VALUES (%s, %s, %s, %s, %s, %s)",
                    (writer, _digest(f"{_NOTE} {number}"), self._writer[:500], f"{_NOTE} {piece}", _OF_PIECES, number),
                )
            connection.commit()

    def keep_note(self, connection: Any, note: OutputNote) -> None:
        """Store the job of this writer's rows."""
        values = (_digest(self._writer), _digest(_NOTE), self._writer[:500], note.to_text())
        with translating(self._settings), connection.cursor() as cursor:
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
        with translating(self._settings), connection.cursor() as cursor:
            cursor.execute(
                f"SELECT 1 FROM {self._table} WHERE writer_id = %s AND queue_id <> %s AND last_offset <> %s LIMIT 1",  # noqa: S608
                (_digest(self._writer), _digest(_NOTE), _OF_PIECES),
            )
            return cursor.fetchone() is not None

    def forget(self, connection: Any) -> None:
        """Remove all positions of this writer, and the entry of its job: for a table that holds none of its rows."""
        with translating(self._settings), connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {self._table} WHERE writer_id = %s", (_digest(self._writer),))  # noqa: S608
            connection.commit()

    def _key(self, queue: Queue) -> tuple[bytes, bytes]:
        return _digest(self._writer), _digest(queue.id)


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
