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
    return {"key": list(key)}


def _key_fields(text: str) -> Mapping[str, Any]:
    return {"key": [name.strip() for name in text.split(";") if name.strip()]}


def _key_format(text: str) -> Mapping[str, Any]:
    return {"key_format": "text" if text == "raw" else text}


def _upsert_key_format(text: str) -> Mapping[str, Any]:
    return {"key_format": text}


def _upsert_key_prefix(text: str) -> Mapping[str, Any]:
    return {"key_prefix": text}


def _delivery(text: str) -> Mapping[str, Any]:
    deliveries = {"exactly-once": "exactly_once", "at-least-once": "at_least_once"}
    if text not in deliveries:
        raise ValueError("exactly-once or at-least-once")
    return {"delivery": deliveries[text]}


def _fields_include(text: str) -> Mapping[str, Any]:
    if text not in ("ALL", "EXCEPT_KEY"):
        raise ValueError("ALL or EXCEPT_KEY")
    return {"value_fields_include": text.lower()}


_CONNECTION: Mapping[str, TableOption] = {"topic": "topic", "properties.bootstrap.servers": "servers"}
_RUNTIME = {
    "sink.parallelism": OF_FLINKS_RUNTIME,
    "scan.parallelism": OF_FLINKS_RUNTIME,
    "scan.topic-partition-discovery.interval": OF_FLINKS_RUNTIME,
    "sink.buffer-flush.max-rows": OF_FLINKS_RUNTIME,
    "sink.buffer-flush.interval": OF_FLINKS_RUNTIME,
}
_SOURCE_UNUSED = {**_RUNTIME, "key.format": "keys are texts", "value.fields-include": OF_FLINKS_RUNTIME}
_SINK_UNUSED = {**_RUNTIME, "sink.partitioner": "partitions follow the key"}
#: Other properties go to the client.
_PREFIXES = {"properties.": "conf"}
_KEY: Mapping[str, TableOption] = {
    "key.format": _key_format, "key.fields": _key_fields, "value.fields-include": _fields_include,
}  # fmt: skip
_TRANSACTIONS: Mapping[str, TableOption] = {
    "sink.transactional-id-prefix": "transactional_id",
    "sink.delivery-guarantee": _delivery,
}

SOURCE_TABLES: Mapping[str, TableOptions] = {
    "kafka": TableOptions(
        {
            **_CONNECTION,
            "properties.group.id": "group",
            "scan.startup.mode": _startup,
            "scan.startup.timestamp-millis": _from_time,
        },
        {**_SOURCE_UNUSED, "sink.partitioner": OF_FLINKS_RUNTIME},
        _PREFIXES,
        format="json",
    ),
    "upsert-kafka": TableOptions(
        {
            **_CONNECTION,
            "properties.group.id": "group",
            "key.format": _upsert_key_format,
            "key.fields-prefix": _upsert_key_prefix,
            "value.fields-include": _fields_include,
        },
        _RUNTIME,
        _PREFIXES,
        format="json",
        upserts=True,
    ),
}
SINK_TABLES: Mapping[str, TableOptions] = {
    "kafka": TableOptions(
        {**_CONNECTION, **_KEY, **_TRANSACTIONS, "properties.group.id": ignored, "scan.startup.mode": ignored},
        _SINK_UNUSED,
        _PREFIXES,
        with_key=_with_key,
    ),
    "upsert-kafka": TableOptions(
        {**_CONNECTION, **_KEY, **_TRANSACTIONS, "properties.group.id": ignored},
        _SINK_UNUSED,
        _PREFIXES,
        with_key=_with_key,
    ),
}
