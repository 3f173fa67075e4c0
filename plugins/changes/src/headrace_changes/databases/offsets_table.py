"""The table in which a sink stores the position of each queue, in the same transaction as the rows, and notes about their job."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.flow.messages import Position, Queue
from headrace.foundation.errors import JobError
from headrace.interfaces.output_notes import NOTE, OutputNote, definition_of, definition_pieces
from headrace.interfaces.sink import SinkBatch, StaleWriterError

#: Distinguishes the rows of pieces from positions, which are never negative.
_OF_PIECES = -1
_COLUMNS = {"writer_id", "queue_id", "writer", "queue", "last_offset", "last_index", "updated_at"}


class OffsetsTable(ABC):
    """The positions of one writer. Every method uses the connection of the caller, in its present transaction.

    The table has the columns writer_id and queue_id (SHA-256 of the names, its primary key: names can be longer than an index allows),
    writer (500 characters), queue (1000), last_offset, last_index and updated_at. Statements are those that most servers share, with
    ``%s`` for parameters.
    """

    #: Name of the plug-in, for errors.
    plugin: ClassVar[str]

    def __init__(self, table: str, shown: str, writer: str) -> None:
        """``table``: quoted, for statements without parameters. ``shown``: for messages."""
        # Every statement is executed with parameters, even if there are none: then % marks a place.
        self._table = table.replace("%", "%%")
        self._shown = shown
        self._writer = writer

    @abstractmethod
    def translating(self) -> AbstractContextManager[None]:
        """Turn the driver's errors into those of headrace."""

    @abstractmethod
    def found_columns(self, cursor: Any) -> set[str]:
        """Return the columns of the table; none when it does not exist."""

    @abstractmethod
    def create(self, connection: Any, cursor: Any) -> None:
        """Create the table, and commit where the server needs it. Raises JobError that says what to do when the user may not."""

    @abstractmethod
    def inserting(self, values: str) -> str:
        """Return the statement that inserts values (``(%s, …)``) into the six first columns, unless the key is there."""

    # ------------------------------------------------------------------------------------------------- the table

    def prepare(self, connection: Any) -> None:
        """Create the table unless it exists. Raises JobError when it is another table, or the user may not create or use it."""
        with self.translating(), connection.cursor() as cursor:
            found = self.found_columns(cursor)
            if not found:  # asked first, because IF NOT EXISTS needs the right to create even when it does not
                self.create(connection, cursor)
            elif not found >= _COLUMNS:
                raise JobError(
                    f"table {self._shown} is not a table of positions", plugin=self.plugin, option="offsets_table",
                    hint="name a table that does not exist; it will be created",
                )  # fmt: skip
            # They change nothing, and need the rights that are needed later.
            cursor.execute(f"SELECT last_offset FROM {self._table} WHERE 1 = 0", ())  # noqa: S608
            cursor.execute(f"UPDATE {self._table} SET last_index = last_index WHERE 1 = 0", ())  # noqa: S608
            columns = ", ".join(sorted(_COLUMNS))
            cursor.execute(
                f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM {self._table} WHERE 1 = 0", ()  # noqa: S608
            )  # fmt: skip
            connection.rollback()

    def last(self, connection: Any, queue: Queue) -> Position | None:
        """Return the queue's position, or None."""
        rows = self._rows(
            connection, f"SELECT last_offset, last_index FROM {self._table} WHERE writer_id = %s AND queue_id = %s",  # noqa: S608
            self._key(queue.id),
        )  # fmt: skip
        return Position(*rows[0]) if rows else None

    def advance(self, cursor: Any, batch: SinkBatch) -> None:
        """Move the queue's position, if it is the one that this writer expects; another writer that has moved it wins.

        The row stays locked until the transaction ends. Raises StaleWriterError.
        """
        last, key = batch.last, self._key(batch.queue.id)
        if batch.after is None:
            cursor.execute(
                self.inserting("(%s, %s, %s, %s, %s, %s)"),
                (*key, self._writer[:500], batch.queue.id[:1000], last.offset, last.index),
            )
        else:
            cursor.execute(
                f"UPDATE {self._table} SET last_offset = %s, last_index = %s, updated_at = CURRENT_TIMESTAMP"  # noqa: S608
                " WHERE writer_id = %s AND queue_id = %s AND last_offset = %s AND last_index = %s",
                (last.offset, last.index, *key, batch.after.offset, batch.after.index),
            )
        if cursor.rowcount != 1:
            raise StaleWriterError(
                "another writer has written rows of the queue", plugin=self.plugin, queue=batch.queue.id
            )

    # ------------------------------------------------------------------------------------------- notes about the job

    def note(self, connection: Any) -> OutputNote | None:
        """Return the stored note about the job of this writer's rows; None if there is none. Raises JobError if it is
        damaged.
        """
        rows = self._rows(
            connection, f"SELECT queue FROM {self._table} WHERE writer_id = %s AND queue_id = %s", self._key(NOTE)  # noqa: S608
        )  # fmt: skip
        if not rows:
            return None
        try:
            return OutputNote.from_text(rows[0][0])
        except (ValueError, KeyError, TypeError) as error:
            raise JobError(
                f"what {self._shown} says of the job of writer {self._writer!r} is damaged: {error}",
                plugin=self.plugin,
                option="offsets_table",
                hint="it is the row whose queue begins with '#job': remove that row only if this job, unchanged, wrote the rows of the "
                "table",
            ) from error

    def definition(self, connection: Any) -> Mapping[str, Any] | None:
        """Return the definition of this writer's rows, for people; None: it was not stored, or cannot be read."""
        pieces = self._rows(
            connection, f"SELECT last_index, queue FROM {self._table} WHERE writer_id = %s AND last_offset = %s",  # noqa: S608
            (_digest(self._writer), _OF_PIECES),
        )  # fmt: skip
        return definition_of(dict(pieces))

    def keep_definition(self, connection: Any, definition: Mapping[str, Any]) -> None:
        """Store the definition of this writer's rows, in pieces."""
        with self.translating(), connection.cursor() as cursor:
            cursor.execute(
                f"DELETE FROM {self._table} WHERE writer_id = %s AND last_offset = %s",  # noqa: S608
                (_digest(self._writer), _OF_PIECES),
            )
            for number, piece in enumerate(definition_pieces(definition)):
                row = (*self._key(f"{NOTE} {number}"), self._writer[:500], piece, _OF_PIECES, number)
                cursor.execute(self.inserting("(%s, %s, %s, %s, %s, %s)"), row)
            connection.commit()

    def keep_note(self, connection: Any, note: OutputNote) -> None:
        """Store the job of this writer's rows."""
        key, text = self._key(NOTE), note.to_text()
        with self.translating(), connection.cursor() as cursor:
            # The index is changed so that the server counts the row as changed when the text is the same.
            cursor.execute(
                f"UPDATE {self._table} SET queue = %s, last_index = 1 - last_index WHERE writer_id = %s AND queue_id = %s",  # noqa: S608
                (text, *key),
            )
            if not cursor.rowcount:
                cursor.execute(self.inserting("(%s, %s, %s, %s, 0, 0)"), (*key, self._writer[:500], text))
            connection.commit()

    def any(self, connection: Any) -> bool:
        """Return whether this writer has stored rows of any queue."""
        rows = self._rows(
            connection,
            f"SELECT 1 FROM {self._table} WHERE writer_id = %s AND queue_id <> %s AND last_offset <> %s LIMIT 1",  # noqa: S608
            (*self._key(NOTE), _OF_PIECES),
        )
        return bool(rows)

    def forget(self, connection: Any, *, commit: bool = True) -> None:
        """Remove all positions of this writer, and the entry of its job: for a table that holds none of its rows."""
        with self.translating(), connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {self._table} WHERE writer_id = %s", (_digest(self._writer),))  # noqa: S608
            if commit:
                connection.commit()

    def _rows(self, connection: Any, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self.translating(), connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def _key(self, queue: str) -> tuple[bytes, bytes]:
        return _digest(self._writer), _digest(queue)


@dataclass(frozen=True)
class Notes:
    """The notes of one writer, on one connection: see ``headrace.interfaces.output_notes``."""

    offsets: OffsetsTable
    connection: Any
    #: The table of the rows, quoted.
    table: str

    def note(self) -> OutputNote | None:
        return self.offsets.note(self.connection)

    def keep_note(self, note: OutputNote) -> None:
        self.offsets.keep_note(self.connection, note)

    def definition(self) -> Mapping[str, Any] | None:
        return self.offsets.definition(self.connection)

    def keep_definition(self, definition: Mapping[str, Any]) -> None:
        self.offsets.keep_definition(self.connection, definition)

    def any(self) -> bool:
        return self.offsets.any(self.connection)

    def forget(self) -> None:
        self.offsets.forget(self.connection)

    def holds_rows(self) -> bool:
        with self.offsets.translating(), self.connection.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {self.table} LIMIT 1")  # noqa: S608
            return cursor.fetchone() is not None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
