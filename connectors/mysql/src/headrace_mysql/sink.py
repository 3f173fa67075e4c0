"""The MySQL sink: rows and their queue's greatest position in one transaction."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from headrace.errors import HeadraceError, JobError, RetriableError, did_you_mean
from headrace.messages import Position, Queue
from headrace.schema import Schema
from headrace.sink import SinkBatch, SinkSettings, StaleWriterError, TransactionalSink

from headrace_mysql.connection import connect, listed, quoted, translating
from headrace_mysql.settings import MySQLSinkSettings
from headrace_mysql.types import TableColumn, columns_of, declared_type, insertable, misfit

#: A row per queue that some sink has written. The queue's name can be longer than an index allows: its hash is the key.
OFFSETS_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
  writer VARCHAR(190) CHARACTER SET ascii NOT NULL,
  queue_hash BINARY(32) NOT NULL,
  queue TEXT NOT NULL,
  last_offset BIGINT NOT NULL,
  last_index INT NOT NULL,
  updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (writer, queue_hash)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4
"""


class MySQLSink(TransactionalSink):
    """Writes rows to a table. Guarantee: exactly once, by positions kept in a table of the same database."""

    Settings: ClassVar[type[SinkSettings]] = MySQLSinkSettings

    def __init__(self, settings: MySQLSinkSettings) -> None:
        self._own = settings
        self.settings = settings
        self._connection: Any = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_connection", "_lock")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _connection=None, _lock=threading.Lock())

    # ---------------------------------------------------------------------------------------------- before the start

    def check(self, schema: Schema | None) -> None:
        quoted(self._own.table)
        quoted(self._own.offsets_table)
        for name in self._own.columns or {}:
            if schema is not None and name not in schema:
                hint = did_you_mean(name, schema, known="columns")
                raise JobError(f"unknown column {name!r}", plugin="mysql", option="columns", hint=hint)
        if self._own.create_table and schema is None:
            raise JobError(
                "a table cannot be created for columns that are known only row by row",
                plugin="mysql",
                option="create_table",
                hint="give the map() before it a schema={...}",
            )

    def prepare(self, schema: Schema | None) -> None:
        connection = connect(self._own)
        try:
            columns = columns_of(connection, self._own)
            if not columns and self._own.create_table and schema is not None:
                self._execute(connection, self._table_statement(schema))
                columns = columns_of(connection, self._own)
            if not columns:
                raise self._no_such_table(connection)
            self._check_columns({column.name: column for column in columns}, schema)
            self._execute(connection, OFFSETS_TABLE.format(table=quoted(self._own.offsets_table)))
        finally:
            connection.close()

    def _table_statement(self, schema: Schema) -> str:
        key = self._own.key or []
        for name in key:
            if name not in schema:
                hint = did_you_mean(name, schema, known="columns")
                raise JobError(f"unknown column {name!r}", plugin="mysql", option="key", hint=hint)
        parts = [
            f"{quoted(self._target(name))} {declared_type(kind, in_key=name in key)}{' NOT NULL' if name in key else ''}"
            for name, kind in schema.items()
        ]
        if key:
            parts.append(f"PRIMARY KEY ({listed([self._target(name) for name in key])})")
        return f"CREATE TABLE {quoted(self._own.table)} ({', '.join(parts)}) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4"

    def _no_such_table(self, connection: Any) -> HeadraceError:
        with translating(self._own), connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (self._own.database,)
            )
            names = [name for (name,) in cursor.fetchall()]
        return JobError(
            f"there is no table {self._own.table!r} in database {self._own.database!r} at {self._own.host}:{self._own.port}",
            plugin="mysql",
            option="table",
            hint=did_you_mean(self._own.table, names, known="tables") + "; create_table=True makes it",
        )

    def _check_columns(self, columns: Mapping[str, TableColumn], schema: Schema | None) -> None:
        if schema is None:
            return
        targets = {self._target(name): kind for name, kind in schema.items()}
        where = f"table {self._own.database}.{self._own.table}"
        for name, kind in targets.items():
            if name not in columns:
                hint = did_you_mean(name, columns, known="columns of the table") + "; map names with columns={...}"
                raise JobError(f"{where} has no column {name!r}", plugin="mysql", option="columns", hint=hint)
            problem = misfit(kind, columns[name])
            if problem is not None:
                raise JobError(
                    f"{where}: {problem}", plugin="mysql", hint="CAST the column in a select() before the sink"
                )
        for name, column in columns.items():
            if name not in targets and not column.nullable and not column.has_default:
                raise JobError(
                    f"{where} needs a value for the column {name!r}, which the stream does not have",
                    plugin="mysql",
                    option="columns",
                )

    # ------------------------------------------------------------------------------------------------------ writing

    def open(self) -> None:
        self._connected()

    def last_offset(self, queue: Queue) -> Position | None:
        with self._lock:
            connection = self._connected()
            try:
                with translating(self._own), connection.cursor() as cursor:
                    cursor.execute(
                        f"SELECT last_offset, last_index FROM {quoted(self._own.offsets_table)}"  # noqa: S608
                        " WHERE writer = %s AND queue_hash = %s",
                        (self._writer, _hash(queue)),
                    )
                    found = cursor.fetchone()
                    connection.commit()
            except HeadraceError:
                self._disconnect()
                raise
        return None if found is None else Position(*found)

    def batch_insert(self, batch: SinkBatch) -> None:
        frame = batch.to_polars()
        statement = self._insert_statement([self._target(name) for name in frame.columns])
        rows = insertable(frame)
        with self._lock:
            connection = self._connected()
            try:
                with translating(self._own), connection.cursor() as cursor:
                    connection.begin()
                    self._advance(cursor, batch)
                    cursor.executemany(statement, rows)
                    connection.commit()
            except RetriableError:
                # The connection may be gone, the transaction with it; or its commit may have come through, which the
                # position tells when the writer asks again.
                self._disconnect()
                raise
            except HeadraceError:
                self._roll_back(connection)
                raise

    def _advance(self, cursor: Any, batch: SinkBatch) -> None:
        """Move the queue's position from what this writer believes it to be; whoever else moved it wins."""
        table = quoted(self._own.offsets_table)
        last = batch.last
        if batch.after is None:
            moved = cursor.execute(
                f"INSERT IGNORE INTO {table} (writer, queue_hash, queue, last_offset, last_index)"  # noqa: S608
                " VALUES (%s, %s, %s, %s, %s)",
                (self._writer, _hash(batch.queue), batch.queue.id, last.offset, last.index),
            )
        else:
            moved = cursor.execute(
                f"UPDATE {table} SET last_offset = %s, last_index = %s"  # noqa: S608
                " WHERE writer = %s AND queue_hash = %s AND last_offset = %s AND last_index = %s",
                (last.offset, last.index, self._writer, _hash(batch.queue), batch.after.offset, batch.after.index),
            )
        if moved != 1:
            raise StaleWriterError("another writer has written rows of the queue", plugin="mysql", queue=batch.queue.id)

    def _insert_statement(self, columns: Sequence[str]) -> str:
        verb = "REPLACE" if self._own.mode == "replace" else "INSERT"
        values = ", ".join(["%s"] * len(columns))
        statement = f"{verb} INTO {quoted(self._own.table)} ({listed(columns)}) VALUES ({values})"
        if self._own.mode == "upsert":
            # VALUES() is the form that MySQL 8 and MariaDB both understand.
            changes = ", ".join(f"{quoted(name)} = VALUES({quoted(name)})" for name in columns)
            statement += f" ON DUPLICATE KEY UPDATE {changes}"
        return statement

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    @property
    def _writer(self) -> str:
        name = self.writer_name or f"table.{self._own.table}"
        return name if len(name) <= 190 and name.isascii() else hashlib.sha256(name.encode()).hexdigest()

    def _target(self, name: str) -> str:
        return (self._own.columns or {}).get(name, name)

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = connect(self._own)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    def _roll_back(self, connection: Any) -> None:
        try:
            with translating(self._own):
                connection.rollback()
        except RetriableError:
            self._disconnect()

    def _execute(self, connection: Any, statement: str) -> None:
        with translating(self._own), connection.cursor() as cursor:
            cursor.execute(statement)
            connection.commit()


def _hash(queue: Queue) -> bytes:
    return hashlib.sha256(queue.id.encode()).digest()
