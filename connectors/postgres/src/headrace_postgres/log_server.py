"""Queries about the server's log: whether it can be read, where it ends, and the slot and publication of a job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobError, RetriableError

from headrace_postgres.connection import quoted, quoted_table, translated, translating
from headrace_postgres.log.places import LogPlace, lsn_of, lsn_text
from headrace_postgres.log.stream import slot_is_gone
from headrace_postgres.relations import ANOTHER, another_table
from headrace_postgres.settings import PostgresChangesSettings

logger = logging.getLogger(__name__)

_PERMISSION, _EXISTS, _IN_USE = "42501", ("42710", "23505"), "55006"
_WAIT_SECONDS = 0.05


class LogServer:
    """Asks a server about its log, on one connection that the caller closes. It is in autocommit mode."""

    def __init__(self, connection: Any, settings: PostgresChangesSettings) -> None:
        self._connection = connection
        self._settings = settings

    def check(self) -> None:
        """Raise JobError unless the log contains what the source needs."""
        settings = self._settings
        where = f"PostgreSQL at {settings.host}:{settings.port}"
        [(level,)] = self._query("SHOW wal_level")
        if level != "logical":
            raise JobError(
                f"{where} has wal_level={level}, so the log does not contain what this source needs", plugin="postgres_changes",
                option="host", hint="ALTER SYSTEM SET wal_level = logical, and restart the server",
            )  # fmt: skip
        [(may,)] = self._query("SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user")
        [(member,)] = self._query(
            "SELECT coalesce(bool_or(pg_has_role(oid, 'member')), false) FROM pg_roles WHERE rolname = 'rds_replication'"
        )
        if not may and not member:
            raise JobError(
                f"{where}: user {settings.user!r} may not read the log", plugin="postgres_changes", option="user",
                hint=f"ALTER ROLE {settings.user} REPLICATION",
            )  # fmt: skip

    def end(self) -> int:
        """Return where the log ends now. What is visible to a query that was made before is before it."""
        [(text,)] = self._query("SELECT pg_current_wal_flush_lsn()::text")
        return lsn_of(text)

    def identity(self) -> str:
        """Return a text that identifies this server, also compared with one that was restored from a dump; empty if the
        user may not read it.
        """
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT system_identifier::text FROM pg_control_system()")
                return str(cursor.fetchone()[0])
        except psycopg.errors.InsufficientPrivilege:
            return ""
        except psycopg.Error as error:
            raise translated(error, self._settings) from error

    def columns_now(self, table: int) -> Mapping[int, str]:
        """Return the names of a table's columns by their numbers."""
        return dict(
            self._query(
                "SELECT attnum::int4, attname::text FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped",
                (table,),
            )
        )

    def make_publication(self, name: str) -> None:
        """Make the publication unless it is there. Raises JobError.

        The table is added to a publication with the default name, because a table that is dropped and created again leaves it.
        """
        settings = self._settings
        statement = f"CREATE PUBLICATION {quoted(name)} FOR TABLE {quoted_table(settings)} WITH (publish_via_partition_root = true)"
        if self._query("SELECT 1 FROM pg_publication WHERE pubname = %s", (name,)):
            if settings.publication is not None or self._published(name):
                return
            statement = f"ALTER PUBLICATION {quoted(name)} ADD TABLE {quoted_table(settings)}"
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
        except psycopg.Error as error:
            if error.sqlstate == _PERMISSION:
                raise JobError(
                    f"PostgreSQL at {settings.host}:{settings.port}: user {settings.user!r} may not create the publication {name!r}, or "
                    "may not add the table to it",
                    plugin="postgres_changes",
                    option="publication",
                    hint=f"let the table's owner do it once: {statement}",
                ) from error
            if error.sqlstate not in _EXISTS:
                raise translated(error, settings) from error

    def check_publication(self, name: str, columns: Sequence[str]) -> None:
        """Raise JobError unless the publication has all changes of the table, with these columns."""
        settings = self._settings

        def refused(problem: str, hint: str) -> JobError:
            return JobError(
                f"the publication {name!r} {problem}", plugin="postgres_changes", option="publication", hint=hint
            )

        found = self._query(
            "SELECT pubinsert AND pubupdate AND pubdelete, pubtruncate FROM pg_publication WHERE pubname = %s", (name,)
        )
        if not found:
            raise refused(
                "does not exist any more", "changes since then are not in the log; start with a new checkpoint"
            )
        rows, truncate = found[0]
        if not rows or not (truncate or settings.ignore_truncate):
            raise refused(
                "leaves out inserts, updates, deletes or truncates",
                "name another, or ALTER PUBLICATION … SET (publish = 'insert, update, delete, truncate')",
            )
        there = self._published(name)
        if not there:
            raise refused(
                f"does not have the table {settings.schema}.{settings.table}",
                f"ALTER PUBLICATION {quoted(name)} ADD TABLE {quoted_table(settings)}, and SET (publish_via_partition_root = true) for "
                "partitions; a job that has read it before needs a new checkpoint, as changes since then are not in the log",
            )
        published, condition = there[0]
        if condition is not None:
            raise refused(
                f"has only the rows of the table with {condition}",
                "name another one for whole tables, and use where() in the job",
            )
        if lacking := [each for each in columns if published is not None and each not in published]:
            raise refused(
                f"leaves out the columns {', '.join(lacking)}",
                "name another one for whole tables, or leave them out with columns=",
            )

    def _published(self, name: str) -> list[tuple[Any, ...]]:
        """Return the columns and the condition under which a publication has the table; nothing if it does not have it."""
        settings = self._settings
        # Before version 15 a publication has whole tables.
        parts = "attnames::text[], rowfilter" if self._connection.info.server_version >= 150000 else "NULL, NULL"
        return self._query(
            f"SELECT {parts} FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s",  # noqa: S608
            (name, settings.schema, settings.table),
        )

    def entry(self, publication: str, table: int) -> int:
        """Return the number of a table's entry in a publication; 0 if it is published with all others, or with its schema."""
        found = self._query(
            "SELECT r.oid::int8 FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid"
            " WHERE p.pubname = %s AND r.prrelid = %s",
            (publication, table),
        )
        return int(found[0][0]) if found else 0

    def check_table(self, number: int) -> None:
        """Raise JobError unless the table of that name is the one with this number."""
        settings = self._settings
        found = self._query("SELECT to_regclass(%s)::oid::int8", (quoted_table(settings),))
        if found != [(number,)]:
            raise another_table(settings, "is not there any more" if found == [(None,)] else ANOTHER)

    def make_slot(self, name: str, clock: Clock) -> int:
        """Make the slot unless it is there; return where its log begins. All transactions before it are visible to queries from now on.

        Raises JobError for a slot of another database or plug-in, or when the server has no room for one more.
        """
        found = self._slot(name)
        if found is None:
            settings = self._settings
            try:
                with self._connection.cursor() as cursor:
                    # It waits for the transactions that are open.
                    cursor.execute("SET statement_timeout = 0")
                    cursor.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
                    cursor.execute("RESET statement_timeout")
            except psycopg.Error as error:
                if error.sqlstate == "53400":
                    raise JobError(
                        f"PostgreSQL at {settings.host}:{settings.port} has no room for another slot: {error}",
                        plugin="postgres_changes",
                        option="slot",
                        hint="drop slots that nobody reads (pg_replication_slots), or raise max_replication_slots",
                    ) from error
                if error.sqlstate not in _EXISTS:
                    raise translated(error, settings) from error
            found = self._slot(name)
            if found is None:
                raise RetriableError(f"the slot {name!r} was made and dropped at once", plugin="postgres_changes")
        self.wait_until_visible(clock)
        return found

    def wait_until_visible(self, clock: Clock) -> None:
        """Wait for the transactions that are open: one can be in the log before queries see its rows."""
        [(high,)] = self._query("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8")
        never, told = threading.Event(), False
        while True:
            [(low,)] = self._query("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::int8")
            if low >= high:
                return
            if not told:
                logger.info("waiting for the transactions that are open in database %s", self._settings.database)
                told = True
            clock.wait(never, _WAIT_SECONDS)

    def check_place(self, slot: str, place: LogPlace, queue: str, offset: int) -> None:
        """Raise DataError unless the slot has the log from a position on."""
        found, lsn = self._slot(slot), place.lsn
        error, server = None, self.identity() if place.server else ""
        if server != place.server and server:
            error = slot_is_gone(
                self._settings, slot, f"this is another server (system identifier {server}, and the checkpoint is of {place.server})"
            )  # fmt: skip
        elif found is None:
            error = slot_is_gone(self._settings, slot, "it does not exist")
        elif found > lsn:
            error = slot_is_gone(
                self._settings, slot, f"it has the log from {lsn_text(found)} on, and the checkpoint needs it from {lsn_text(lsn)} on"
            )  # fmt: skip
        elif self.end() < lsn:
            error = slot_is_gone(
                self._settings, slot, f"the log ends before {lsn_text(lsn)}: the server is another one, or its log was begun anew"
            )  # fmt: skip
        if error is not None:
            error.queue, error.offset = queue, offset
            raise error

    def _slot(self, name: str) -> int | None:
        """Return the LSN from which a slot has the log, or None if there is no such slot. Raises JobError for a slot
        that cannot be used.
        """
        rows = self._query(
            "SELECT plugin::text, database::text, confirmed_flush_lsn::text, wal_status FROM pg_replication_slots WHERE slot_name = %s",
            (name,),
        )
        if not rows:
            return None
        plugin, database, confirmed, status = rows[0]
        if plugin != "pgoutput" or database != self._settings.database:
            what = f"of database {database!r} with the plug-in {plugin!r}" if plugin else "for physical replication"
            raise JobError(
                f"the slot {name!r} is one {what}", plugin="postgres_changes", option="slot", hint="name another slot"
            )
        if status == "lost":
            raise slot_is_gone(
                self._settings, name, "the server has removed log that it needs (max_slot_wal_keep_size)"
            )  # fmt: skip
        return lsn_of(confirmed)

    def advance(self, slot: str, lsn: int) -> None:
        """Tell the server that a slot needs nothing before a position. Does nothing while somebody reads the slot."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (slot, lsn_text(lsn)))
        except psycopg.Error as error:
            # The slot is in use, or is there already: the next checkpoint tries again.
            if error.sqlstate not in (_IN_USE, "55000"):
                raise translated(error, self._settings) from error

    def _query(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with translating(self._settings), self._connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall())
