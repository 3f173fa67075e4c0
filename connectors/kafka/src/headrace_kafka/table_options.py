"""How SQL texts write the options of Kafka tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOption, TableOptions, ignored


def _startup(text: str) -> Mapping[str, Any]:
    starts = {"earliest-offset": "earliest", "latest-offset": "latest"}
    if text in ("group-offsets", "timestamp"):
        return {}
    if text not in starts:
        raise ValueError("earliest-offset, latest-offset, group-offsets or timestamp")
    return {"start": starts[text]}


def _from_time(text: str) -> Mapping[str, Any]:
    if not re.fullmatch(r"-?\d+", text):
        raise ValueError("milliseconds since 1970")
    return {"start": datetime.fromtimestamp(int(text) / 1000, UTC)}


def _with_key(key: Sequence[str]) -> Mapping[str, Any]:
    return {"key": key[0]} if len(key) == 1 else {}


_CONNECTION: Mapping[str, TableOption] = {"topic": "topic", "properties.bootstrap.servers": "servers"}
_UNUSED = {
    "sink.partitioner": "partitions follow the key",
    "sink.parallelism": OF_FLINKS_RUNTIME,
    "scan.parallelism": OF_FLINKS_RUNTIME,
    "scan.topic-partition-discovery.interval": OF_FLINKS_RUNTIME,
    "key.format": "keys are texts",
    "value.fields-include": OF_FLINKS_RUNTIME,
}
#: Other properties go to the client.
_PREFIXES = {"properties.": "conf"}

SOURCE_TABLES: Mapping[str, TableOptions] = {
    "kafka": TableOptions(
        {
            **_CONNECTION,
            "properties.group.id": "group",
            "scan.startup.mode": _startup,
            "scan.startup.timestamp-millis": _from_time,
        },
        _UNUSED,
        _PREFIXES,
        format="json",
    )
}
SINK_TABLES: Mapping[str, TableOptions] = {
    "kafka": TableOptions(
        {
            **_CONNECTION,
            "key.fields": "key",
            "sink.transactional-id-prefix": "transactional_id",
            "properties.group.id": ignored,
            "scan.startup.mode": ignored,
        },
        _UNUSED,
        _PREFIXES,
        with_key=_with_key,
    ),
    "upsert-kafka": TableOptions(
        _CONNECTION,
        {"key.format": "keys are texts", "sink.parallelism": OF_FLINKS_RUNTIME},
        _PREFIXES,
        with_key=_with_key,
    ),
}
