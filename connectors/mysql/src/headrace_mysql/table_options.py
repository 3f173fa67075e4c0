"""How SQL texts write the options of MySQL tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from headrace.interfaces.table_options import UNUSED_OF_JDBC, TableOption, TableOptions
from headrace_changes.databases.table_options import FOLLOWED, FOLLOWED_UNUSED, OF_DEBEZIUM, plain_name

#: Parameters of the drivers' URLs that change nothing here: how the driver sends, caches and logs.
#: https://dev.mysql.com/doc/connector-j/en/connector-j-reference-configuration-properties.html
_OF_THE_DRIVER = {
    "allowLoadLocalInfile", "allowMultiQueries", "allowPublicKeyRetrieval", "autoReconnect", "autoReconnectForPools", "cacheCallableStmts",
    "cachePrepStmts", "cacheResultSetMetadata", "cacheServerConfiguration", "defaultFetchSize", "elideSetAutoCommits", "failOverReadOnly",
    "initialTimeout", "logger", "maintainTimeStats", "maxReconnects", "noAccessToProcedureBodies", "nullCatalogMeansCurrent",
    "prepStmtCacheSize", "prepStmtCacheSqlLimit", "rewriteBatchedStatements", "tcpKeepAlive", "tcpNoDelay", "useCompression",
    "useCursorFetch", "useInformationSchema", "useLocalSessionState", "useServerPrepStmts", "useUnicode",
}  # fmt: skip
_UTC = (frozenset({"utc", "gmt", "z", "+00:00", "etc/utc"}), "sessions use UTC: a DATETIME is read as it is stored")
#: Parameters with the values that are what happens here anyway, in lower case. Another value is refused: the rows would be others.
_AS_HERE: Mapping[str, tuple[frozenset[str], str]] = {
    "characterencoding": (frozenset({"utf8", "utf-8", "utf8mb4"}), "texts are sent as UTF-8"),
    "servertimezone": _UTC,
    "connectiontimezone": _UTC,
    "zerodatetimebehavior": (frozenset({"converttonull", "convert_to_null"}), "a zero date is read as NULL"),
    "tinyint1isbit": (frozenset({"true"}), "a TINYINT(1) is read as true or false"),
}
#: Values, in lower case, and whether they ask for TLS. "preferred" does not insist on it.
_BOOLEAN: Mapping[str, bool] = {"true": True, "false": False}
_MODES: Mapping[str, bool] = {
    **dict.fromkeys(("required", "verify_ca", "verify_identity", "verify-ca", "verify-full", "trust"), True),
    **dict.fromkeys(("disabled", "disable", "preferred"), False),
}
_TLS: Mapping[str, Mapping[str, bool]] = {
    "useSSL": _BOOLEAN,
    "useSsl": _BOOLEAN,
    "requireSSL": _BOOLEAN,
    "sslMode": _MODES,
}
#: Parameters in milliseconds.
_TIMES = {"connectTimeout": "connect_timeout", "socketTimeout": "read_timeout"}


def _jdbc(text: str) -> Mapping[str, Any]:
    found = re.fullmatch(r"jdbc:(?:mysql|mariadb)://([^:/?,]+)(?::(\d+))?/([^?]+)(?:\?(.*))?", text)
    if found is None:
        raise ValueError(
            "only jdbc:mysql://host:port/database is supported, and jdbc:postgresql: with headrace-postgres"
        )
    made: dict[str, Any] = {"host": found[1], "database": unquote(found[3])}
    if found[2]:
        made["port"] = int(found[2])
    for name, value in parse_qsl(found[4] or "", keep_blank_values=True):
        made |= _parameter(name, value)
    return made


def _parameter(name: str, value: str) -> Mapping[str, Any]:
    """Return what a parameter of a URL means as options. Raises ValueError if it is unknown, or asks for what is not done here."""
    plain = value.lower()
    if name in ("user", "password"):
        return {name: value}
    if name in _TIMES and value.isdecimal():
        return {_TIMES[name]: f"{value} ms"} if int(value) else {}  # 0: as long as the system waits
    if name in _TLS and plain in _TLS[name]:
        return {"ssl": True} if _TLS[name][plain] else {}
    if name in _TIMES or name in _TLS:
        raise ValueError(f"the parameter {name} does not take {value!r}")
    if name.lower() in _AS_HERE:
        values, here = _AS_HERE[name.lower()]
        if plain not in values:
            raise ValueError(f"the parameter {name}={value} is not supported: {here}; remove it")
    elif name not in _OF_THE_DRIVER:
        known = "user, password, useSSL, sslMode, connectTimeout and socketTimeout are"
        raise ValueError(f"the parameter {name!r} is not known; {known}, and those of the driver that change no rows")
    return {}


_OPTIONS: Mapping[str, TableOption] = {
    "url": _jdbc,
    "table-name": "table",
    "tableName": "table",
    "username": "user",
    "userName": "user",
    "password": "password",
    "connection.max-retry-timeout": "connect_timeout",
}
_UNUSED = {
    "driver": "there is one driver",
    "scan.fetch-size": "rows are read by ranges of their key",
    "scan.auto-commit": "rows are read by ranges of their key",
    **UNUSED_OF_JDBC,
}
_NAMES = ("mysql", "jdbc", "db", "rds")

SOURCE_TABLES: Mapping[str, TableOptions] = dict.fromkeys(_NAMES, TableOptions(_OPTIONS, _UNUSED))
SINK_TABLES: Mapping[str, TableOptions] = dict.fromkeys(
    _NAMES, TableOptions(_OPTIONS, _UNUSED, with_key=lambda key: {"mode": "upsert"})
)


#: Flink CDC's: https://nightlies.apache.org/flink/flink-cdc-docs-stable/docs/connectors/flink-sources/mysql-cdc/
CHANGES_TABLES: Mapping[str, TableOptions] = {
    "mysql-cdc": TableOptions(
        {**FOLLOWED, "database-name": plain_name("database"), "table-name": plain_name("table", after_point=True)},
        {
            **FOLLOWED_UNUSED,
            "server-time-zone": "sessions use UTC; a TIMESTAMP is an instant, whatever the server's zone is",
            "debezium.min.row.count.to.stream.results": OF_DEBEZIUM,
            "debezium.snapshot.locking.mode": "no locks are taken",
            "debezium.database.server.name": OF_DEBEZIUM,
        },
        columns_option="columns",
    )
}
