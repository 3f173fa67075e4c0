"""The MySQL sink: rows and their queue's greatest position in one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.foundation.errors import JobError, RetriableError
from headrace.interfaces.sink import SinkSettings
from headrace_changes.databases.table_sink import TableSink

from headrace_mysql.changes import delete_statements
from headrace_mysql.connection import connect, listed, quoted, translating
from headrace_mysql.literals import checked_escapes, row_texts, statements
from headrace_mysql.positions import Positions
from headrace_mysql.settings import MySQLSinkSettings
from headrace_mysql.table_options import SINK_TABLES
from headrace_mysql.tables import Table, TableColumn, describe, no_such_table
from headrace_mysql.types import EXACT_COLLATIONS, declared_type, misfit

if TYPE_CHECKING:
    import polars as pl
    from headrace.flow.schema import Schema

#: One statement is at most so long, unless the server takes less: longer ones are hardly quicker.
STATEMENT_BYTES_MAX = 1024 * 1024
#: How long the start of one instance waits for another that is creating the table.
_CREATE_WAIT_SECONDS = 60
_COLLATIONS = "SELECT collation_name FROM information_schema.collations WHERE collation_name IN %s"


def _declared(kind: pl.DataType, in_key: bool, collation: str) -> str:
    return declared_type(kind, in_key=in_key, collation=collation) + (" NOT NULL" if in_key else " NULL")


class MySQLSink(TableSink):
    """Writes rows to a table. Guarantee: exactly once, by positions kept in a table of the same database.

    See ``docs/connectors/mysql.md`` for the conditions. May be pickled at any time; a copy makes its own connection.
    """

    Settings: ClassVar[type[SinkSettings]] = MySQLSinkSettings
    table_options = SINK_TABLES
    settings: MySQLSinkSettings
    server, plugin = "MySQL", "mysql"

    def __init__(self, settings: MySQLSinkSettings) -> None:
        super().__init__(settings)
        self._packet_bytes_max = 0

    @property
    def place(self) -> str:
        return f"{self.settings.database}.{self.settings.table}"

    @property
    def quoted_table(self) -> str:
        return quoted(self.settings.table)

    @property
    def offsets(self) -> Positions:
        return Positions(self.settings, self.positions_name)

    def quoted(self, name: str, *, option: str | None = None) -> str:
        return quoted(name, option=option)

    def key_for_columns(self, target: str) -> str:
        # On every server, names of columns must differ in more than case.
        return target.casefold()

    def translating(self) -> AbstractContextManager[None]:
        return translating(self.settings)

    def connect(self) -> Any:
        return connect(self.settings)

    def describe(self, connection: Any) -> Table | None:
        return describe(connection, self.settings)

    def no_such_table(self, connection: Any, hint: str) -> JobError:
        return no_such_table(connection, self.settings, hint=hint)

    def create(self, connection: Any, schema: Schema) -> None:
        with self._named_lock(connection):
            if self.describe(connection) is None:
                # A table of that name may have existed before; with its old positions, new rows would count as replays.
                self.offsets.forget(connection)
                with self.translating(), connection.cursor() as cursor:
                    cursor.execute(_COLLATIONS, (EXACT_COLLATIONS,))
                    exact = cursor.fetchone()
                    collation = exact[0] if exact else "utf8mb4_bin"
                    created = self.create_statement(schema, partial(_declared, collation=collation))
                    cursor.execute(f"{created} ENGINE = InnoDB DEFAULT CHARSET = utf8mb4")

    @contextmanager
    def _named_lock(self, connection: Any) -> Iterator[None]:
        name = "headrace " + hashlib.sha256(self.place.encode()).hexdigest()[:48]
        with self.translating(), connection.cursor() as cursor:
            cursor.execute("SELECT GET_LOCK(%s, %s)", (name, _CREATE_WAIT_SECONDS))
            if cursor.fetchone() != (1,):
                raise RetriableError(f"another instance is creating the table {self.place}", plugin="mysql")
            yield
            cursor.execute("SELECT RELEASE_LOCK(%s)", (name,))

    def check_kind(self, table: Table, targets: Sequence[str] | None) -> None:
        if table.transactional is False:
            raise JobError(
                f"{self.where}: its engine {table.engine} has no transactions",
                plugin="mysql",
                option="table",
                hint="rows and their position must be stored in one transaction: ALTER TABLE … ENGINE = InnoDB",
            )
        if self.settings.mode != "insert" and table.engine is not None and not table.unique_keys:
            raise JobError(
                f"{self.where}: mode {self.settings.mode!r} needs a primary or unique key, and the table has none",
                plugin="mysql",
                option="mode",
                hint="add a key to the table, or use mode='insert'",
            )

    def key_is_missing(self, table: Table) -> bool:
        # The keys behind a view are not known.
        return table.engine is not None and super().key_is_missing(table)

    def misfit(self, kind: pl.DataType, column: TableColumn) -> str | None:
        return misfit(kind, column)

    def check_rights(self, connection: Any, table: Table, names: Sequence[str], *, known: bool) -> None:
        prefix, suffix = self._statement(names)
        values = f"SELECT {', '.join(['NULL'] * len(names))} FROM DUAL WHERE FALSE"  # noqa: S608
        with self.translating(), connection.cursor() as cursor:
            cursor.execute(prefix.removesuffix("VALUES ") + values + suffix)
            if self.changes is not None:
                cursor.execute(f"DELETE FROM {self.quoted_table} WHERE FALSE")  # noqa: S608
            connection.rollback()

    def begin_session(self, connection: Any) -> None:
        with self.translating(), connection.cursor() as cursor:
            cursor.execute("SELECT @@max_allowed_packet")
            (self._packet_bytes_max,) = cursor.fetchone()
            connection.rollback()

    def prepared(self, rows: pl.DataFrame, deleted: pl.DataFrame | None, table: Table) -> Sequence[str | bytes]:
        size = min(STATEMENT_BYTES_MAX, self._packet_bytes_max)
        made: list[str | bytes] = []
        if deleted is not None and deleted.height:
            columns = {name: table.columns[self.target(name)] for name in deleted.columns}
            made += delete_statements(
                self.settings.table, self.target, deleted, columns, size, self._packet_bytes_max
            )  # fmt: skip
        if rows.height:
            texts = row_texts(rows, {name: table.columns[self.target(name)] for name in rows.columns})
            prefix, suffix = self._statement([self.target(name) for name in rows.columns])
            made += statements(prefix, texts, suffix, size, self._packet_bytes_max)
        return made

    def write(self, connection: Any, cursor: Any, prepared: Sequence[str | bytes]) -> None:
        checked_escapes(connection.server_status)
        for statement in prepared:
            cursor.execute(statement)

    def _statement(self, names: Sequence[str]) -> tuple[str, str]:
        """Return the parts of the statement before and after the rows."""
        verb = "REPLACE" if self.settings.mode == "replace" else "INSERT"
        prefix = f"{verb} INTO {self.quoted_table} ({listed(names)}) VALUES "
        if self.settings.mode != "upsert":
            return prefix, ""
        # VALUES() is the form that MySQL 8 and MariaDB both understand.
        changes = ", ".join(f"{quoted(name)} = VALUES({quoted(name)})" for name in names)
        return prefix, f" ON DUPLICATE KEY UPDATE {changes}"
