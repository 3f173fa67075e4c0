"""How SQL texts write the options of tables whose changes are followed: those of Flink CDC that all databases have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOption

#: Why an option of Debezium has no effect.
OF_DEBEZIUM = "the log is read without Debezium"
_ON_CONNECTIONS = "connections are opened when they are needed, and tried again while retry_timeout lasts"
_EVEN_CHUNKS = "chunks have the same number of rows, whatever the keys are"


def startup(text: str) -> Mapping[str, Any]:
    """Take ``scan.startup.mode``."""
    starts = {"initial": "earliest", "latest-offset": "latest"}
    if text not in starts:
        raise ValueError("initial or latest-offset")
    return {"start": starts[text]}


def plain_name(option: str, *, after_point: bool = False) -> TableOption:
    """Return what takes the name of one thing. ``after_point``: what stands before a point, its database, is left out."""

    def made(text: str) -> Mapping[str, Any]:
        if re.search(r"[*+?|()\[\]{}^,\\]", text):
            raise ValueError("the name of one table; patterns are not supported")
        return {option: text.rpartition(".")[2] if after_point else text}

    return made


def only(wanted: str, why: str) -> TableOption:
    """Return what takes one value and refuses all others."""

    def made(text: str) -> Mapping[str, Any]:
        if text.lower() != wanted:
            raise ValueError(f"only {wanted}: {why}")
        return {}

    return made


#: Options with a meaning here.
FOLLOWED: Mapping[str, TableOption] = {
    "hostname": "host",
    "username": "user",
    "scan.startup.mode": startup,
    "scan.incremental.snapshot.enabled": only("true", "a snapshot is always read in chunks, without locks"),
    "scan.incremental.snapshot.chunk.size": "chunk_rows",
    "scan.newly-added-table.enabled": only("false", "a source reads one table"),
    "scan.read-changelog-as-append-only.enabled": only("false", "rows that change are given as changes"),
    "scan.incremental.snapshot.backfill.skip": only("false", "the snapshot is exact"),
    "connect.timeout": "connect_timeout",
}
#: Options that are read and have no effect, and why.
FOLLOWED_UNUSED: Mapping[str, str] = {
    "scan.snapshot.fetch.size": "a chunk is read with one query",
    "scan.incremental.snapshot.chunk.key-column": "chunks are read by the whole key",
    "scan.incremental.close-idle-reader.enabled": OF_FLINKS_RUNTIME,
    "scan.incremental.snapshot.unbounded-chunk-first.enabled": "chunks are read in the order of the key",
    "chunk-meta.group.size": OF_FLINKS_RUNTIME,
    "chunk-key.even-distribution.factor.upper-bound": _EVEN_CHUNKS,
    "chunk-key.even-distribution.factor.lower-bound": _EVEN_CHUNKS,
    "connect.max-retries": _ON_CONNECTIONS,
    "connection.pool.size": _ON_CONNECTIONS,
    "heartbeat.interval": "positions move with the log, also while the table is idle",
    "debezium.snapshot.mode": OF_DEBEZIUM,
    "debezium.snapshot.fetch.size": OF_DEBEZIUM,
}
