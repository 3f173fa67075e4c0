"""How SQL texts write the options of PostgreSQL tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from headrace.interfaces.table_options import UNUSED_OF_JDBC, TableOption, TableOptions
from headrace_changes.databases.table_options import FOLLOWED, FOLLOWED_UNUSED, OF_DEBEZIUM, only, plain_name

#: Parameters of the driver's URLs: https://jdbc.postgresql.org/documentation/use/
_OF_THE_DRIVER = {
    "reWriteBatchedInserts", "prepareThreshold", "defaultRowFetchSize", "tcpKeepAlive", "ApplicationName", "stringtype",
    "loggerLevel", "socketTimeout", "loginTimeout", "binaryTransfer",
}  # fmt: skip


def _jdbc(text: str) -> Mapping[str, Any]:
    found = re.fullmatch(r"jdbc:postgresql://([^:/?,]+)(?::(\d+))?/([^?]+)(?:\?(.*))?", text)
    if found is None:
        raise ValueError("only jdbc:postgresql://host:port/database is supported")
    made: dict[str, Any] = {"host": found[1], "database": unquote(found[3])}
    if found[2]:
        made["port"] = int(found[2])
    for name, value in parse_qsl(found[4] or "", keep_blank_values=True):
        if name == "currentSchema":
            made["schema"] = value
        elif name in ("user", "password"):
            made[name] = value
        elif name == "ssl" or (name == "sslmode" and value in ("require", "verify-ca", "verify-full")):
            made["ssl"] = name == "sslmode" or value.lower() in ("", "true")
        elif name not in _OF_THE_DRIVER and name != "sslmode":
            raise ValueError(f"the parameter {name!r} is not known; currentSchema, user, password, ssl and sslmode are")
    return made


def _table(text: str) -> Mapping[str, Any]:
    """Take ``table`` or ``schema.table``, each with or without double quotes."""
    found = re.fullmatch(r'(?:("(?:[^"]|"")+"|[^".]+)\.)?("(?:[^"]|"")+"|[^".]+)', text)
    if found is None:
        raise ValueError("the name of a table, or schema.table")
    made = {"table": _plain(found[2])}
    return {**made, "schema": _plain(found[1])} if found[1] else made


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


_OPTIONS: Mapping[str, TableOption] = {
    "url": _jdbc,
    "table-name": _table,
    "tableName": _table,
    "username": "user",
    "userName": "user",
    "password": "password",
    "connection.max-retry-timeout": "connect_timeout",
}
_UNUSED = {
    "driver": "there is one driver",
    "scan.fetch-size": "rows are read by COPY",
    "scan.auto-commit": "rows are read by COPY",
    **UNUSED_OF_JDBC,
}
_NAMES = ("postgres", "jdbc:postgresql")

SOURCE_TABLES: Mapping[str, TableOptions] = dict.fromkeys(_NAMES, TableOptions(_OPTIONS, _UNUSED))
SINK_TABLES: Mapping[str, TableOptions] = {
    **dict.fromkeys(_NAMES, TableOptions(_OPTIONS, _UNUSED, with_key=lambda key: {"mode": "upsert"})),
}


#: Flink CDC's: https://nightlies.apache.org/flink/flink-cdc-docs-stable/docs/connectors/flink-sources/postgres-cdc/
CHANGES_TABLES: Mapping[str, TableOptions] = {
    "postgres-cdc": TableOptions(
        {
            **FOLLOWED,
            "database-name": "database",
            "schema-name": plain_name("schema"),
            "table-name": plain_name("table"),
            "slot.name": "slot",
            "debezium.publication.name": "publication",
            "decoding.plugin.name": only("pgoutput", "the plug-in that each server has"),
        },
        {
            **FOLLOWED_UNUSED,
            "changelog-mode": "it follows from the table's REPLICA IDENTITY; without FULL, rows are normalised by key",
            "scan.lsn-commit.checkpoints-num-delay": "the slot is told of each checkpoint that is stored",
            "heartbeat.interval.ms": FOLLOWED_UNUSED["heartbeat.interval"],
            "debezium.slot.name": "the slot is named by slot.name",
            "debezium.plugin.name": OF_DEBEZIUM,
            "debezium.slot.drop.on.stop": "a slot is kept: it holds what a job that goes on needs",
        },
        columns_option="columns",
    )
}
