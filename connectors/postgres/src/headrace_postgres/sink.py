"""The PostgreSQL sink: rows and their queue's greatest position in one transaction."""

from __future__ import annotations

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

from headrace_postgres.connection import connect, listed, place_of, quoted, quoted_table, translating
from headrace_postgres.positions import Notes, Positions, lock_number
from headrace_postgres.settings import PostgresSinkSettings
from headrace_postgres.table_options import SINK_TABLES
from headrace_postgres.tables import KINDS, PARTITIONED, TABLE, VIEW, Table, describe, no_such_table
from headrace_postgres.types import declared_type, misfit
from headrace_postgres.writing import TableWriter, check_key, upsert_key

if TYPE_CHECKING:
    import polars as pl
    from headrace.flow.schema import Schema
    from headrace.interfaces.output_definition import InputRead, OutputDefinition

_CAST_HINT = "CAST the column in a select() before the sink"
#: A server that forgets what it has confirmed would make a checkpoint wrong.
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"


class PostgresSink(TransactionalSink):
    """Writes rows to a table. Guarantee: exactly once, by positions kept in a table of the same database.

    See ``docs/connectors/postgres.md`` for the conditions. May be pickled at any time; a copy makes its own connection.
    """

    Settings: ClassVar[type[SinkSettings]] = PostgresSinkSettings
    table_options = SINK_TABLES

    def __init__(self, settings: PostgresSinkSettings) -> None:
        self.settings: PostgresSinkSettings = settings
        self.accepts = "append" if settings.mode == "insert" else "upsert"
        self._connection: Any = None
        self._table: Table | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None, "_table": None, "_lock": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    # ---------------------------------------------------------------------------------------------- before the start

    def check(self, schema: Schema | None) -> None:
        """Check names and options against the stream's columns. Raises JobError."""
        settings = self.settings
        for option in ("table", "offsets_table", "schema", "database"):
            quoted(getattr(settings, option), option=option)
        for source, target in (settings.columns or {}).items():
            quoted(target, option="columns")
            if schema is not None and source not in schema:
                hint = did_you_mean(source, schema, known="columns of the stream")
                raise JobError(f"unknown column {source!r}", plugin="postgres", option="columns", hint=hint)
        if schema is None:
            if settings.create_table:
                raise JobError(
                    "a table cannot be created for columns that are known only row by row",
                    plugin="postgres",
                    option="create_table",
                    hint="give the map() before it a schema={...}",
                )
            return
        targets: dict[str, str] = {}
        for name in schema:
            target = self._target(name)
            quoted(target, option="columns")
            other = targets.setdefault(target, name)
            if other != name:
                raise JobError(
                    f"columns {other!r} and {name!r} of the stream both go to column {target!r}",
                    plugin="postgres",
                    option="columns",
                    hint="leave one out with drop(), or map it to another column",
                )
        for name in settings.key or ():
            if name not in schema:
                hint = did_you_mean(name, schema, known="columns of the stream")
                raise JobError(f"unknown column {name!r}", plugin="postgres", option="key", hint=hint)

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
        with translating(settings), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(quoted_table(settings)),))
            cursor.execute("SELECT to_regclass(%s) IS NULL", (quoted_table(settings),))
            if cursor.fetchone() == (True,):
                # A table of that name may have existed before; with its old positions, new rows would count as replays.
                self._positions.forget(connection, commit=False)
                cursor.execute(self._create_statement(schema))
            connection.commit()
        table = describe(connection, settings)
        if table is None:
            raise no_such_table(connection, settings)
        return table

    def _create_statement(self, schema: Schema) -> str:
        key = self.settings.key or []
        parts = []
        for name, kind in schema.items():
            parts.append(f"{quoted(self._target(name))} {declared_type(kind)}{' NOT NULL' if name in key else ''}")
        if key:
            parts.append(f"PRIMARY KEY ({listed([self._target(name) for name in key])})")
        return f"CREATE TABLE {quoted_table(self.settings)} ({', '.join(parts)})"

    def _check_table(self, table: Table, schema: Schema | None) -> None:
        settings = self.settings
        where = f"PostgreSQL at {settings.host}:{settings.port}, table {place_of(settings)}"
        if table.kind not in (TABLE, PARTITIONED, VIEW):
            raise JobError(
                f"{where}: it is a {KINDS.get(table.kind, 'thing of another kind')}, in which rows and positions cannot be stored together",
                plugin="postgres",
                option="table",
                hint="name a table",
            )
        if not table.durable:
            raise JobError(
                f"{where}: it is UNLOGGED, so the server empties it after a crash, but keeps the positions",
                plugin="postgres",
                option="table",
                hint="rows would be lost; ALTER TABLE … SET LOGGED",
            )
        targets = None if schema is None else {self._target(name): kind for name, kind in schema.items()}
        if settings.mode != "insert" and self.changes is None:
            upsert_key(settings, table, None if targets is None else list(targets))
        if targets is None:
            return
        for name, kind in targets.items():
            if problem := _problem(name, kind, table):
                raise JobError(f"{where}: {problem[0]}", plugin="postgres", option="columns", hint=problem[1])
        for name, column in table.columns.items():
            if name not in targets and not column.nullable and not column.has_default:
                raise JobError(
                    f"{where} needs a value for the column {name!r}, which the stream does not have",
                    plugin="postgres",
                    option="columns",
                    hint="add it with with_columns(), map another column to it, or give it a default in the table",
                )

    def _check_rights(self, connection: Any, table: Table, schema: Schema | None) -> None:
        """Run the statements without rows: they need the same rights, and the server checks the columns too."""
        names = [self._target(name) for name in schema] if schema is not None else list(table.columns)[:1]
        writer = self._writer(table, names if schema is not None else None)
        nothing = f"(SELECT {listed(names)} FROM {quoted_table(self.settings)} WHERE FALSE) AS nothing"  # noqa: S608
        with translating(self.settings), connection.cursor() as cursor:
            if writer.key:
                if schema is not None:
                    cursor.execute(writer.upsert(names, nothing))
                cursor.execute("CREATE TEMPORARY TABLE headrace_rights ON COMMIT DROP AS SELECT 1 WITH NO DATA")
            else:
                nulls = ", ".join(["NULL"] * len(names))
                cursor.execute(
                    f"INSERT INTO {quoted_table(self.settings)} ({listed(names)}) SELECT {nulls} WHERE FALSE"
                )
            if self.changes is not None:
                cursor.execute(f"DELETE FROM {quoted_table(self.settings)} WHERE FALSE")  # noqa: S608
            connection.rollback()

    def adopt(self, output: OutputDefinition) -> InputRead | None:
        """Compare the job with the one whose rows are in the table. Raises JobError when it is another one."""
        connection = connect(self.settings)
        try:
            replaces = self.settings.mode != "insert"
            return adopted(
                Notes(self._positions, connection), output, replaces_rows=replaces, refused=self._refused
            )  # fmt: skip
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
            f"PostgreSQL at {settings.host}:{settings.port}, table {place_of(settings)}: {message}",
            plugin="postgres",
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
            _, table = self._connected()
            if batch.dynamic:
                _check_dynamic([self._target(name) for name in frame.columns], frame, table)
            writer = self._writer(table, [self._target(name) for name in frame.columns])
            # Slow work is done before the transaction, which holds a lock.
            rows = writer.prepared(frame) if frame.height else None
            keys = writer.prepared(deleted) if deleted is not None and deleted.height else None
            with self._transaction() as connection, connection.cursor() as cursor:
                self._positions.advance(cursor, batch)
                if keys is not None:
                    writer.delete(cursor, *keys)
                if rows is not None:
                    writer.write(cursor, *rows)
                connection.commit()

    def _writer(self, table: Table, names: Sequence[str] | None) -> TableWriter:
        key: tuple[str, ...] = ()
        if self.changes is not None:
            key = tuple(self._change_key())
        elif self.settings.mode != "insert":
            key = upsert_key(self.settings, table, names)
        return TableWriter(self.settings, table, self._target, key)

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
                    cursor.execute(_DURABLE)
                    connection.commit()
            except BaseException:
                connection.close()
                raise
            self._connection, self._table = connection, table
        return self._connection, self._table

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
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
            raise DataError(problem[0], plugin="postgres", hint=problem[1])
