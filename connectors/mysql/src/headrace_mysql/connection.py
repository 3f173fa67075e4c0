"""Connections, quoting, and the server's errors as those of headrace."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql
from headrace.errors import DataError, HeadraceError, JobError, OptionError, RetriableError

from headrace_mysql.settings import MySQLSettings

#: https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html
_RETRIABLE = {
    1040,  # too many connections
    1053,  # shutdown in progress
    1077, 1078, 1079,  # normal shutdown
    1152, 1153, 1158, 1159, 1160, 1161, 1184,  # connection aborted; network errors
    1203, 1226,  # too many connections of the user
    1205, 1213,  # lock wait timeout, deadlock
    1290, 1836,  # read only
    2002, 2003, 2005, 2006, 2013, 2014, 2027, 2055, 4031,  # cannot connect, gone away, lost connection
}  # fmt: skip
_PERMISSION = {1044, 1045, 1142, 1143, 1227, 1370, 1698, 3159}
_MISSING = {1049: "database", 1146: "table", 1054: "column"}


def connect(settings: MySQLSettings) -> pymysql.connections.Connection[Any]:
    """Return a connection with strict SQL, UTC and utf8mb4. Raises RetriableError or JobError."""
    context: ssl.SSLContext | None = None
    if settings.ssl or settings.ssl_ca:
        context = ssl.create_default_context(cafile=settings.ssl_ca)
        if settings.ssl_certificate:
            context.load_cert_chain(settings.ssl_certificate, settings.ssl_key)
    try:
        return pymysql.connect(
            host=settings.host,
            port=settings.port,
            user=settings.user,
            password=settings.password.reveal() if settings.password else "",
            database=settings.database,
            charset="utf8mb4",
            autocommit=False,
            ssl=context,
            connect_timeout=max(1, int(settings.connect_timeout.total_seconds())),
            read_timeout=max(1, int(settings.read_timeout.total_seconds())),
            write_timeout=max(1, int(settings.read_timeout.total_seconds())),
            client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
            init_command="SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,"
            "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
        )
    except pymysql.MySQLError as error:
        raise translated(error, settings) from error


@contextmanager
def translating(settings: MySQLSettings) -> Iterator[None]:
    """Turn the driver's errors into those of headrace."""
    try:
        yield
    except (pymysql.MySQLError, OSError) as error:
        raise translated(error, settings) from error


def translated(error: BaseException, settings: MySQLSettings) -> HeadraceError:
    """Return the headrace exception for an error of the driver, naming server and table."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else None
    text = str(error.args[1]) if code is not None and len(error.args) > 1 else str(error) or type(error).__name__
    where = f"MySQL at {settings.host}:{settings.port}, table {settings.database}.{settings.table}: {text}"
    if code in _PERMISSION:
        return JobError(where, plugin="mysql", option="user", hint="check user, password, and what the user may do")
    if code in _MISSING:
        return JobError(where, plugin="mysql", option=_MISSING[code])
    if code in _RETRIABLE or isinstance(error, OSError | pymysql.err.InterfaceError):
        if "certificate" in text.lower() or "ssl" in text.lower():
            return JobError(
                where, plugin="mysql", option="ssl_ca", hint="check the certificates, or that the server has TLS"
            )
        return RetriableError(where, plugin="mysql")
    if isinstance(error, pymysql.err.DataError | pymysql.err.IntegrityError) or code in (1366, 1292, 1364, 3140, 4025):
        return DataError(text, plugin="mysql")
    return JobError(where, plugin="mysql") if code == 1064 else DataError(text, plugin="mysql")


def quoted(name: str) -> str:
    """Return an identifier in backticks, safe for any name. Raises OptionError for names that no server has."""
    if not name or "\0" in name or len(name) > 64:
        raise OptionError(f"{name!r} is no name of a table or column", plugin="mysql")
    return "`" + name.replace("`", "``") + "`"


def listed(names: Sequence[str]) -> str:
    """Return identifiers quoted and separated by commas."""
    return ", ".join(map(quoted, names))
