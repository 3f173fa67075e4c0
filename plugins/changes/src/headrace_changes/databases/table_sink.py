"""A sink into a table: rows and their queue's greatest position in one transaction, whatever the server is."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from headrace.flow.changelog import collapsed, replaced_keys
from headrace.flow.messages import HEADER_COLUMNS, Position, Queue
from headrace.foundation.errors import DataError, HeadraceError, JobError, RetriableError, did_you_mean
from headrace.interfaces.output_notes import adopted
from headrace.interfaces.sink import SinkBatch, TransactionalSink

from headrace_changes.databases.offsets_table import Notes, OffsetsTable

if TYPE_CHECKING:
    import polars as pl
    from headrace.flow.schema import Schema
    from headrace.interfaces.output_definition import InputRead, OutputDefinition

_CAST_HINT = "CAST the column in a select() before the sink"


class Column(Protocol):
    """The properties of a table's column that ``TableSink`` needs."""

    @property
    def nullable(self) -> bool: ...
    @property
    def has_default(self) -> bool: ...


ColumnT_co = TypeVar("ColumnT_co", bound=Column, covariant=True)


class Table(Protocol[ColumnT_co]):
    """The properties of a table that ``TableSink`` needs."""

    @property
    def columns(self) -> Mapping[str, ColumnT_co]: ...
    @property
    def unique_keys(self) -> Mapping[str, tuple[str, ...]]: ...


class TableSink(TransactionalSink):
    """Writes rows to a table of a database. Guarantee: exactly once, by positions kept in a table of the same database.

    A subclass names the server (``server``, ``plugin``), makes connections, describes the table and writes frames; this class calls its
    methods in the order in which they stand below. Its settings have ``table``, ``offsets_table``, ``mode``, ``columns``, ``key``,
    ``create_table``, ``host`` and ``port``. May be pickled at any time; a copy makes its own connection.
    """

    #: Name of the server, and of the plug-in, for errors.
    server: ClassVar[str]
    plugin: ClassVar[str]
    #: Options that are names on the server.
    names: ClassVar[tuple[str, ...]] = ("table", "offsets_table", "database")

    def __init__(self, settings: Any) -> None:
        self.settings: Any = settings
        self.accepts = "append" if settings.mode == "insert" else "upsert"
        self._connection: Any = None
        self._table: Any = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None, "_table": None, "_lock": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    # ------------------------------------------------------------------------------------- what a server has of its own

    @property
    @abstractmethod
    def place(self) -> str:
        """The table's name for messages."""

    @property
    @abstractmethod
    def quoted_table(self) -> str:
        """The table's name, quoted."""

    @property
    @abstractmethod
    def offsets(self) -> OffsetsTable:
        """The positions of this writer, whose name is ``positions_name``."""

    @property
    def positions_name(self) -> str:
        """The name under which this writer's positions are stored: that of the job's sink, or the table's without a job."""
        return self.writer_name or f"table.{self.settings.table}"

    @abstractmethod
    def quoted(self, name: str, *, option: str | None = None) -> str:
        """Return a name quoted. Raises OptionError, with the option, for a name that the server cannot have."""

    @abstractmethod
    def translating(self) -> AbstractContextManager[None]:
        """Turn the driver's errors into those of headrace: RetriableError, JobError, and DataError for rows."""

    @abstractmethod
    def connect(self) -> Any:
        """Return a new connection that begins transactions by itself. Raises RetriableError or JobError."""

    @abstractmethod
    def describe(self, connection: Any) -> Table[Any] | None:
        """Return the table; None when it does not exist."""

    @abstractmethod
    def no_such_table(self, connection: Any, hint: str) -> JobError:
        """Return the error for a table that does not exist."""

    @abstractmethod
    def create(self, connection: Any, schema: Schema) -> None:
        """Create the table, unless another instance creates it first. Positions of one that had its name are forgotten before."""

    def create_statement(self, schema: Schema, declared: Callable[[pl.DataType, bool], str]) -> str:
        """Return the statement that creates the table. ``declared`` gives the type of a column, and whether it may be NULL.

        ``declared`` is called with the type of the stream's column, and whether the column is a part of the key.
        """
        key = self.settings.key or []
        parts = [f"{self.quoted(self.target(name))} {declared(kind, name in key)}" for name, kind in schema.items()]
        if key:
            parts.append(f"PRIMARY KEY ({', '.join(self.quoted(self.target(name)) for name in key)})")
        return f"CREATE TABLE {self.quoted_table} ({', '.join(parts)})"

    @abstractmethod
    def check_kind(self, table: Any, targets: Sequence[str] | None) -> None:
        """Raise JobError for a table into which rows and positions cannot be written together, or that lacks a key for ``mode``.

        ``targets``: the columns that are written; None when they are known only row by row.
        """

    @abstractmethod
    def misfit(self, kind: pl.DataType, column: Any) -> str | None:
        """Return why values of a type cannot go into a column of the table, or None when they can."""

    @abstractmethod
    def check_rights(self, connection: Any, table: Any, names: Sequence[str], *, known: bool) -> None:
        """Run the statements without rows: they need the same rights, and the server checks the columns too.

        ``known``: whether all columns are known, not some of the table's.
        """

    def begin_session(self, connection: Any) -> None:
        """Prepare a connection on which rows will be written."""
        return

    @abstractmethod
    def prepared(self, rows: pl.DataFrame, deleted: pl.DataFrame | None, table: Any) -> Any:
        """Return what ``write`` takes. Slow work is done here, before the transaction. Either frame may have no rows.

        ``deleted``: keys of rows that are removed before ``rows`` are written; None for a stream whose rows are only added.
        """

    @abstractmethod
    def write(self, connection: Any, cursor: Any, prepared: Any) -> None:
        """Write rows in the present transaction."""

    def key_for_columns(self, target: str) -> str:
        """Return the form of a column's name that must be unique in the table."""
        return target

    def key_is_missing(self, table: Any) -> bool:
        """Return whether the table lacks a unique key of just the columns of the changelog's key."""
        key = set(self.change_key())
        return not any(set(columns) == key for columns in table.unique_keys.values())

    # ---------------------------------------------------------------------------------------------- before the start

    def check(self, schema: Schema | None) -> None:
        """Check names and options against the stream's columns. Raises JobError."""
        settings = self.settings
        for option in self.names:
            self.quoted(getattr(settings, option), option=option)
        for source, target in (settings.columns or {}).items():
            self.quoted(target, option="columns")
            if schema is not None and source not in schema:
                raise self._unknown(source, schema, "columns")
        if schema is None:
            if settings.create_table:
                raise JobError(
                    "a table cannot be created for columns that are not known when the job is built", plugin=self.plugin,
                    option="create_table", hint="give the map() before it an option schema={...}",
                )  # fmt: skip
            return
        targets: dict[str, str] = {}
        for name in schema:
            target = self.target(name)
            self.quoted(target, option="columns")
            other = targets.setdefault(self.key_for_columns(target), name)
            if other != name:
                raise JobError(
                    f"columns {other!r} and {name!r} of the stream both go to column {target!r}", plugin=self.plugin,
                    option="columns", hint="leave one out with drop(), or map it to another column",
                )  # fmt: skip
        for name in settings.key or ():
            if name not in schema:
                raise self._unknown(name, schema, "key")

    def _unknown(self, name: str, schema: Schema, option: str) -> JobError:
        hint = did_you_mean(name, schema, known="columns of the stream")
        return JobError(f"unknown column {name!r}", plugin=self.plugin, option=option, hint=hint)

    def prepare(self, schema: Schema | None) -> None:
        """Create missing tables; check columns, keys and the user's rights. Raises JobError."""
        connection = self.connect()
        try:
            table = self.describe(connection)
            if table is None and (schema is None or not self.settings.create_table):
                raise self.no_such_table(connection, "; create_table=True creates it")
            self.offsets.prepare(connection)
            if table is None:
                assert schema is not None  # checked above
                self.create(connection, schema)
                table = self._found(connection)
            self._check_table(table, schema)
            if self.changes is not None and self.key_is_missing(table):
                raise self._no_key(table)
            names = list(table.columns)[:1] if schema is None else [self.target(name) for name in schema]
            self.check_rights(connection, table, names, known=schema is not None)
        finally:
            connection.close()

    def _check_table(self, table: Table[Any], schema: Schema | None) -> None:
        targets = None if schema is None else {self.target(name): kind for name, kind in schema.items()}
        self.check_kind(table, None if targets is None else list(targets))
        if targets is None:
            return
        for name, kind in targets.items():
            if problem := self._problem(name, kind, table):
                raise JobError(f"{self.where}: {problem[0]}", plugin=self.plugin, option="columns", hint=problem[1])
        for name, column in table.columns.items():
            if name not in targets and not column.nullable and not column.has_default:
                raise JobError(
                    f"{self.where} needs a value for the column {name!r}, which the stream does not have",
                    plugin=self.plugin,
                    option="columns",
                    hint="add it with with_columns(), map another column to it, or give it a default in the table",
                )

    def _no_key(self, table: Table[Any]) -> JobError:
        """Return the error for a table without a unique key of exactly the key columns of the stream's result.

        With fewer columns, different rows would replace each other; with more columns, a changed row would be added.
        """
        key = ", ".join(self.change_key())
        found = "; ".join(f"{name} ({', '.join(columns)})" for name, columns in table.unique_keys.items())
        return JobError(
            f"the stream is a changelog with the key {key or 'of no column (it has one row)'}, but the table {self.place} has no such "
            f"key, only {found or 'none'}",
            plugin=self.plugin,
            option="table",
            hint=f"give the table a unique key of exactly these columns: ({key})" if key else "write to another sink",
        )

    def adopt(self, output: OutputDefinition) -> InputRead | None:
        """Compare the job with the one whose rows are in the table. Raises JobError when it is another one."""
        connection = self.connect()
        try:
            notes = Notes(self.offsets, connection, self.quoted_table)
            return adopted(notes, output, replaces_rows=self.settings.mode != "insert", refused=self._refused)
        finally:
            connection.close()

    def completed(self, read: InputRead) -> None:
        """Store that all results over an input are in the table. Raises JobError, RetriableError."""
        connection = self.connect()
        try:
            offsets = self.offsets
            note = offsets.note(connection)
            if note is not None:
                offsets.keep_note(connection, replace(note, complete=read))
        finally:
            connection.close()

    def _refused(self, message: str) -> JobError:
        return JobError(
            f"{self.where}: {message}",
            plugin=self.plugin,
            option="table",
            hint="empty the table (TRUNCATE), or write to another one; or, to append to its rows, remove the positions: "
            f"the rows of the writer {self.writer_name!r} in the table {self.settings.offsets_table!r}",
        )

    # ------------------------------------------------------------------------------------------------------ writing

    def open(self) -> None:
        """Connect. Raises RetriableError or JobError."""
        with self._lock:
            self._connected()

    def last_offset(self, queue: Queue) -> Position | None:
        """Return the queue's position in the table of positions. Raises RetriableError or JobError."""
        with self._lock, self._transaction() as connection:
            found = self.offsets.last(connection, queue)
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
                self._check_dynamic(frame, table)
            prepared = self.prepared(frame, deleted, table)
            with self._transaction() as connection, connection.cursor() as cursor:
                self.offsets.advance(cursor, batch)
                self.write(connection, cursor, prepared)
                connection.commit()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()

    def target(self, name: str) -> str:
        """Return the column of the table for a column of the stream."""
        target: str = (self.settings.columns or {}).get(name, name)
        return target

    def change_key(self) -> list[str]:
        """Return the columns of the table that are the changelog's key; none when rows are only added."""
        return [] if self.changes is None else [self.target(name) for name in self.changes.key or ()]

    @property
    def where(self) -> str:
        """Server and table, for messages."""
        return f"{self.server} at {self.settings.host}:{self.settings.port}, table {self.place}"

    def _problem(self, name: str, kind: pl.DataType, table: Table[Any]) -> tuple[str, str] | None:
        """Return the problem of a column, and a hint."""
        if name not in table.columns:
            hint = did_you_mean(name, table.columns, known="columns of the table")
            return f"it has no column {name!r}", hint + "; map names with columns={...}"
        problem = self.misfit(kind, table.columns[name])
        return None if problem is None else (problem, _CAST_HINT)

    def _check_dynamic(self, frame: pl.DataFrame, table: Table[Any]) -> None:
        """Raise DataError when rows of unknown columns do not fit: then these are errors of single rows."""
        for name, kind in frame.schema.items():
            if problem := self._problem(self.target(name), kind, table):
                raise DataError(problem[0], plugin=self.plugin, hint=problem[1])

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Provide a connection; if the block raises, uncommitted changes are rolled back.

        After an error that may have come from the connection, a new one is made at the next call: then the transaction is
        either lost or committed; the position shows which when the writer reads it.
        """
        connection, _ = self._connected()
        try:
            with self.translating():
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

    def _connected(self) -> tuple[Any, Any]:
        if self._connection is None or self._table is None:
            connection = self.connect()
            try:
                table = self._found(connection)
                self.begin_session(connection)
            except BaseException:
                connection.close()
                raise
            self._connection, self._table = connection, table
        return self._connection, self._table

    def _found(self, connection: Any) -> Any:
        """Return the table, which must be there. Raises JobError."""
        table = self.describe(connection)
        if table is None:
            raise self.no_such_table(connection, "")
        return table

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not is_closed(connection):
            connection.close()

    def _roll_back(self, connection: Any) -> None:
        try:
            with self.translating():
                connection.rollback()
        except HeadraceError:  # the connection is gone, and with it the transaction
            self._disconnect()


def is_closed(connection: Any) -> bool:
    """Return whether a driver's connection is closed: drivers have ``closed``, or ``open``."""
    return bool(connection.closed) if hasattr(connection, "closed") else not connection.open
