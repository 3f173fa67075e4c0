"""The MySQL sink: rows and their queue's greatest position in one transaction."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.flow.changelog import collapsed, replaced_keys
from headrace.flow.messages import HEADER_COLUMNS, Position, Queue
from headrace.foundation.errors import DataError, HeadraceError, JobError, RetriableError, did_you_mean
from headrace.interfaces.output_notes import adopted
from headrace.interfaces.sink import SinkBatch, SinkSettings, TransactionalSink

from headrace_mysql.changes import check_key, delete_statements
from headrace_mysql.connection import connect, listed, quoted, translating
from headrace_mysql.literals import checked_escapes, row_texts, statements
from headrace_mysql.positions import Notes, Positions
from headrace_mysql.settings import MySQLSinkSettings
from headrace_mysql.table_options import SINK_TABLES
from headrace_mysql.tables import Table, describe, no_such_table
from headrace_mysql.types import EXACT_COLLATIONS, declared_type, misfit

if TYPE_CHECKING:
    import polars as pl
    from headrace.flow.schema import Schema
    from headrace.interfaces.output_definition import InputRead, OutputDefinition

#: One statement is at most so long, unless the server takes less: longer ones are hardly quicker.
STATEMENT_BYTES_MAX = 1024 * 1024
#: How long the start of one instance waits for another that is creating the table.
_CREATE_WAIT_SECONDS = 60
_COLLATIONS = "SELECT collation_name FROM information_schema.collations WHERE collation_name IN %s"
_CAST_HINT = "CAST the column in a select() before the sink"


class MySQLSink(TransactionalSink):
    """Writes rows to a table. Guarantee: exactly once, by positions kept in a table of the same database.

    See ``docs/connectors/mysql.md`` for the conditions. May be pickled at any time; a copy makes its own connection.
    """

    Settings: ClassVar[type[SinkSettings]] = MySQLSinkSettings
    table_options = SINK_TABLES

    def __init__(self, settings: MySQLSinkSettings) -> None:
        self.settings: MySQLSinkSettings = settings
        self.accepts = "append" if settings.mode == "insert" else "upsert"
        self._connection: Any = None
        self._table: Table | None = None
        self._packet_bytes_max = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None, "_table": None, "_lock": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    # ---------------------------------------------------------------------------------------------- before the start

    def check(self, schema: Schema | None) -> None:
        """Check names and options against the stream's columns. Raises JobError."""
        settings = self.settings
        for option in ("table", "offsets_table", "database"):
            quoted(getattr(settings, option), option=option)
        for source, target in (settings.columns or {}).items():
            quoted(target, option="columns")
            if schema is not None and source not in schema:
                hint = did_you_mean(source, schema, known="columns of the stream")
                raise JobError(f"unknown column {source!r}", plugin="mysql", option="columns", hint=hint)
        if schema is None:
            if settings.create_table:
                raise JobError(
                    "a table cannot be created for columns that are known only row by row",
                    plugin="mysql",
                    option="create_table",
                    hint="give the map() before it a schema={...}",
                )
            return
        targets: dict[str, str] = {}
        for name in schema:
            target = self._target(name)
            quoted(target, option="columns")
            # On every server, names of columns must differ in more than case.
            other = targets.setdefault(target.casefold(), name)
            if other != name:
                raise JobError(
                    f"columns {other!r} and {name!r} of the stream both go to column {target!r}",
                    plugin="mysql",
                    option="columns",
                    hint="leave one out with drop(), or map it to another column",
                )
        for name in settings.key or ():
            if name not in schema:
                hint = did_you_mean(name, schema, known="columns of the stream")
                raise JobError(f"unknown column {name!r}", plugin="mysql", option="key", hint=hint)

    def prepare(self, schema: Schema | None) -> None:
        """Create missing tables; check columns, keys and the user's rights. Raises JobError."""
        connection = connect(self.settings)
        try:
            table = describe(connection, self.settings)
            if table is None and (schema is None or not self.settings.create_table):
                raise no_such_table(connection, self.settings, hint="; create_table=True creates it")
            self._positions.prepare(connection)
            if table is None:
                assert schema is not None  # checked above
                table = self._create(connection, schema)
            self._check_table(table, schema)
            if self.changes is not None:
                check_key(self.settings, self._change_key(), table)
            self._check_rights(connection, table, schema)
        finally:
            connection.close()

    def _create(self, connection: Any, schema: Schema) -> Table:
        """Create the table, unless another instance creates it first."""
        settings = self.settings
        with self._named_lock(connection):
            table = describe(connection, settings)
            if table is None:
                # A table of that name may have existed before; with its old positions, new rows would count as replays.
                self._positions.forget(connection)
                with translating(settings), connection.cursor() as cursor:
                    cursor.execute(_COLLATIONS, (EXACT_COLLATIONS,))
                    exact = cursor.fetchone()
                    cursor.execute(self._create_statement(schema, exact[0] if exact else "utf8mb4_bin"))
                table = describe(connection, settings)
                if table is None:
                    raise no_such_table(connection, settings)
        return table

    @contextmanager
    def _named_lock(self, connection: Any) -> Iterator[None]:
        place = f"{self.settings.database}.{self.settings.table}"
        name = "headrace " + hashlib.sha256(place.encode()).hexdigest()[:48]
        with translating(self.settings), connection.cursor() as cursor:
            cursor.execute("SELECT GET_LOCK(%s, %s)", (name, _CREATE_WAIT_SECONDS))
            if cursor.fetchone() != (1,):
                raise RetriableError(f"another instance is creating the table {place}", plugin="mysql")
            yield
            cursor.execute("SELECT RELEASE_LOCK(%s)", (name,))

    def _create_statement(self, schema: Schema, collation: str) -> str:
        key = self.settings.key or []
        parts = []
        for name, kind in schema.items():
            declared = declared_type(kind, in_key=name in key, collation=collation)
            parts.append(f"{quoted(self._target(name))} {declared}{' NOT NULL' if name in key else ' NULL'}")
        if key:
            parts.append(f"PRIMARY KEY ({listed([self._target(name) for name in key])})")
        table = quoted(self.settings.table)
        return f"CREATE TABLE {table} ({', '.join(parts)}) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4"

    def _check_table(self, table: Table, schema: Schema | None) -> None:
        settings = self.settings
        where = f"MySQL at {settings.host}:{settings.port}, table {settings.database}.{settings.table}"
        if table.transactional is False:
            raise JobError(
                f"{where}: its engine {table.engine} has no transactions",
                plugin="mysql",
                option="table",
                hint="rows and positions could not be stored together; ALTER TABLE … ENGINE = InnoDB",
            )
        if settings.mode != "insert" and table.engine is not None and not table.unique_keys:
            raise JobError(
                f"{where}: mode {settings.mode!r} needs a primary or unique key, and the table has none",
                plugin="mysql",
                option="mode",
                hint="add a key to the table, or use mode='insert'",
            )
        if schema is None:
            return
        targets = {self._target(name): kind for name, kind in schema.items()}
        for name, kind in targets.items():
            if problem := _problem(name, kind, table):
                raise JobError(f"{where}: {problem[0]}", plugin="mysql", option="columns", hint=problem[1])
        for name, column in table.columns.items():
            if name not in targets and not column.nullable and not column.has_default:
                raise JobError(
                    f"{where} needs a value for the column {name!r}, which the stream does not have",
                    plugin="mysql",
                    option="columns",
                    hint="add it with with_columns(), map another column to it, or give it a default in the table",
                )

    def _check_rights(self, connection: Any, table: Table, schema: Schema | None) -> None:
        """Run the statement without rows: it needs the same rights, and the server checks the columns too."""
        names = [self._target(name) for name in schema] if schema is not None else list(table.columns)[:1]
        prefix, suffix = self._statement(names)
        values = f"SELECT {', '.join(['NULL'] * len(names))} FROM DUAL WHERE FALSE"  # noqa: S608
        with translating(self.settings), connection.cursor() as cursor:
            cursor.execute(prefix.removesuffix("VALUES ") + values + suffix)
            if self.changes is not None:
                cursor.execute(f"DELETE FROM {quoted(self.settings.table)} WHERE FALSE")  # noqa: S608
            connection.rollback()

    def adopt(self, output: OutputDefinition) -> InputRead | None:
        """Compare the job with the one whose rows are in the table. Raises JobError when it is another one."""
        connection = connect(self.settings)
        try:
            notes = Notes(self._positions, connection, self.settings.table)
            return adopted(notes, output, replaces_rows=self.settings.mode != "insert", refused=self._refused)
        finally:
            connection.close()

    def completed(self, read: InputRead) -> None:
        """Store that all results over an input are in the table. Raises JobError, RetriableError."""
        connection = connect(self.settings)
        try:
            note = self._positions.note(connection)
            if note is not None:
                self._positions.keep_note(connection, replace(note, complete=read))
        finally:
            connection.close()

    def _refused(self, message: str) -> JobError:
        settings = self.settings
        return JobError(
            f"MySQL at {settings.host}:{settings.port}, table {settings.database}.{settings.table}: {message}",
            plugin="mysql",
            option="table",
            hint="empty the table (TRUNCATE), or write to another one; or, if rows may be added, remove the positions: "
            f"the rows of the writer {self.writer_name!r} in the table {settings.offsets_table!r}",
        )

    # ------------------------------------------------------------------------------------------------------ writing

    def open(self) -> None:
        """Connect. Raises RetriableError or JobError."""
        with self._lock:
            self._connected()

    def last_offset(self, queue: Queue) -> Position | None:
        """Return the queue's position in the table of positions. Raises RetriableError or JobError."""
        with self._lock, self._transaction() as connection:
            found = self._positions.last(connection, queue)
            connection.rollback()  # the next look must be a fresh one
        return found

    def batch_insert(self, batch: SinkBatch) -> None:
        """Store rows and position. Raises StaleWriterError, RetriableError, JobError, and DataError for the rows."""
        frame, deleted = batch.to_polars(), None
        if self.changes is not None:
            difference = collapsed(batch.frame, self.changes.key or ())
            frame = difference.upserts.drop(HEADER_COLUMNS, strict=False)
            deleted = replaced_keys(difference, self.changes.key or ())
        with self._lock:
            connection, table = self._connected()
            if batch.dynamic:
                _check_dynamic([self._target(name) for name in frame.columns], frame, table)
            # Slow work is done before the transaction, which holds a lock.
            texts = [] if deleted is None else self._delete_statements(deleted, table)
            texts += self._insert_statements(frame, table)
            with self._transaction(), connection.cursor() as cursor:
                checked_escapes(connection.server_status)
                self._positions.advance(cursor, batch)
                for text in texts:
                    cursor.execute(text)
                connection.commit()

    def _insert_statements(self, frame: pl.DataFrame, table: Table) -> list[str]:
        if frame.height == 0:
            return []
        rows = row_texts(frame, {name: table.columns[self._target(name)] for name in frame.columns})
        prefix, suffix = self._statement([self._target(name) for name in frame.columns])
        size = min(STATEMENT_BYTES_MAX, self._packet_bytes_max)
        return list(statements(prefix, rows, suffix, size, self._packet_bytes_max))

    def _delete_statements(self, keys: pl.DataFrame, table: Table) -> list[str]:
        if keys.height == 0:
            return []
        columns = {name: table.columns[self._target(name)] for name in keys.columns}
        size = min(STATEMENT_BYTES_MAX, self._packet_bytes_max)
        return delete_statements(self.settings.table, self._target, keys, columns, size, self._packet_bytes_max)

    def _change_key(self) -> list[str]:
        assert self.changes is not None
        return [self._target(name) for name in self.changes.key or ()]

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Give a connection; when the block raises, what it has not committed is rolled back.

        After an error that may have come from the connection, a new one is made at the next call: then the transaction is
        either lost or committed; the position shows which when the writer reads it.
        """
        connection, _ = self._connected()
        try:
            with translating(self.settings):
                yield connection
        except RetriableError:
            self._disconnect()
            raise
        except HeadraceError:
            self._roll_back(connection)
            raise
        except BaseException:
            self._disconnect()
            raise

    def _statement(self, names: Sequence[str]) -> tuple[str, str]:
        """Return the parts of the statement before and after the rows."""
        verb = "REPLACE" if self.settings.mode == "replace" else "INSERT"
        prefix = f"{verb} INTO {quoted(self.settings.table)} ({listed(names)}) VALUES "
        if self.settings.mode != "upsert":
            return prefix, ""
        # VALUES() is the form that MySQL 8 and MariaDB both understand.
        changes = ", ".join(f"{quoted(name)} = VALUES({quoted(name)})" for name in names)
        return prefix, f" ON DUPLICATE KEY UPDATE {changes}"

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()

    @property
    def _positions(self) -> Positions:
        return Positions(self.settings, self.writer_name or f"table.{self.settings.table}")

    def _target(self, name: str) -> str:
        return (self.settings.columns or {}).get(name, name)

    def _connected(self) -> tuple[Any, Table]:
        if self._connection is None or self._table is None:
            connection = connect(self.settings)
            try:
                table = describe(connection, self.settings)
                if table is None:
                    raise no_such_table(connection, self.settings)
                with translating(self.settings), connection.cursor() as cursor:
                    cursor.execute("SELECT @@max_allowed_packet")
                    (self._packet_bytes_max,) = cursor.fetchone()
                    connection.rollback()
            except BaseException:
                connection.close()
                raise
            self._connection, self._table = connection, table
        return self._connection, self._table

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    def _roll_back(self, connection: Any) -> None:
        try:
            with translating(self.settings):
                connection.rollback()
        except HeadraceError:  # the connection is gone, and with it the transaction
            self._disconnect()


def _problem(name: str, kind: pl.DataType, table: Table) -> tuple[str, str] | None:
    """Return the problem of a column, and a hint."""
    if name not in table.columns:
        hint = did_you_mean(name, table.columns, known="columns of the table") + "; map names with columns={...}"
        return f"it has no column {name!r}", hint
    problem = misfit(kind, table.columns[name])
    return None if problem is None else (problem, _CAST_HINT)


def _check_dynamic(names: Sequence[str], frame: pl.DataFrame, table: Table) -> None:
    """Raise DataError when rows of unknown columns do not fit: then these are errors of single rows."""
    for name, kind in zip(names, frame.dtypes, strict=True):
        if problem := _problem(name, kind, table):
            raise DataError(problem[0], plugin="mysql", hint=problem[1])
