"""The PostgreSQL sink: rows and their queue's greatest position in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.foundation.errors import JobError
from headrace.interfaces.sink import SinkSettings
from headrace_changes.databases.table_sink import TableSink

from headrace_postgres.connection import connect, listed, place_of, quoted, quoted_table, translating
from headrace_postgres.positions import Positions, lock_number
from headrace_postgres.settings import PostgresSinkSettings
from headrace_postgres.table_options import SINK_TABLES
from headrace_postgres.tables import KINDS, PARTITIONED, TABLE, VIEW, Table, TableColumn, describe, no_such_table
from headrace_postgres.types import declared_type, misfit
from headrace_postgres.writing import TableWriter, upsert_key

if TYPE_CHECKING:
    import polars as pl
    from headrace.flow.schema import Schema

#: If the server lost commits that it has confirmed, the checkpoint would be wrong.
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"


def _declared(kind: pl.DataType, in_key: bool) -> str:
    return f"{declared_type(kind)}{' NOT NULL' if in_key else ''}"


class PostgresSink(TableSink):
    """Writes rows to a table. Guarantee: exactly once, by positions kept in a table of the same database.

    See ``docs/connectors/postgres.md`` for the conditions. May be pickled at any time; a copy makes its own connection.
    """

    Settings: ClassVar[type[SinkSettings]] = PostgresSinkSettings
    table_options = SINK_TABLES
    settings: PostgresSinkSettings
    server, plugin = "PostgreSQL", "postgres"
    names = ("table", "offsets_table", "schema", "database")

    @property
    def place(self) -> str:
        return place_of(self.settings)

    @property
    def quoted_table(self) -> str:
        return quoted_table(self.settings)

    @property
    def offsets(self) -> Positions:
        return Positions(self.settings, self.positions_name)

    def quoted(self, name: str, *, option: str | None = None) -> str:
        return quoted(name, option=option)

    def translating(self) -> AbstractContextManager[None]:
        return translating(self.settings)

    def connect(self) -> Any:
        return connect(self.settings)

    def describe(self, connection: Any) -> Table | None:
        return describe(connection, self.settings)

    def no_such_table(self, connection: Any, hint: str) -> JobError:
        return no_such_table(connection, self.settings, hint=hint)

    def create(self, connection: Any, schema: Schema) -> None:
        with self.translating(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(self.quoted_table),))
            cursor.execute("SELECT to_regclass(%s) IS NULL", (self.quoted_table,))
            if cursor.fetchone() == (True,):
                # A table of that name may have existed before; with its old positions, new rows would count as replays.
                self.offsets.forget(connection, commit=False)
                cursor.execute(self.create_statement(schema, _declared))
            connection.commit()

    def check_kind(self, table: Table, targets: Sequence[str] | None) -> None:
        if table.kind not in (TABLE, PARTITIONED, VIEW):
            raise JobError(
                f"{self.where}: it is a {KINDS.get(table.kind, 'thing of another kind')}, so rows and their position cannot be stored in "
                "one transaction",
                plugin="postgres",
                option="table",
                hint="name a table",
            )
        if not table.durable:
            raise JobError(
                f"{self.where}: it is UNLOGGED, so after a crash the server empties it, but keeps the positions",
                plugin="postgres",
                option="table",
                hint="rows would be lost; ALTER TABLE … SET LOGGED",
            )
        if self.settings.mode != "insert" and self.changes is None:
            upsert_key(self.settings, table, targets)

    def misfit(self, kind: pl.DataType, column: TableColumn) -> str | None:
        return misfit(kind, column)

    def check_rights(self, connection: Any, table: Table, names: Sequence[str], *, known: bool) -> None:
        writer = self._writer(table, names if known else None)
        nothing = f"(SELECT {listed(names)} FROM {self.quoted_table} WHERE FALSE) AS nothing"  # noqa: S608
        with self.translating(), connection.cursor() as cursor:
            if writer.key:
                if known:
                    cursor.execute(writer.upsert(names, nothing))
                cursor.execute("CREATE TEMPORARY TABLE headrace_rights ON COMMIT DROP AS SELECT 1 WITH NO DATA")
            else:
                nulls = ", ".join(["NULL"] * len(names))
                cursor.execute(f"INSERT INTO {self.quoted_table} ({listed(names)}) SELECT {nulls} WHERE FALSE")
            if self.changes is not None:
                cursor.execute(f"DELETE FROM {self.quoted_table} WHERE FALSE")  # noqa: S608
            connection.rollback()

    def begin_session(self, connection: Any) -> None:
        with self.translating(), connection.cursor() as cursor:
            cursor.execute(_DURABLE)
            connection.commit()

    def prepared(self, rows: pl.DataFrame, deleted: pl.DataFrame | None, table: Table) -> Any:
        writer = self._writer(table, [self.target(name) for name in rows.columns])
        return (
            writer,
            writer.prepared(deleted) if deleted is not None and deleted.height else None,
            writer.prepared(rows) if rows.height else None,
        )

    def write(self, connection: Any, cursor: Any, prepared: Any) -> None:
        writer, deleted, rows = prepared
        if deleted is not None:
            writer.delete(cursor, *deleted)
        if rows is not None:
            writer.write(cursor, *rows)

    def _writer(self, table: Table, names: Sequence[str] | None) -> TableWriter:
        key = tuple(self.change_key())
        if self.changes is None and self.settings.mode != "insert":
            key = upsert_key(self.settings, table, names)
        return TableWriter(self.settings, table, self.target, key)
