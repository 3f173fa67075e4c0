"""Connections to the database of the registry, and its tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace.foundation.errors import OptionError
from headrace_lease import limit_idle_transactions
from sqlalchemy import Engine, MetaData, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateColumn

logger = logging.getLogger(__name__)
#: How long a writer waits for another one, in SQLite.
_BUSY_TIMEOUT_MS = 10_000
_CONNECT_TIMEOUT_SECONDS = 5
#: A server that has hung keeps a thread no longer than this.
_ANSWER_TIMEOUT_SECONDS = 20
#: Less than that: a client that waits for a lock of a paused server gets it in time.
_IDLE_TRANSACTION_SECONDS = 10
#: Parts of a URL that set up sessions of PostgreSQL and MySQL; they have priority.
_OF_SESSIONS = frozenset({"options", "init_command"})
_HINT = "write sqlite:///FILE, mysql+pymysql://USER@HOST/DATABASE or postgresql+psycopg://USER@HOST/DATABASE"


def open_engine(url: str) -> Engine:
    """Return an engine for the URL of a database. Raises OptionError if the URL, its driver or its server cannot be used."""
    engine = make_engine(url)
    try:
        with engine.connect():
            pass
    except SQLAlchemyError as error:
        engine.dispose()
        shown = engine.url.render_as_string(hide_password=True)
        raise OptionError(f"the registry {shown} cannot be opened: {error}", option="registry") from None
    return engine


def make_engine(url: str, *, answer_timeout_seconds: int = _ANSWER_TIMEOUT_SECONDS, pooled: bool = True) -> Engine:
    """Return an engine that connects when it is first used. Raises OptionError for a URL or a driver that cannot be used.

    ``pooled`` False: each transaction opens its own connection, for a process with few transactions.
    """
    try:
        parsed = make_url(url)
        options: dict[str, Any] = {
            "connect_args": _time_limits(parsed, answer_timeout_seconds),
            "hide_parameters": True,
        }
        if parsed.get_backend_name() in ("mysql", "mariadb"):
            # With the default, locks of gaps make deadlocks of inserts that have nothing to do with each other.
            options["isolation_level"] = "READ COMMITTED"
        options |= {"pool_pre_ping": True} if pooled else {"poolclass": NullPool}
        engine = create_engine(parsed, **options)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise OptionError(f"the registry cannot be opened: {error}", option="registry", hint=_HINT) from None
    if not _OF_SESSIONS & set(parsed.query):
        # A server that is paused within a transaction must not keep the others waiting.
        limit_idle_transactions(engine, timedelta(seconds=min(answer_timeout_seconds, _IDLE_TRANSACTION_SECONDS)))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _time_limits(url: URL, seconds: int) -> dict[str, Any]:
    """Return options of the driver that keep a thread from waiting for ever. What the URL says counts more."""
    match url.get_driver_name():
        case "pymysql":
            found: dict[str, Any] = {
                "connect_timeout": _CONNECT_TIMEOUT_SECONDS, "read_timeout": seconds, "write_timeout": seconds
            }  # fmt: skip
        case "psycopg":
            found = {
                "connect_timeout": _CONNECT_TIMEOUT_SECONDS, "tcp_user_timeout": seconds * 1000,
                "options": f"-c statement_timeout={seconds * 1000}",
            }  # fmt: skip
        case _:
            return {}
    return {name: value for name, value in found.items() if name not in url.query}


def _set_up_sqlite(connection: Any, _: Any) -> None:
    """Let readers work while another connection writes, and a writer wait for another one."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def sqlite_url(file: Path) -> str:
    """Return the URL of a registry in a file."""
    return f"sqlite:///{file.absolute()}"


def make_tables(engine: Engine, all_tables: Iterable[MetaData]) -> None:
    """Make the tables that are missing, and the columns that an older version of headrace did not have.

    Several servers may do so at the same time. New columns are nullable: an older server on the same registry works without them.
    """
    found = list(all_tables)
    # Another server may make a table or a column between our look and our step. Each time that happens one less is left to do.
    for _ in range(sum(1 + len(table.columns) for tables in found for table in tables.sorted_tables)):
        try:
            return _make(engine, found)
        except DBAPIError as error:
            logger.info("another server makes the same tables: %s", error.orig)
    _make(engine, found)


def _make(engine: Engine, all_tables: Iterable[MetaData]) -> None:
    for tables in all_tables:
        tables.create_all(engine)
        inspector = inspect(engine)
        quoted = engine.dialect.identifier_preparer.format_table
        for table in tables.sorted_tables:
            known = {column["name"] for column in inspector.get_columns(table.name)}
            missing = [column for column in table.columns if column.name not in known]
            if not missing:
                continue
            with engine.begin() as transaction:
                for column in missing:
                    definition = CreateColumn(column).compile(dialect=engine.dialect)
                    transaction.execute(text(f"ALTER TABLE {quoted(table)} ADD COLUMN {definition}"))
