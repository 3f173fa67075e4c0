"""Connections, quoting, and the server's errors as those of headrace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from headrace.foundation.errors import DataError, HeadraceError, JobError, OptionError, RetriableError

from headrace_postgres.settings import PostgresSettings

#: Longest name, in bytes: https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-SYNTAX-IDENTIFIERS
NAME_BYTES_MAX = 63
#: A transaction that is idle for so long belongs to a process that hangs. Then the server ends it, so that its locks are free for
#: the process that has taken over.
IDLE_TRANSACTION_SECONDS = 30
#: From this version of libpq on, a client can restrict the login methods.
_REQUIRE_AUTH = 160000

# Codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
_RETRIABLE_CLASSES = {"08", "40", "53", "58"}
_RETRIABLE = {
    "25006",  # read only, as a replica is until it takes over
    "25P03",  # idle in a transaction for too long
    "55006", "55P03",  # in use by another, lock wait
    "57014", "57P01", "57P02", "57P03", "57P05",  # took too long, shutting down, crashed, starting, idle for too long
}  # fmt: skip
_PERMISSION = {"42501", "28000", "28P01"}
_MISSING = {"3D000": "database", "3F000": "schema", "42P01": "table", "42703": "columns"}
#: A row is updated twice by one statement: its keys are equal for the server only.
_TWICE = "21000"
_HINTS = {
    "3D000": "create the database, or name another",
    "3F000": "create the schema, or name another",
    "28P01": "check user and password",
    "28000": "check user and password, and pg_hba.conf; a user who must use TLS needs ssl=True",
}
#: What failed connections say instead of a code: pieces of the server's and libpq's messages.
_REFUSED = (
    ("password authentication failed", "28P01"), ("no pg_hba.conf entry", "28000"), ("no password supplied", "28P01"),
    ("authentication failed", "28000"), ('FATAL: role "', "28000"), ("does not exist", "3D000"),
    ("permission denied for database", "42501"),
)  # fmt: skip
_TLS = ("certificate", "SSL", "sslmode")
#: Messages of OpenSSL for a lost TLS connection, because the server stopped or the network failed.
_LOST = ("SSL SYSCALL error", "SSL connection has been closed", "unexpected eof", "closed the connection unexpectedly")
_WEAK = "authentication method requirement"


def connect(
    settings: PostgresSettings, *, autocommit: bool = False, replication: bool = False
) -> psycopg.Connection[Any]:
    """Return a connection with UTC and ISO dates. Raises RetriableError or JobError."""
    timeout_ms = int(settings.read_timeout.total_seconds() * 1000)
    session = {
        "timezone": "UTC", "datestyle": "ISO", "intervalstyle": "postgres", "bytea_output": "hex", "extra_float_digits": "1",
        "statement_timeout": "0" if replication else str(timeout_ms),
        "idle_in_transaction_session_timeout": f"{IDLE_TRANSACTION_SECONDS}s",
    }  # fmt: skip
    more: dict[str, Any] = {**_tls(settings), **({"replication": "database"} if replication else {})}
    try:
        return psycopg.connect(
            host=settings.host,
            port=settings.port,
            user=settings.user,
            password=settings.password.reveal() if settings.password else None,
            dbname=settings.database,
            connect_timeout=max(1, int(settings.connect_timeout.total_seconds())),
            client_encoding="UTF8",
            application_name="headrace",
            options=" ".join(f"-c {name}={value}" for name, value in session.items()),
            autocommit=autocommit,
            # A server that is cut off is noticed, also while a statement waits for it.
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=timeout_ms,
            **more,
        )
    except (psycopg.Error, OSError) as error:
        raise translated(error, settings) from error


def _tls(settings: PostgresSettings) -> dict[str, Any]:
    """Return libpq's options. Without a checked certificate no method is taken that gives the password to the server."""
    if settings.ssl or settings.ssl_ca or settings.ssl_certificate:
        made = {"sslmode": "verify-full", "sslrootcert": settings.ssl_ca or "system"}
        if settings.ssl_certificate:
            made["sslcert"] = settings.ssl_certificate
            made["sslkey"] = settings.ssl_key or settings.ssl_certificate
        return made
    return {"require_auth": "!password"} if psycopg.pq.version() >= _REQUIRE_AUTH else {}


@contextmanager
def translating(settings: PostgresSettings) -> Iterator[None]:
    """Turn the driver's errors into those of headrace."""
    try:
        yield
    except (psycopg.Error, OSError) as error:
        raise translated(error, settings) from error


def translated(error: BaseException, settings: PostgresSettings) -> HeadraceError:
    """Return the headrace exception for an error of the driver, naming server and table.

    A known error of a row is a DataError, a known temporary error is a RetriableError. Any other error stops the job, so that
    an unexpected error never sends a whole stream to the dead letters.
    """
    text = " ".join(str(error).split()) or type(error).__name__
    code = getattr(error, "sqlstate", None)
    where = f"PostgreSQL at {settings.host}:{settings.port}, table {place_of(settings)}: {text}"
    if code is None and isinstance(error, psycopg.OperationalError | OSError):
        if _WEAK in text:
            return JobError(
                where, plugin="postgres", option="ssl",
                hint="the server asks for the password in clear text, which is sent only to a server whose certificate was checked: set "
                     "ssl_ca, or let the server use scram-sha-256",
            )  # fmt: skip
        if any(part in text for part in _LOST):
            return RetriableError(
                where, plugin="postgres", hint="check that the server is running, and that host and port are right"
            )
        # "root certificate file … does not exist" is about no database.
        known = _REFUSED if "certificate file" not in text else ()
        code = next((code for part, code in known if part in text), None)
        if code is None and any(part in text for part in _TLS):
            return JobError(
                where, plugin="postgres", option="ssl_ca", hint="check the certificates, and that the server has TLS"
            )
        if code is None:
            return RetriableError(
                where, plugin="postgres", hint="check that the server is running, and that host and port are right"
            )
    elif code is not None:
        where += f" (error {code})"
    if code in _PERMISSION:
        hint = _HINTS.get(code, f"grant the user {settings.user!r} what it needs, see docs/connectors/postgres.md")
        return JobError(where, plugin="postgres", option="user", hint=hint)
    if code in _MISSING:
        hint = _HINTS.get(code, "it was removed or changed since the job started")
        return JobError(where, plugin="postgres", option=_MISSING[code], hint=hint)
    if code in _RETRIABLE or (code or "")[:2] in _RETRIABLE_CLASSES or isinstance(error, psycopg.InterfaceError):
        return RetriableError(where, plugin="postgres")
    if code == _TWICE or isinstance(error, psycopg.DataError | psycopg.IntegrityError):
        return DataError(f"{text} (error {code})", plugin="postgres")
    # A trigger's or function's own error is about its row: class P0, and what a user raises with a class of its own.
    if code is not None and (code.startswith("P0") or code == "54000"):
        return DataError(f"{text} (error {code})", plugin="postgres")
    return JobError(where, plugin="postgres")


def place_of(settings: PostgresSettings) -> str:
    """Return the table's name for messages."""
    return f"{settings.database}.{settings.schema}.{settings.table}"


def quoted(name: str, *, option: str | None = None) -> str:
    """Return an identifier in double quotes, safe for any name. Raises OptionError for names that no server has."""
    if not name or "\0" in name or len(name.encode()) > NAME_BYTES_MAX:
        raise OptionError(
            f"{name!r} cannot be the name of a table or column", plugin="postgres", option=option,
            hint=f"names have 1 to {NAME_BYTES_MAX} bytes",
        )  # fmt: skip
    return '"' + name.replace('"', '""') + '"'


def quoted_table(settings: PostgresSettings) -> str:
    """Return the table with its schema, quoted."""
    return f"{quoted(settings.schema)}.{quoted(settings.table)}"


def listed(names: Sequence[str]) -> str:
    """Return identifiers quoted and separated by commas."""
    return ", ".join(map(quoted, names))


def literal(text: str) -> str:
    """Return a text as a literal of SQL, whatever ``standard_conforming_strings`` says."""
    if "\0" in text:
        raise OptionError("a text with a NUL character cannot be written to PostgreSQL", plugin="postgres")
    escaped = re.sub(r"['\\]", lambda found: found[0] * 2, text)
    return f"E'{escaped}'"
