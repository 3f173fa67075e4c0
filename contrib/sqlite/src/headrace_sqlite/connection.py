"""Connections to a database file, with the interface that ``headrace_changes.databases`` expects of a driver; quoting
of names; errors.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from headrace.foundation.errors import DataError, HeadraceError, JobError, OptionError, RetriableError

from headrace_sqlite.settings import SQLiteSinkSettings

#: Errors that pass when other programs have finished, and errors of the disk, which people can correct while the job
#: waits.
_TEMPORARY = {
    sqlite3.SQLITE_BUSY: "another program writes the file: it should write in short transactions",
    sqlite3.SQLITE_LOCKED: None,
    sqlite3.SQLITE_SCHEMA: None,
    sqlite3.SQLITE_FULL: "make room on the device",
    sqlite3.SQLITE_IOERR: "the disk does not work, or its file system is full or gone",
}
_OF_ROWS = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH}
_HINTS = {
    sqlite3.SQLITE_CANTOPEN: "the directory must exist and let the job's user write; create_table=True creates the file",
    sqlite3.SQLITE_READONLY: "the job's user must be allowed to write the file and in its directory",
    sqlite3.SQLITE_NOTADB: "name a file that SQLite has made, or one that does not exist",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: see https://www.sqlite.org/recovery.html",
}


class Cursor:
    """A cursor that is a context manager. A statement with parameters has ``%s`` for each, and ``%%`` for a per cent
    sign.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()

    def execute(self, statement: str, parameters: Sequence[Any] | None = None) -> None:
        if parameters is None:
            self._cursor.execute(statement)
        else:
            own = re.sub("%[s%]", lambda found: "?" if found[0] == "%s" else "%", statement)
            self._cursor.execute(own, parameters)

    def execute_for_each(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement, with ``?`` for parameters, for each row."""
        self._cursor.executemany(statement, rows)

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *failure: object) -> None:
        self._cursor.close()


class Connection:
    """A connection. The first writing statement begins a transaction, which waits until no other transaction writes."""

    def __init__(self, settings: SQLiteSinkSettings) -> None:
        self._path = os.path.abspath(settings.database)
        mode = "rwc" if settings.create_table else "rw"
        self._of_driver = sqlite3.connect(
            f"file:{quote(self._path)}?mode={mode}",
            uri=True,
            timeout=settings.lock_timeout.total_seconds(),
            isolation_level="IMMEDIATE",
            check_same_thread=False,  # the sink has a lock
        )
        self.closed = False
        try:
            if not self._of_driver.execute("PRAGMA page_count").fetchone()[0]:
                # In a file that we have created, other programs can read while we write. The mode of an existing file
                # is not changed.
                self._of_driver.execute("PRAGMA journal_mode = WAL").close()
            # Committed rows must survive a power failure, because the positions of sources have moved on.
            self._of_driver.execute("PRAGMA synchronous = EXTRA").close()
            self._of_driver.execute("PRAGMA foreign_keys = ON").close()
            self._identity = self._identity_of_file()
        except BaseException:
            self.close()
            raise
        self.commit, self.rollback = self._of_driver.commit, self._of_driver.rollback

    def cursor(self) -> Cursor:
        return Cursor(self._of_driver)

    def close(self) -> None:
        self.closed = True
        self._of_driver.close()

    def expect_file(self) -> None:
        """Raise JobError if the path is no longer the file that this connection writes; rows would be lost."""
        if self._identity_of_file() != self._identity:
            raise JobError(
                f"SQLite: {self._path} was moved, removed or replaced while the job wrote it", plugin="sqlite", option="database",
                hint="stop the job before you replace the file",
            )  # fmt: skip

    def _identity_of_file(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


@contextmanager
def translating(settings: SQLiteSinkSettings) -> Iterator[None]:
    """Convert the driver's errors to those of headrace."""
    try:
        yield
    except (sqlite3.Error, OverflowError, OSError) as error:
        raise translated(error, settings) from error


def translated(error: BaseException, settings: SQLiteSinkSettings) -> HeadraceError:
    """Return the error of headrace for one of the driver, naming file and table.

    An error about values is a DataError. An unknown error stops the job, so it never sends a whole stream to
    the dead letters.
    """
    text = f"SQLite file {settings.database}, table {settings.table}: {error}"
    if isinstance(error, OverflowError):  # the driver raises it for a number that does not fit 64 bits
        return DataError(text, plugin="sqlite")
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in _OF_ROWS or (code is None and isinstance(error, sqlite3.DataError)):
        return DataError(text, plugin="sqlite")
    if primary in _TEMPORARY:
        return RetriableError(text, plugin="sqlite", hint=_TEMPORARY[primary])
    if isinstance(error, OSError):
        return RetriableError(text, plugin="sqlite")
    option = "database" if primary in _HINTS else "table"
    return JobError(text, plugin="sqlite", option=option, hint=_HINTS.get(primary) if primary is not None else None)


def quoted(name: str, *, option: str | None = None) -> str:
    """Return a name in quotes. Raises OptionError for a name that SQLite does not allow or reserves."""
    if not name or "\0" in name or name.lower().startswith("sqlite_"):
        raise OptionError(
            f"{name!r} cannot be a name", plugin="sqlite", option=option,
            hint="names are not empty, contain no NUL character, and do not begin with 'sqlite_'",
        )  # fmt: skip
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str]) -> str:
    """Return names in quotes, separated by commas."""
    return ", ".join(quoted(name) for name in names)
