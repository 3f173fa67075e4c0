"""The SQLite sink: rows and their queue's greatest position in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.foundation.errors import DataError, JobError, did_you_mean
from headrace.interfaces.sink import SinkSettings
from headrace_changes.databases.table_sink import TableSink

from headrace_sqlite.connection import Connection, listed, quoted, translating
from headrace_sqlite.positions import Positions
from headrace_sqlite.settings import SINK_TABLES, SQLiteSinkSettings
from headrace_sqlite.tables import Table, TableColumn, describe, table_names
from headrace_sqlite.types import declared_type, misfit, stored

if TYPE_CHECKING:
    import polars as pl
    from headrace.flow.schema import Schema


def _declared(kind: pl.DataType, in_key: bool) -> str:
    return f"{declared_type(kind)}{' NOT NULL' if in_key else ''}"


class SQLiteSink(TableSink):
    """Writes rows to a table of a database file. Guarantee: exactly once, by positions kept in a table of the same
    file.

    See ``docs/connectors/sqlite.md`` for the conditions. May be pickled at any time; a copy makes its own connection.
    """

    Settings: ClassVar[type[SinkSettings]] = SQLiteSinkSettings
    table_options = SINK_TABLES
    settings: SQLiteSinkSettings
    server, plugin = "SQLite", "sqlite"
    names = ("table", "offsets_table")

    @property
    def place(self) -> str:
        return self.settings.table

    @property
    def where(self) -> str:
        """File and table, for messages."""
        return f"SQLite file {self.settings.database}, table {self.settings.table}"

    @property
    def quoted_table(self) -> str:
        return quoted(self.settings.table)

    @property
    def offsets(self) -> Positions:
        return Positions(self.settings, self.positions_name)

    def quoted(self, name: str, *, option: str | None = None) -> str:
        return quoted(name, option=option)

    def key_for_columns(self, target: str) -> str:
        return target.lower()

    def translating(self) -> AbstractContextManager[None]:
        return translating(self.settings)

    def connect(self) -> Any:
        with self.translating():
            return Connection(self.settings)

    def describe(self, connection: Any) -> Table | None:
        with self.translating(), connection.cursor() as cursor:
            return describe(cursor, self.settings.table)

    def no_such_table(self, connection: Any, hint: str) -> JobError:
        with self.translating(), connection.cursor() as cursor:
            names = table_names(cursor)
        return JobError(
            f"SQLite file {self.settings.database}: there is no table {self.settings.table!r}", plugin="sqlite", option="table",
            hint=did_you_mean(self.settings.table, names, known="tables") + hint,
        )  # fmt: skip

    def create(self, connection: Any, schema: Schema) -> None:
        with self.translating(), connection.cursor() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            if describe(cursor, self.settings.table) is None:
                # A table of that name may have existed before. With its old positions, new rows would be dropped as
                # repeated ones.
                self.offsets.forget(connection, commit=False)
                cursor.execute(self.create_statement(schema, _declared))
            connection.commit()

    def check_kind(self, table: Table, targets: Sequence[str] | None) -> None:
        if table.kind != "table":
            raise JobError(
                f"{self.where}: it is a {table.kind}, into which rows cannot be inserted", plugin="sqlite", option="table",
                hint="name a table",
            )  # fmt: skip
        if self.settings.mode != "insert" and self.changes is None:
            self._upsert_key(table, targets)

    def misfit(self, kind: pl.DataType, column: TableColumn) -> str | None:
        return misfit(kind, column)

    def check_rights(self, connection: Any, table: Table, names: Sequence[str], *, known: bool) -> None:
        nulls = ", ".join(["NULL"] * len(names))
        with self.translating(), connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {self.quoted_table} ({listed(names)}) SELECT {nulls} WHERE FALSE")
            connection.rollback()

    def prepared(self, rows: pl.DataFrame, deleted: pl.DataFrame | None, table: Table) -> Any:
        self._connection.expect_file()
        for name in rows.columns:
            if self.target(name) == table.numbered and rows[name].null_count():
                raise DataError(
                    f"{self.where}: NULL in the column {table.numbered!r}, for which SQLite would generate a number",
                    plugin="sqlite",
                )
        keys = [] if deleted is None or not deleted.height else [self.target(name) for name in deleted.columns]
        return (
            keys,
            stored(deleted).rows() if deleted is not None and keys else [],
            self._writing(table, [self.target(name) for name in rows.columns]),
            stored(rows).rows() if rows.height else [],
        )

    def write(self, connection: Connection, cursor: Any, prepared: Any) -> None:
        keys, deleted, writing, rows = prepared
        connection.expect_file()
        if deleted:
            # IS compares NULL as a value, and uses an index as = does.
            same = " AND ".join(f"{quoted(name)} IS ?" for name in keys)
            cursor.execute_for_each(f"DELETE FROM {self.quoted_table} WHERE {same}", deleted)  # noqa: S608
        if rows:
            cursor.execute_for_each(writing, rows)

    def _writing(self, table: Table, names: Sequence[str]) -> str:
        """Return the statement that stores a row, by key if the sink has one."""
        places = ", ".join(["?"] * len(names))
        insert = f"INSERT INTO {self.quoted_table} ({listed(names)}) VALUES ({places})"  # noqa: S608
        key = tuple(self.change_key())
        if self.changes is None and self.settings.mode != "insert":
            key = self._upsert_key(table, names)
        if not key:
            return insert
        changed = [name for name in names if name not in key]
        action = "NOTHING"
        if changed:
            action = "UPDATE SET " + ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in changed)
        return f"{insert} ON CONFLICT ({listed(key)}) DO {action}"

    def _upsert_key(self, table: Table, names: Sequence[str] | None) -> tuple[str, ...]:
        """Return the columns by which rows replace others. Raises JobError when the table has no such key.

        ``names``: the columns that are written; None when they are known only row by row.
        """
        wanted = {self.target(name) for name in self.settings.key or ()}
        for columns in table.unique_keys.values():
            if set(columns) == wanted or (not wanted and (names is None or set(columns) <= set(names))):
                return columns
        known = "; ".join(f"({', '.join(columns)})" for columns in table.unique_keys.values())
        lacking = "has none" if not known else f"has only {known}"
        raise JobError(
            f"{self.where}: mode 'upsert' needs a primary or unique key{' of just ' + ', '.join(sorted(wanted)) if wanted else ''}, "
            f"and the table {lacking}",
            plugin="sqlite",
            option="key" if wanted else "mode",
            hint="add a key to the table, or use mode='insert'",
        )
