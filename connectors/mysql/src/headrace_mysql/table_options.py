"""How SQL texts write the options of MySQL tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOption, TableOptions


def _jdbc(text: str) -> Mapping[str, Any]:
    found = re.fullmatch(r"jdbc:(?:mysql|mariadb)://([^:/?]+)(?::(\d+))?/([^?]+)(\?.*)?", text)
    if found is None:
        raise ValueError(
            "only jdbc:mysql://host:port/database is supported, and jdbc:postgresql: with headrace-postgres"
        )
    made: dict[str, Any] = {"host": found[1], "database": found[3]}
    return {**made, "port": int(found[2])} if found[2] else made


_OPTIONS: Mapping[str, TableOption] = {
    "url": _jdbc,
    "table-name": "table",
    "tableName": "table",
    "username": "user",
    "userName": "user",
    "password": "password",
}
_UNUSED = {
    "driver": "there is one driver",
    "lookup.cache.max-rows": OF_FLINKS_RUNTIME,
    "sink.buffer-flush.max-rows": OF_FLINKS_RUNTIME,
    "sink.buffer-flush.interval": OF_FLINKS_RUNTIME,
}
_NAMES = ("mysql", "jdbc", "db", "rds")

SOURCE_TABLES: Mapping[str, TableOptions] = dict.fromkeys(_NAMES, TableOptions(_OPTIONS, _UNUSED))
SINK_TABLES: Mapping[str, TableOptions] = dict.fromkeys(
    _NAMES, TableOptions(_OPTIONS, _UNUSED, with_key=lambda key: {"mode": "upsert"})
)


def _startup(text: str) -> Mapping[str, Any]:
    starts = {"initial": "earliest", "latest-offset": "latest"}
    if text not in starts:
        raise ValueError("initial or latest-offset")
    return {"start": starts[text]}


def _plain_name(option: str) -> TableOption:
    def made(text: str) -> Mapping[str, Any]:
        if re.search(r"[*+?|()\[\]{}^,\\]", text):
            raise ValueError("the name of one; tables are not matched by a pattern")
        return {option: text.rpartition(".")[2] if option == "table" else text}

    return made


def _only(wanted: str, why: str) -> TableOption:
    def made(text: str) -> Mapping[str, Any]:
        if text.lower() != wanted:
            raise ValueError(f"only {wanted}: {why}")
        return {}

    return made


_OF_DEBEZIUM = "the log is read without Debezium"
_ON_CONNECTIONS = "connections are opened when they are needed, and tried again while retry_timeout lasts"
#: Flink CDC's: https://nightlies.apache.org/flink/flink-cdc-docs-stable/docs/connectors/flink-sources/mysql-cdc/
CHANGES_TABLES: Mapping[str, TableOptions] = {
    "mysql-cdc": TableOptions(
        {
            "hostname": "host",
            "username": "user",
            "database-name": _plain_name("database"),
            "table-name": _plain_name("table"),
            "scan.startup.mode": _startup,
            "scan.incremental.snapshot.enabled": _only("true", "a snapshot is always read in chunks, without locks"),
            "scan.incremental.snapshot.chunk.size": "chunk_rows",
            "scan.newly-added-table.enabled": _only("false", "a source reads one table"),
            "scan.read-changelog-as-append-only.enabled": _only("false", "rows that change are given as changes"),
            "scan.incremental.snapshot.backfill.skip": _only("false", "the snapshot is exact"),
            "connect.timeout": "connect_timeout",
        },
        {
            "server-time-zone": "sessions use UTC; a TIMESTAMP is an instant, whatever the server's zone is",
            "scan.snapshot.fetch.size": "a chunk is read with one query",
            "scan.incremental.snapshot.chunk.key-column": "chunks are read by the whole key",
            "scan.incremental.close-idle-reader.enabled": OF_FLINKS_RUNTIME,
            "scan.incremental.snapshot.unbounded-chunk-first.enabled": "chunks are read in the order of the key",
            "chunk-meta.group.size": OF_FLINKS_RUNTIME,
            "chunk-key.even-distribution.factor.upper-bound": "chunks have the same number of rows, whatever the keys are",
            "chunk-key.even-distribution.factor.lower-bound": "chunks have the same number of rows, whatever the keys are",
            "connect.max-retries": _ON_CONNECTIONS,
            "connection.pool.size": _ON_CONNECTIONS,
            "heartbeat.interval": "positions move with the log, also while the table is idle",
            "debezium.snapshot.mode": _OF_DEBEZIUM,
            "debezium.min.row.count.to.stream.results": _OF_DEBEZIUM,
            "debezium.snapshot.fetch.size": _OF_DEBEZIUM,
            "debezium.snapshot.locking.mode": "no locks are taken",
            "debezium.database.server.name": _OF_DEBEZIUM,
        },
        columns_option="columns",
    )
}
