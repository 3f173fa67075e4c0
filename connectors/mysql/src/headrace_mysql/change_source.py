"""The source of changes of a MySQL or MariaDB table: ``from_mysql_changes``, ``'connector' = 'mysql-cdc'``."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from typing import Any, ClassVar

from headrace.flow.declared_columns import declared_columns
from headrace.flow.messages import Queue, ReadPosition
from headrace.flow.schema import Schema
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import DataError, JobError
from headrace.interfaces.changes import SourceChanges
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import LATEST, Reader, Source, StartAt, StartPosition

from headrace_mysql.binlog.following import LogPlace
from headrace_mysql.binlog.layout import columns_to_json
from headrace_mysql.binlog.positions import ROWS_PER_TRANSACTION
from headrace_mysql.change_reader import Described, MySQLChangesReader, SnapshotPlace, place_of
from headrace_mysql.connection import connect, quoted, translating
from headrace_mysql.log_server import LogServer
from headrace_mysql.settings import MySQLChangesSettings
from headrace_mysql.snapshot import check_key, slots_for
from headrace_mysql.table_options import CHANGES_TABLES
from headrace_mysql.tables import Table, TableColumn, describe, no_such_table
from headrace_mysql.types import column_type

_CASCADES = ("CASCADE", "SET NULL", "SET DEFAULT")


class MySQLChangesSource(Source):
    """Reads the rows of a table and then its changes from the binary log. One queue, named as the table.

    See ``MySQLChangesReader`` for positions, and ``Snapshot`` for how the rows and the log fit together.
    """

    Settings: ClassVar[type[Settings]] = MySQLChangesSettings
    table_options = CHANGES_TABLES
    begins_anew = True

    def __init__(self, settings: MySQLChangesSettings, clock: Clock | None = None) -> None:
        self.settings: MySQLChangesSettings = settings
        self._clock = clock or SystemClock()
        self._table: Described | None = None

    def check(self) -> None:
        """Check names. Raises JobError."""
        for option in ("table", "database"):
            quoted(getattr(self.settings, option), option=option)

    def schema(self) -> Schema:
        """Return the columns as the table has them now. Raises JobError or RetriableError."""
        return Schema(dict(self._described().declared.types))

    def changes(self) -> SourceChanges:
        """Return the key of the table: its primary key, or a unique key of columns that are NOT NULL."""
        described = self._described()
        names = tuple(column.name for column in described.key)
        return SourceChanges(names if names and set(names) <= set(described.wanted) else None)

    def queues(self) -> Collection[Queue]:
        self._described()
        return [Queue(self.settings.table)]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        """Return a reader. Raises JobError for a start by time, DataError for a position that the log does not have."""
        described = self._described()
        if isinstance(start, StartAt):
            raise JobError(
                "the binary log cannot be searched by time, so start cannot be a time", plugin="mysql_changes", option="start",
                hint="start='latest' leaves out the rows that are there; where() on a column leaves out older ones",
            )  # fmt: skip
        if isinstance(start, ReadPosition):
            return self._at(queue, start, described)
        with closing(connect(self.settings, autocommit=True)) as connection:
            place = self._first_place(connection, described, with_snapshot=start is not LATEST)
        return MySQLChangesReader(self.settings, described, queue, self._clock, place)

    def _at(self, queue: Queue, start: ReadPosition, described: Described) -> Reader:
        if not start.hint:
            with closing(connect(self.settings, autocommit=True)) as connection:
                end = LogServer(connection, self.settings).end()
            if start.offset > end.ordinal:
                raise DataError(
                    f"offset {start.offset} is behind the end of the log, {end} (offset {end.ordinal})",
                    plugin="mysql_changes", queue=queue.id, offset=start.offset, hint="start with a new checkpoint",
                )  # fmt: skip
        reader = MySQLChangesReader(self.settings, described, queue, self._clock, place_of(start, queue))
        try:
            reader.seek(start)
            reader.check()
        except BaseException:
            reader.close()
            raise
        return reader

    def _first_place(self, connection: Any, described: Described, *, with_snapshot: bool) -> LogPlace | SnapshotPlace:
        server = LogServer(connection, self.settings)
        while True:
            before = self._look(connection)
            log = server.visible(self._clock) if with_snapshot else server.end()
            after = self._look(connection)
            if columns_to_json(list(before.columns.values())) == columns_to_json(list(after.columns.values())):
                break
        place = LogPlace(log, tuple(after.columns.values()))
        if not with_snapshot:
            return place
        rows = self._estimated_rows(connection)
        if rows is None:
            return place
        if not described.key:
            raise self._refused(
                "has no primary key, and no unique key of columns that are NOT NULL, by which its rows could be read in order", "table",
                "start='latest' reads the changes only; or give the table a primary key",
            )  # fmt: skip
        if not after.transactional:
            raise self._refused(
                f"has the engine {after.engine}, whose rows can be read before they are in the binary log", "table",
                "start='latest' reads the changes only; or ALTER TABLE … ENGINE = InnoDB",
            )  # fmt: skip
        check_key(described.key, self.settings)
        return SnapshotPlace(place, slots_for(rows) * ROWS_PER_TRANSACTION)

    def _estimated_rows(self, connection: Any) -> int | None:
        """Return about how many rows the table has; None if it has none."""
        settings = self.settings
        with translating(settings), connection.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {quoted(settings.table)} LIMIT 1")  # noqa: S608
            if cursor.fetchone() is None:
                return None
            cursor.execute(
                "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
                (settings.database, settings.table),
            )
            found = cursor.fetchone()
        return int(found[0] or 0) if found else 0

    # ------------------------------------------------------------------------------------------------- the table

    def _described(self) -> Described:
        if self._table is None:
            settings = self.settings
            with closing(connect(settings, autocommit=True)) as connection:
                LogServer(connection, settings).check()
                table = self._look(connection)
                self._check_table(connection, table)
            native = {name: column_type(column) for name, column in table.columns.items()}
            declared = declared_columns(
                native, settings.columns, f"{settings.database}.{settings.table}", "mysql_changes"
            )
            wanted = {name: native[name] for name in declared.types}
            self._table = Described(table.columns, wanted, _key_of(table), declared)
        return self._table

    def _look(self, connection: Any) -> Table:
        table = describe(connection, self.settings)
        if table is None:
            raise no_such_table(connection, self.settings)
        return table

    def _check_table(self, connection: Any, table: Table) -> None:
        settings = self.settings
        place = (settings.database, settings.table)
        with translating(settings), connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_type FROM information_schema.tables WHERE table_schema = %s AND table_name = %s", place
            )
            [(kind,)] = cursor.fetchall()
            if kind != "BASE TABLE":
                raise self._refused(
                    f"is a {str(kind).lower()}, whose changes are not in the binary log as rows",
                    "table",
                    "name a table",
                )
            cursor.execute(
                "SELECT constraint_name, referenced_table_name, delete_rule, update_rule FROM"
                " information_schema.referential_constraints WHERE constraint_schema = %s AND table_name = %s",
                place,
            )
            found = cursor.fetchall()
        acting = [row for row in found if row[2] in _CASCADES or row[3] in _CASCADES]
        if acting and not settings.ignore_cascades:
            name, other, on_delete, on_update = acting[0]
            raise self._refused(
                f"has the foreign key {name!r} on {other!r} with ON DELETE {on_delete} ON UPDATE {on_update}: the server does not log the "
                "changes that such a cascade makes to the table's rows",
                "ignore_cascades",
                "set ignore_cascades=True if such cascades never happen; or use RESTRICT and delete the rows by statements",
            )

    def _refused(self, problem: str, option: str, hint: str) -> JobError:
        settings = self.settings
        where = f"MySQL at {settings.host}:{settings.port}, table {settings.database}.{settings.table}"
        return JobError(f"{where} {problem}", plugin="mysql_changes", option=option, hint=hint)


def _key_of(table: Table) -> list[TableColumn]:
    for names in [table.primary_key, *(table.unique_keys[index] for index in sorted(table.unique_keys))]:
        columns = [table.columns[name] for name in names if name in table.columns]
        if names and len(columns) == len(names) and not any(column.nullable for column in columns):
            return columns
    return []
