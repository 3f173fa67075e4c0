"""Connections, quoting, and the server's errors as those of headrace."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql
from headrace.foundation.errors import DataError, HeadraceError, JobError, OptionError, RetriableError
from headrace.interfaces.connection_options import client_tls_context, uses_tls

from headrace_mysql.login import GuardedConnection
from headrace_mysql.settings import MySQLSettings

#: Longest name of a table or column: https://dev.mysql.com/doc/refman/8.0/en/identifier-length.html
NAME_LENGTH_MAX = 64
#: A transaction that is idle for so long belongs to a process that hangs. Then MariaDB ends it, so that its locks are free for
#: the process that has taken over. (MySQL has no such variable.)
IDLE_TRANSACTION_SECONDS = 30

# Numbers: https://dev.mysql.com/doc/mysql-errors/8.0/en/ and https://mariadb.com/kb/en/mariadb-error-code-reference/
_RETRIABLE = {
    1021, 1030, 1114,  # disk or table full
    1020, 1205, 1213, 1412, 1613, 3101,  # changed meanwhile, lock wait, deadlock, definition changed, rolled back
    1040, 1203, 1226,  # too many connections
    1047, 1053, 1077, 1078, 1079, 1152, 1158, 1159, 1160, 1161, 1184,  # starting, shutting down, aborted, network
    1290, 1792, 1836,  # read only, as a replica is until it takes over
    1317, 1927, 1969, 3024,  # interrupted, killed, took too long
    2002, 2003, 2005, 2006, 2013, 2014, 2027, 2055, 4031,  # cannot connect, gone away, lost connection
}  # fmt: skip
_PERMISSION = {1044, 1045, 1131, 1142, 1143, 1227, 1370, 1698, 1820, 1862, 3118, 3159, 3955, 4151}
_MISSING = {1049: "database", 1146: "table", 1051: "table", 1054: "columns"}
#: Errors of a row; most come as DataError or IntegrityError of the driver, some do not.
_DATA = {
    1048, 1062, 1118, 1153, 1197, 1216, 1217, 1264, 1265, 1292, 1300, 1364, 1366, 1367, 1369, 1406, 1411, 1441, 1451,
    1452, 1526, 1557, 1586, 1644, 1690, 1748, 3140, 3819, 3988, 4025,
}  # fmt: skip
_HINTS = {
    1049: "create the database, or name another",
    1045: "check user and password; a user who must use TLS needs ssl=True",
    1698: "this user can log in only over the local socket, without a password; use another user",
    3159: "the server takes connections with TLS only: ssl=True",
    2003: "is the server running, and are host and port right?",
    2005: "check the host",
}


def connect(settings: MySQLSettings, *, autocommit: bool = False) -> pymysql.connections.Connection[Any]:
    """Return a connection with strict SQL, UTC and utf8mb4. Raises RetriableError or JobError."""
    context = _tls_context(settings)
    password = settings.password.reveal() if settings.password else ""
    try:
        connection = GuardedConnection(
            verified=context is not None,
            host=settings.host,
            port=settings.port,
            user=settings.user,
            password=password,
            database=settings.database,
            charset="utf8mb4",
            autocommit=autocommit,
            ssl=context,
            connect_timeout=max(1, int(settings.connect_timeout.total_seconds())),
            read_timeout=max(1, int(settings.read_timeout.total_seconds())),
            write_timeout=max(1, int(settings.read_timeout.total_seconds())),
            client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
            # Backslashes must stay escape characters: `literals` relies on it.
            init_command="SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,"
            "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
        )
        if is_mariadb(connection):
            with connection.cursor() as cursor:
                cursor.execute(f"SET SESSION idle_write_transaction_timeout = {IDLE_TRANSACTION_SECONDS}")
        return connection
    except (pymysql.MySQLError, OSError) as error:
        raise translated(error, settings) from error


def is_mariadb(connection: Any) -> bool:
    """Return whether the server is MariaDB, by its version text."""
    return "mariadb" in connection.get_server_info().lower()


def _tls_context(settings: MySQLSettings) -> ssl.SSLContext | None:
    return client_tls_context(settings, plugin="mysql") if uses_tls(settings) else None


@contextmanager
def translating(settings: MySQLSettings) -> Iterator[None]:
    """Turn the driver's errors into those of headrace."""
    try:
        yield
    except (pymysql.MySQLError, OSError) as error:
        raise translated(error, settings) from error


def translated(error: BaseException, settings: MySQLSettings) -> HeadraceError:
    """Return the headrace exception for an error of the driver, naming server and table.

    A known error of a row is a DataError, a known temporary error is a RetriableError. Any other error stops the job, so that
    an unexpected error never sends a whole stream to the dead letters.
    """
    code = error.args[0] if error.args and isinstance(error.args[0], int) else None
    text = str(error.args[1]) if code and len(error.args) > 1 else str(error) or type(error).__name__
    where = f"MySQL at {settings.host}:{settings.port}, table {settings.database}.{settings.table}: {text}"
    if code:
        where += f" (error {code})"
    cause = getattr(error, "original_exception", error)
    if code == 2026 or isinstance(cause, ssl.SSLError):
        return JobError(
            where, plugin="mysql", option="ssl_ca", hint="check the certificates, and that the server has TLS"
        )
    if code in _PERMISSION:
        hint = _HINTS.get(code, f"grant the user {settings.user!r} what it needs, see docs/connectors/mysql.md")
        return JobError(where, plugin="mysql", option="user", hint=hint)
    if code in _MISSING:
        hint = _HINTS.get(code, "it was removed or changed since the job started")
        return JobError(where, plugin="mysql", option=_MISSING[code], hint=hint)
    lost = not code and isinstance(error, OSError | pymysql.err.InterfaceError | pymysql.err.InternalError)
    if code in _RETRIABLE or lost:
        return RetriableError(where, plugin="mysql", hint=_HINTS.get(code or 0))
    if code in _DATA or isinstance(error, pymysql.err.DataError | pymysql.err.IntegrityError):
        return DataError(f"{text} (error {code})", plugin="mysql")
    return JobError(where, plugin="mysql")


def quoted(name: str, *, option: str | None = None) -> str:
    """Return an identifier in backticks, safe for any name. Raises OptionError for names that no server has."""
    if not name or "\0" in name or len(name) > NAME_LENGTH_MAX or name != name.rstrip(" "):
        raise OptionError(
            f"{name!r} cannot be the name of a table or column", plugin="mysql", option=option,
            hint=f"a name has 1 to {NAME_LENGTH_MAX} characters and does not end with a blank",
        )  # fmt: skip
    return "`" + name.replace("`", "``") + "`"


def quoted_for_parameters(name: str) -> str:
    """Return an identifier in backticks for a statement that is executed with parameters, in which % marks a place."""
    return quoted(name).replace("%", "%%")


def listed(names: Sequence[str]) -> str:
    """Return identifiers quoted and separated by commas."""
    return ", ".join(map(quoted, names))
