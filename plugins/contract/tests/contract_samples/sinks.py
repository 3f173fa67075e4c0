"""Healthy sinks on real stores that need no server: a file of lines, a SQLite table by key, and one by transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import headrace as hr
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, JobError, RetriableError
from headrace.interfaces.sink import SinkBatch


class LineSettings(hr.SinkSettings, frozen=True, kw_only=True):
    path: Annotated[str, hr.option("the file to append to")]


class LineSink(hr.Sink):
    """Appends rows to a file, one JSON object per line. At least once."""

    Settings = LineSettings

    def __init__(self, settings: LineSettings) -> None:
        self.settings: LineSettings = settings

    def batch_insert(self, batch: SinkBatch) -> None:
        lines = self.to_lines(self.rows_of(batch))
        with self.path().open("ab", buffering=0) as file:
            file.write(lines)

    def path(self) -> Path:
        """Return the file that rows are appended to."""
        return Path(self.settings.path)

    def rows_of(self, batch: SinkBatch) -> list[dict[str, Any]]:
        """Return the rows to write."""
        return batch.rows()

    def to_lines(self, rows: list[dict[str, Any]]) -> bytes:
        """Return the lines of rows."""
        return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


class TableSettings(hr.SinkSettings, frozen=True, kw_only=True):
    database: Annotated[str, hr.option("the SQLite file")]
    table: Annotated[str, hr.option("the table; created when it is missing")] = "rows"
    password: Annotated[hr.Secret | None, hr.option("a password, to have one")] = None


class TableSink(hr.IdempotentSink):
    """Writes rows to a SQLite table whose primary key is the row's id. Exactly once as seen by readers."""

    Settings = TableSettings
    concurrent = True

    def __init__(self, settings: TableSettings) -> None:
        self.settings: TableSettings = settings
        self._columns: list[str] = []

    def check(self, schema: Schema | None) -> None:
        if schema is None:
            raise JobError("a table needs its columns", hint="declare them: map(function, schema={...})")
        if "forbidden" in schema:
            raise JobError("the column 'forbidden' cannot be stored")

    def prepare(self, schema: Schema | None) -> None:
        assert schema is not None
        if not Path(self.settings.database).parent.is_dir():
            raise JobError(f"no directory for {self.settings.database!r}", hint="create it")
        self._columns = list(schema)
        with self._connect() as connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self.settings.table} (__id TEXT PRIMARY KEY, "
                               + ", ".join(f'"{name}"' for name in self._columns) + ")")  # fmt: skip
            self._prepare_more(connection)
        connection.close()

    def _prepare_more(self, connection: sqlite3.Connection) -> None: ...

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self.settings.database, timeout=20)
        except sqlite3.OperationalError as error:
            raise RetriableError(f"cannot open {self.settings.database}: {error}") from error
        connection.execute("PRAGMA synchronous = OFF")  # outlives processes, not machines: enough here, and quick
        return connection

    def batch_insert(self, batch: SinkBatch) -> None:
        connection = self._connect()
        try:
            with connection:
                self._insert(connection, batch)
        except sqlite3.OperationalError as error:
            raise RetriableError(str(error)) from error
        finally:
            connection.close()

    def _insert(self, connection: sqlite3.Connection, batch: SinkBatch) -> None:
        self.store(connection, batch, self.ids(batch))

    def store(self, connection: sqlite3.Connection, batch: SinkBatch, ids: Sequence[str | None]) -> None:
        """Store the rows of a batch under these ids."""
        marks = ", ".join("?" for _ in range(len(self._columns) + 1))
        rows = batch.rows()
        self.refuse(rows)
        values: list[list[Any]] = [
            [name, *(row[column] for column in self._columns)] for name, row in zip(ids, rows, strict=True)
        ]
        connection.executemany(f"INSERT OR REPLACE INTO {self.settings.table} VALUES ({marks})", values)  # noqa: S608

    def ids(self, batch: SinkBatch) -> Sequence[str]:
        """Return the keys of rows."""
        return [f"{self.writer_name} {name}" for name in batch.ids()]

    def refuse(self, rows: list[dict[str, Any]]) -> None:
        """Raise for rows that the target does not take."""
        if any(row.get("text") == "refuse me" for row in rows):
            raise DataError("the text 'refuse me' is refused")


class LedgerSink(TableSink, hr.TransactionalSink):
    """Writes rows and their queue's greatest position in one SQLite transaction. Exactly once."""

    def _prepare_more(self, connection: sqlite3.Connection) -> None:
        connection.execute('CREATE TABLE IF NOT EXISTS positions (queue TEXT PRIMARY KEY, "offset", "index")')

    def last_offset(self, queue: hr.Queue) -> hr.Position | None:
        connection = self._connect()
        try:
            return self._stored(connection, queue)
        finally:
            connection.close()

    def key(self, queue: hr.Queue) -> str:
        """Return the key of a queue's position."""
        return f"{self.writer_name} {queue.id}"

    def expected(self, batch: SinkBatch) -> hr.Position | None:
        """Return what must be stored when the batch is."""
        return batch.after

    def _stored(self, connection: sqlite3.Connection, queue: hr.Queue) -> hr.Position | None:
        found = connection.execute('SELECT "offset", "index" FROM positions WHERE queue = ?', (self.key(queue),))
        row = found.fetchone()
        return None if row is None else hr.Position(*row)

    def _insert(self, connection: sqlite3.Connection, batch: SinkBatch) -> None:
        connection.execute("BEGIN IMMEDIATE")
        stored = self._stored(connection, batch.queue)
        if stored != self.expected(batch):
            raise hr.StaleWriterError(f"stored is {stored}, not {batch.after}", queue=batch.queue.id)
        self.store(connection, batch, [None] * len(batch))
        connection.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", (self.key(batch.queue), *batch.last))
