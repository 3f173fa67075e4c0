"""How SQL texts write the options of PostgreSQL tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOption, TableOptions

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
}
_UNUSED = {
    "driver": "there is one driver",
    "lookup.cache.max-rows": OF_FLINKS_RUNTIME,
    "lookup.cache": OF_FLINKS_RUNTIME,
    "lookup.max-retries": OF_FLINKS_RUNTIME,
    "sink.buffer-flush.max-rows": OF_FLINKS_RUNTIME,
    "sink.buffer-flush.interval": OF_FLINKS_RUNTIME,
    "sink.max-retries": OF_FLINKS_RUNTIME,
    "sink.parallelism": OF_FLINKS_RUNTIME,
    "scan.fetch-size": "rows are read by COPY",
}
_NAMES = ("postgres", "jdbc:postgresql")

SOURCE_TABLES: Mapping[str, TableOptions] = dict.fromkeys(_NAMES, TableOptions(_OPTIONS, _UNUSED))
SINK_TABLES: Mapping[str, TableOptions] = {
    **dict.fromkeys(_NAMES, TableOptions(_OPTIONS, _UNUSED, with_key=lambda key: {"mode": "upsert"})),
}


def _startup(text: str) -> Mapping[str, Any]:
    starts = {"initial": "earliest", "latest-offset": "latest"}
    if text not in starts:
        raise ValueError("initial or latest-offset")
    return {"start": starts[text]}


def _plain_name(option: str) -> TableOption:
    def made(text: str) -> Mapping[str, Any]:
        if re.search(r"[*+?|()\[\]{}^,\\]", text):
            raise ValueError("the name of one; tables are not matched by a pattern")
        return {option: text}

    return made


def _only(wanted: str, why: str) -> TableOption:
    def made(text: str) -> Mapping[str, Any]:
        if text.lower() != wanted:
            raise ValueError(f"only {wanted}: {why}")
        return {}

    return made


_OF_DEBEZIUM = "the log is read without Debezium"
_ON_CONNECTIONS = "connections are opened when they are needed, and tried again while retry_timeout lasts"
#: Flink CDC's: https://nightlies.apache.org/flink/flink-cdc-docs-stable/docs/connectors/flink-sources/postgres-cdc/
CHANGES_TABLES: Mapping[str, TableOptions] = {
    "postgres-cdc": TableOptions(
        {
            "hostname": "host",
            "username": "user",
            "database-name": "database",
            "schema-name": _plain_name("schema"),
            "table-name": _plain_name("table"),
            "slot.name": "slot",
            "debezium.publication.name": "publication",
            "decoding.plugin.name": _only("pgoutput", "the plug-in that each server has"),
            "scan.startup.mode": _startup,
            "scan.incremental.snapshot.enabled": _only("true", "a snapshot is always read in chunks, without locks"),
            "scan.incremental.snapshot.chunk.size": "chunk_rows",
            "scan.newly-added-table.enabled": _only("false", "a source reads one table"),
            "scan.read-changelog-as-append-only.enabled": _only("false", "rows that change are given as changes"),
            "scan.incremental.snapshot.backfill.skip": _only("false", "the snapshot is exact"),
            "connect.timeout": "connect_timeout",
        },
        {
            "changelog-mode": "it follows from the table's REPLICA IDENTITY; without FULL, rows are normalised by key",
            "scan.snapshot.fetch.size": "a chunk is read with one query",
            "scan.incremental.snapshot.chunk.key-column": "chunks are read by the whole key",
            "scan.incremental.close-idle-reader.enabled": OF_FLINKS_RUNTIME,
            "scan.incremental.snapshot.unbounded-chunk-first.enabled": "chunks are read in the order of the key",
            "scan.lsn-commit.checkpoints-num-delay": "the slot is told of each checkpoint that is stored",
            "chunk-meta.group.size": OF_FLINKS_RUNTIME,
            "chunk-key.even-distribution.factor.upper-bound": "chunks have the same number of rows, whatever the keys are",
            "chunk-key.even-distribution.factor.lower-bound": "chunks have the same number of rows, whatever the keys are",
            "connect.max-retries": _ON_CONNECTIONS,
            "connection.pool.size": _ON_CONNECTIONS,
            "heartbeat.interval": "positions move with the log, also while the table is idle",
            "heartbeat.interval.ms": "positions move with the log, also while the table is idle",
            "debezium.slot.name": "the slot is named by slot.name",
            "debezium.snapshot.mode": _OF_DEBEZIUM,
            "debezium.plugin.name": _OF_DEBEZIUM,
            "debezium.snapshot.fetch.size": _OF_DEBEZIUM,
            "debezium.slot.drop.on.stop": "a slot is kept: it holds what a job that goes on needs",
        },
        columns_option="columns",
    )
}
