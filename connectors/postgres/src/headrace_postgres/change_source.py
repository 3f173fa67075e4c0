"""The source of changes of a PostgreSQL table: ``from_postgres_changes``, ``'connector' = 'postgres-cdc'``."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar

import polars as pl
from headrace.flow.declared_columns import declared_columns
from headrace.flow.messages import Queue, ReadPosition
from headrace.flow.schema import Schema
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import DataError, JobError
from headrace.interfaces.changes import SourceChanges
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import LATEST, Reader, Source, StartAt, StartPosition

from headrace_postgres.change_reader import (
    Described,
    PostgresChangesReader,
    SnapshotPlace,
    names_of,
    place_of,
)
from headrace_postgres.chunks import Chunks
from headrace_postgres.connection import NAME_BYTES_MAX, connect, quoted, quoted_table, translating
from headrace_postgres.connection import place_of as table_name
from headrace_postgres.log.places import LogPlace
from headrace_postgres.log_server import LogServer
from headrace_postgres.settings import PostgresChangesSettings
from headrace_postgres.table_options import CHANGES_TABLES
from headrace_postgres.tables import KINDS, PARTITIONED, TABLE, Table, TableColumn, describe, no_such_table
from headrace_postgres.types import column_type

#: More than a snapshot has chunks.
_ALL = 2**31 - 1
_IDENTITIES = {"d": "DEFAULT", "f": "FULL", "i": "USING INDEX", "n": "NOTHING"}


class PostgresChangesSource(Source):
    """Reads the rows of a table and then its changes from a replication slot. One queue, named as the table.

    See ``PostgresChangesReader`` for positions, and ``headrace_postgres.chunks`` for how the rows and the log fit together.
    """

    Settings: ClassVar[type[Settings]] = PostgresChangesSettings
    table_options = CHANGES_TABLES
    begins_anew = True

    def __init__(self, settings: PostgresChangesSettings, clock: Clock | None = None) -> None:
        self.settings: PostgresChangesSettings = settings
        self._clock = clock or SystemClock()
        self._table: Described | None = None
        #: The reader that this process has opened last.
        self._reader: PostgresChangesReader | None = None
        #: Rows of chunks before this number were removed.
        self._chunks_before = 0
        self._chunks_are_gone = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    def check(self) -> None:
        """Check names. Raises JobError."""
        for option in ("table", "schema", "database", "chunks_table"):
            quoted(getattr(self.settings, option), option=option)

    def schema(self) -> Schema:
        """Return the columns as the table has them now. Raises JobError or RetriableError."""
        return Schema(dict(self._described().declared.types))

    def changes(self) -> SourceChanges:
        """Return the key of the table, and whether the log has old rows: with REPLICA IDENTITY FULL."""
        described = self._described()
        names = names_of(described.key)
        key = names if names and set(names) <= set(described.wanted) else None
        return SourceChanges(key, before_images=described.full)

    def queues(self) -> Collection[Queue]:
        self._described()
        return [Queue(self.settings.table)]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        """Return a reader. Raises JobError for a start by time, DataError for a position that the slot does not have."""
        described = self._named(self._described())
        # What was removed for an earlier reader does not apply to the chunks of this one.
        self._chunks_before, self._chunks_are_gone = 0, False
        if isinstance(start, StartAt):
            raise JobError(
                "the log cannot be searched by time, so start cannot be a time", plugin="postgres_changes", option="start",
                hint="start='latest' leaves out the rows that are there; where() on a column leaves out older ones",
            )  # fmt: skip
        if isinstance(start, ReadPosition) and not start.hint:
            raise DataError(
                f"offset {start.offset} has no place in the log: it may be after the end of the log or before its beginning",
                plugin="postgres_changes", queue=queue.id, offset=start.offset, hint="start with a new checkpoint",
            )  # fmt: skip
        place = place_of(start, queue) if isinstance(start, ReadPosition) else None
        if place is None:
            with closing(connect(self.settings, autocommit=True)) as connection:
                place = self._first_place(connection, described, with_snapshot=start is not LATEST)
        reader = PostgresChangesReader(self.settings, described, queue, self._clock, place)
        if isinstance(start, ReadPosition):
            try:
                reader.seek(start)
                reader.check()
            except BaseException:
                reader.close()
                raise
        self._reader = reader
        return reader

    def stored(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """Let the server keep its log, and the chunks, only from the positions on. Raises RetriableError."""
        for queue, position in positions.items():
            place = place_of(position, queue)
            if isinstance(place, SnapshotPlace):
                if place.chunk > self._chunks_before:
                    self._forget_chunks(place.run, place.chunk)
                    self._chunks_before = place.chunk
                continue
            if self._reader is None or not self._reader.confirm(place.lsn):
                described = self._named(self._described())
                with closing(connect(self.settings, autocommit=True)) as connection:
                    LogServer(connection, self.settings).advance(described.slot, place.lsn)
            if not self._chunks_are_gone:
                behind = place.lsn >= place.until
                if behind or self._chunks_before < _ALL:
                    self._forget_chunks(place.run, None if behind else _ALL)
                self._chunks_before, self._chunks_are_gone = _ALL, behind

    def _forget_chunks(self, run: str, before: int | None) -> None:
        described = self._named(self._described())
        with closing(Chunks(self.settings, described.slot, run, described.wanted, described.key)) as chunks:
            chunks.forget(before=before)

    # ------------------------------------------------------------------------------------------------- where to begin

    def _first_place(self, connection: Any, described: Described, *, with_snapshot: bool) -> LogPlace | SnapshotPlace:
        server = LogServer(connection, self.settings)
        server.make_publication(described.publication)
        server.check_publication(described.publication, list(described.wanted))
        at = server.make_slot(described.slot, self._clock)
        # An old slot may have much log, perhaps with the change that stopped an earlier run. None of it is needed.
        end = max(at, server.end())
        number = described.table.number
        entry = server.entry(described.publication, number)
        begin = LogPlace(end, end, table=number, server=server.identity(), entry=entry)
        if not with_snapshot:
            self._chunks_are_gone = True
            return begin
        # From here on queries see all transactions before the end.
        server.wait_until_visible(self._clock)
        if self._is_empty(connection):
            self._chunks_are_gone = True
            return begin
        if not described.key:
            raise self._refused(
                "has no primary key, and no unique key of columns that are NOT NULL, by which its rows could be read in order", "table",
                "start='latest' reads the changes only; or give the table a primary key",
            )  # fmt: skip
        run = secrets.token_hex(8)
        with closing(Chunks(self.settings, described.slot, run, described.wanted, described.key)) as chunks:
            chunks.prepare()
        return SnapshotPlace(begin, run)

    def _is_empty(self, connection: Any) -> bool:
        with translating(self.settings), connection.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {quoted_table(self.settings)} LIMIT 1")  # noqa: S608
            return cursor.fetchone() is None

    def _named(self, described: Described) -> Described:
        """Return the same with the names of slot and publication, which depend on the job."""
        settings = self.settings
        slot = settings.slot or _slot_name(self.reader_name or "job", settings)
        return replace(described, slot=slot, publication=settings.publication or publication_name(settings))

    # ------------------------------------------------------------------------------------------------- the table

    def _described(self) -> Described:
        if self._table is None:
            settings = self.settings
            with closing(connect(settings, autocommit=True)) as connection:
                table = describe(connection, settings)
                if table is None:
                    raise no_such_table(connection, settings)
                LogServer(connection, settings).check()
                self._check_table(table)
                self._check_parts(connection, table)
                known = {name: column for name, column in table.columns.items() if not column.computed}
                natives = {name: self._native(column) for name, column in known.items()}
                declared = declared_columns(
                    natives, settings.columns, f"{settings.database}.{settings.schema}.{settings.table}", "postgres_changes"
                )  # fmt: skip
                wanted = {name: known[name] for name in declared.types}
                full = table.replica_identity == "f"
                if not full:
                    self._check_large_values(connection, table, wanted)
            types = {name: natives[name] for name in wanted}
            self._table = Described(table, wanted, types, _key_of(table), declared, full, "", "")
        return self._table

    def _native(self, column: TableColumn) -> pl.DataType:
        """Return a column's type; a numeric without a scale takes the one that is declared for it."""
        declared = self.settings.columns
        kind = column_type(column)
        if column.kind == "numeric" and isinstance(kind, pl.String) and isinstance(declared, dict):
            wanted = dict(Schema.of({column.name: declared[column.name]})) if column.name in declared else {}
            found = wanted.get(column.name)
            return found if isinstance(found, pl.Decimal) else kind
        return kind

    def _check_table(self, table: Table) -> None:
        if table.kind not in (TABLE, PARTITIONED):
            kind = KINDS.get(table.kind, "thing of another kind")
            raise self._refused(f"is a {kind}, whose changes are not in the log", "table", "name a table")
        if not table.durable:
            raise self._refused("is UNLOGGED, so its changes are not in the log", "table", "ALTER TABLE … SET LOGGED")
        if table.replica_identity == "n" or (table.replica_identity == "d" and not table.primary_key):
            raise self._refused(
                f"has REPLICA IDENTITY {_IDENTITIES[table.replica_identity]}{'' if table.primary_key else ' and no primary key'}, so the "
                "log does not identify the changed rows",
                "table",
                "ALTER TABLE … REPLICA IDENTITY FULL, or give the table a primary key",
            )

    def _check_parts(self, connection: Any, table: Table) -> None:
        """Refuse a table whose rows lie in other tables that the log shows in another way."""
        with translating(self.settings), connection.cursor() as cursor:
            if table.kind == TABLE:
                cursor.execute(
                    "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s LIMIT 1", (table.number,)
                )
                for (name,) in cursor.fetchall():
                    raise self._refused(
                        f"has rows in tables that inherit from it, such as {name}, whose changes are in the log under their own names",
                        "table", "read each of these tables; or make it a partitioned table",
                    )  # fmt: skip
            elif table.replica_identity == "f":
                cursor.execute(
                    "SELECT c.oid::regclass::text FROM pg_partition_tree(%s::oid::regclass) p JOIN pg_class c ON c.oid = p.relid"
                    " WHERE p.isleaf AND c.relreplident <> 'f' ORDER BY 1",
                    (table.number,),
                )
                if names := [name for (name,) in cursor.fetchall()]:
                    raise self._refused(
                        f"has REPLICA IDENTITY FULL, but {len(names)} of its partitions do not, such as {names[0]}", "table",
                        f"partitions do not inherit it: ALTER TABLE {names[0]} REPLICA IDENTITY FULL",
                    )  # fmt: skip

    def _check_large_values(self, connection: Any, table: Table, wanted: Mapping[str, TableColumn]) -> None:
        """Refuse a table with values that are stored apart, which the log has only when they change."""
        with translating(self.settings), connection.cursor() as cursor:
            cursor.execute(
                "SELECT a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.oid = %s AND a.attnum > 0"
                " AND NOT a.attisdropped AND a.attstorage <> 'p' AND c.reltoastrelid <> 0 AND pg_relation_size(c.reltoastrelid) > 0",
                (table.number,),
            )
            large = [name for (name,) in cursor.fetchall() if name in wanted and name not in table.primary_key]
        if large:
            raise self._refused(
                f"can have values that are so large that they are stored separately (TOAST), and REPLICA IDENTITY "
                f"{_IDENTITIES[table.replica_identity]}: the log does not contain them when other columns change. Possible columns: "
                f"{', '.join(large)}",
                "columns",
                f"ALTER TABLE {quoted_table(self.settings)} REPLICA IDENTITY FULL, or leave the large columns out with columns=",
            )

    def _refused(self, problem: str, option: str, hint: str) -> JobError:
        settings = self.settings
        where = f"PostgreSQL at {settings.host}:{settings.port}, table {table_name(settings)}"
        return JobError(f"{where} {problem}", plugin="postgres_changes", option=option, hint=hint)


def _key_of(table: Table) -> tuple[TableColumn, ...]:
    """Return the columns by which a row is known in chunks and in the log."""
    candidates = [table.primary_key, *table.unique_keys.values()]
    if table.replica_identity == "i":
        candidates = [table.identity_key]
    elif table.replica_identity == "d":
        candidates = [table.primary_key]
    for names in candidates:
        columns = tuple(table.columns[name] for name in names)
        if columns and not any(column.nullable for column in columns):
            return columns
    return ()


def publication_name(settings: PostgresChangesSettings) -> str:
    """Return the name of the publication that is made for a table: one for each table of the database."""
    plain = f"headrace_{settings.table}"
    if settings.schema == "public" and len(plain.encode()) <= NAME_BYTES_MAX:
        return plain
    digest = hashlib.sha256(f"{settings.schema}\0{settings.table}".encode()).hexdigest()[:10]
    begin = f"headrace_{settings.schema}_{settings.table}".encode()[: NAME_BYTES_MAX - 11].decode(errors="ignore")
    return f"{begin}_{digest}"


def _slot_name(job: str, settings: PostgresChangesSettings) -> str:
    """Return a slot's name for a job and a table: readable, and different for different ones."""
    # Slots of all databases of a server have different names.
    whole = f"{job}\0{settings.database}\0{settings.schema}\0{settings.table}"
    digest = hashlib.sha256(whole.encode()).hexdigest()[:10]
    plain = re.sub(r"[^a-z0-9]+", "_", f"{job}_{settings.table}".lower()).strip("_")
    return f"headrace_{plain[:40]}_{digest}"
