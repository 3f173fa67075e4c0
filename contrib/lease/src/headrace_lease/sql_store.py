"""Leases in a table of a database: SQLite, MySQL, MariaDB, PostgreSQL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import sqlalchemy as sa
from headrace.foundation.errors import JobError, OptionError, RetriableError
from sqlalchemy.dialects import mysql

from headrace_lease.database_clock import KNOWN_DIALECTS, DatabaseMilliseconds
from headrace_lease.idle_transactions import limit_idle_transactions
from headrace_lease.store import LeaseRecord, LeaseStore

#: The default collations of MySQL treat ``a`` and ``A`` as the same name.
_TEXT = sa.String(255).with_variant(mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")

metadata = sa.MetaData()
#: One row for each name that was ever acquired. Rows are never removed, because the token would begin again at 1.
TABLE = sa.Table(
    "headrace_leases",
    metadata,
    sa.Column("name", _TEXT, primary_key=True),
    sa.Column("holder", _TEXT, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    # Milliseconds since the Unix epoch by the database's clock; 0: free.
    sa.Column("expires_at_ms", sa.BigInteger, nullable=False),
    mysql_engine="InnoDB",  # other engines have no transactions
    mariadb_engine="InnoDB",
)
#: The messages of SQLite, MySQL and PostgreSQL about a missing table.
_MISSING = ("no such table", "doesn't exist", "does not exist")


class SqlLeaseStore(LeaseStore):
    """Keeps leases in the table ``headrace_leases`` of a database.

    ``clock`` is the expression of SQL that gives milliseconds since the Unix epoch; a test may read them from a table.
    It must not come from the client.
    """

    def __init__(self, engine: sa.Engine, *, clock: sa.ColumnElement[int] | None = None) -> None:
        if engine.dialect.name not in KNOWN_DIALECTS:
            raise OptionError(
                f"leases cannot be stored in a database of kind {engine.dialect.name!r}",
                option="url",
                hint=f"kinds that work: {', '.join(KNOWN_DIALECTS)}",
            )
        self.engine = engine
        self._now = cast("sa.ColumnElement[int]", DatabaseMilliseconds()) if clock is None else clock

    @classmethod
    def at(cls, url: str) -> SqlLeaseStore:
        """Return the store in the database at an SQLAlchemy URL. It connects when it is first used.

        The database ends transactions whose client is silent for 20 seconds (``limit_idle_transactions``).

        Raises OptionError for an address that SQLAlchemy cannot read, or whose driver is not installed.
        """
        try:
            engine = sa.create_engine(url, pool_pre_ping=True)
        except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ModuleNotFoundError) as error:
            # The error's own text and chain are left out, because they may quote the URL, which may contain a password.
            raise OptionError(
                f"no database can be reached by this address ({type(error).__name__})",
                option="url",
                hint="for example sqlite:///leases.sqlite, mysql+pymysql://user:password@host/database, "
                "postgresql+psycopg://user:password@host/database; pip install 'headrace-lease[mysql]' or [postgresql]",
            ) from None
        limit_idle_transactions(engine)
        return cls(engine)

    def create_table(self) -> None:
        """Create the table if it is missing. Several processes may call it at the same time."""
        with _reached():
            try:
                metadata.create_all(self.engine)
            except (sa.exc.OperationalError, sa.exc.ProgrammingError, sa.exc.IntegrityError):
                # Another process may have created it between our check and our CREATE.
                if not sa.inspect(self.engine).has_table(TABLE.name):
                    raise

    def take(self, name: str, holder: str, duration: timedelta) -> int | None:
        """See LeaseStore.take."""
        # It writes first, because in SQLite a transaction that reads first may not be able to write.
        takes = (
            sa.update(TABLE)
            .where(TABLE.c.name == name, TABLE.c.expires_at_ms <= self._now)
            .values(holder=holder, token=TABLE.c.token + 1, expires_at_ms=self._now + _milliseconds(duration))
        )
        with _reached():
            for _ in range(2):
                with self.engine.begin() as transaction:
                    if transaction.execute(takes).rowcount:
                        token = transaction.execute(sa.select(TABLE.c.token).where(TABLE.c.name == name))
                        return int(token.scalar_one())
                    known = transaction.execute(sa.select(TABLE.c.name).where(TABLE.c.name == name)).first()
                if known is not None:
                    return None
                self._make_row(name)
        raise RetriableError(f"the row of the lease {name!r} was removed while it was being acquired")

    def _make_row(self, name: str) -> None:
        # IntegrityError: another process has inserted the same row, which has the same effect.
        with contextlib.suppress(sa.exc.IntegrityError), self.engine.begin() as transaction:
            transaction.execute(sa.insert(TABLE).values(name=name, holder="", token=0, expires_at_ms=0))

    def extend(self, name: str, token: int, duration: timedelta) -> bool:
        """See LeaseStore.extend."""
        statement = sa.update(TABLE).values(expires_at_ms=self._now + _milliseconds(duration))
        with _reached(), self.engine.begin() as transaction:
            return bool(transaction.execute(statement.where(*self._held(name, token))).rowcount)

    def give_back(self, name: str, token: int) -> bool:
        """See LeaseStore.give_back."""
        statement = sa.update(TABLE).values(expires_at_ms=0, holder="")
        with _reached(), self.engine.begin() as transaction:
            return bool(transaction.execute(statement.where(*self._held(name, token))).rowcount)

    def read(self, name: str) -> LeaseRecord | None:
        """See LeaseStore.read."""
        found = self._records(TABLE.c.name == name)
        return found[0] if found else None

    def records(self, prefix: str) -> list[LeaseRecord]:
        """Return the records of all names that begin with ``prefix``, by name, in one query."""
        return self._records(TABLE.c.name.startswith(prefix, autoescape=True))

    def _records(self, chosen: sa.ColumnElement[bool]) -> list[LeaseRecord]:
        left = (TABLE.c.expires_at_ms - self._now).label("left_ms")
        columns = (TABLE.c.name, TABLE.c.token, TABLE.c.holder, TABLE.c.expires_at_ms, left)
        # A row that was inserted and not yet acquired does not count.
        statement = sa.select(*columns).where(chosen, TABLE.c.token != 0).order_by(TABLE.c.name)
        with _reached(), self.engine.connect() as connection:
            return [_record(row) for row in connection.execute(statement)]

    def take_over(self, name: str, holder: str, duration: timedelta, seen: LeaseRecord) -> int | None:
        """See LeaseStore.take_over. It does not depend on the database's clock, because it only compares marks."""
        token, expires_at_ms = map(int, seen.mark.split("/"))
        takes = (
            sa.update(TABLE)
            .where(TABLE.c.name == name, TABLE.c.token == token, TABLE.c.expires_at_ms == expires_at_ms)
            .values(holder=holder, token=token + 1, expires_at_ms=self._now + _milliseconds(duration))
        )
        with _reached(), self.engine.begin() as transaction:
            return token + 1 if transaction.execute(takes).rowcount else None

    def guard(self, name: str, token: int, transaction: Any) -> bool:
        """See LeaseStore.guard. Raises JobError for a connection that commits each statement by itself."""
        if not isinstance(transaction, sa.Connection):
            raise JobError(
                f"a lease guards a sqlalchemy.Connection, not a {type(transaction).__name__}",
                hint="for a session, write lease.guard(session.connection())",
            )
        with _reached():
            if transaction.dialect.name == "sqlite":
                # SQLite has no row locks: a write, even of the same value, takes the lock of the file.
                statement = sa.update(TABLE).values(token=TABLE.c.token).where(*self._held(name, token))
                held = bool(transaction.execute(statement).rowcount)
            else:
                # A shared lock: transactions of one holder do not wait for each other, but an acquiring process must
                # wait.
                row = sa.select(TABLE.c.token).where(*self._held(name, token)).with_for_update(read=True)
                held = transaction.execute(row).first() is not None
        _refuse_autocommit(transaction)
        return held

    def _held(self, name: str, token: int) -> tuple[sa.ColumnElement[bool], ...]:
        return TABLE.c.name == name, TABLE.c.token == token, TABLE.c.expires_at_ms > self._now


def _record(row: Any) -> LeaseRecord:
    left_ms = max(0, int(row.left_ms))
    last = None if row.expires_at_ms == 0 else str(row.holder)
    return LeaseRecord(
        row.name, int(row.token), last if left_ms else None, timedelta(milliseconds=left_ms), last_holder=last,
        mark=f"{int(row.token)}/{int(row.expires_at_ms)}",
    )  # fmt: skip


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def _refuse_autocommit(connection: sa.Connection) -> None:
    """Raise JobError for a connection in which each statement is a transaction: it would release the guarding lock
    immediately.
    """
    driver = cast("Any", connection.connection.dbapi_connection)
    if connection.dialect.name == "sqlite":
        commits_each = not driver.in_transaction
    else:
        commits_each = connection.dialect.detect_autocommit_setting(driver)
    if commits_each:
        raise JobError(
            "a lease cannot guard a connection in AUTOCOMMIT mode",
            option="isolation_level",
            hint="use a connection with another isolation level",
        )


@contextlib.contextmanager
def _reached() -> Iterator[None]:
    """Convert errors of a database that is unreachable or busy to RetriableError, and a missing table to JobError."""
    try:
        yield
    except (sa.exc.OperationalError, sa.exc.ProgrammingError, sa.exc.InterfaceError, sa.exc.TimeoutError) as error:
        text = str(getattr(error, "orig", None) or type(error).__name__)
        if TABLE.name in text and any(words in text for words in _MISSING):
            raise JobError(
                f"the leases cannot be used: {text}", hint="SqlLeaseStore.create_table() creates their table"
            ) from error
        if isinstance(error, sa.exc.ProgrammingError):
            raise
        raise RetriableError(f"the database of the leases is not available or busy: {text}") from error
