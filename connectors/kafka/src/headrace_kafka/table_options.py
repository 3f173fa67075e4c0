"""How SQL texts write the options of Kafka tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOption, TableOptions, ignored

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _startup(text: str) -> Mapping[str, Any]:
    starts = {"earliest-offset": "earliest", "latest-offset": "latest"}
    if text in ("group-offsets", "timestamp", "specific-offsets"):
        return {}
    if text not in starts:
        raise ValueError("earliest-offset, latest-offset, group-offsets, timestamp or specific-offsets")
    return {"start": starts[text]}


def _from_offsets(text: str) -> Mapping[str, Any]:
    found = [re.fullmatch(r"\s*partition:(\d+),\s*offset:(\d+)\s*", each) for each in text.split(";") if each.strip()]
    if not found or None in found:
        raise ValueError("partition:0,offset:42;partition:1,offset:300")
    return {"offsets": {int(each[1]): int(each[2]) for each in found if each is not None}}


def _bounded(text: str) -> Mapping[str, Any]:
    if text != "unbounded":
        raise ValueError(
            "unbounded; a run to the end (until='end', the default of headrace run) reads what is there when it starts"
        )
    return {}


def _pattern(text: str) -> Mapping[str, Any]:
    raise ValueError("no option: 'topic' takes several names, separated by commas")


def _semantic(text: str) -> Mapping[str, Any]:
    return _delivery(text.replace("_", "-"))


def _key_prefix(text: str) -> Mapping[str, Any]:
    return {"key_prefix": text}


def _from_time(text: str) -> Mapping[str, Any]:
    try:
        return {"start": _EPOCH + int(text) * timedelta(milliseconds=1)}
    except (ValueError, OverflowError):
        raise ValueError("milliseconds since 1970") from None


def _with_key(key: Sequence[str]) -> Mapping[str, Any]:
    return {"key": list(key)}


def _key_fields(text: str) -> Mapping[str, Any]:
    return {"key": [name.strip() for name in text.split(";") if name.strip()]}


def _key_format(text: str) -> Mapping[str, Any]:
    return {"key_format": "text" if text == "raw" else text}


def _read_key_format(text: str) -> Mapping[str, Any]:
    return {"key_format": text}


def _read_key_fields(text: str) -> Mapping[str, Any]:
    return {"key_columns": _key_fields(text)["key"]}


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
_SINK_UNUSED = {**_RUNTIME, "sink.partitioner": "partitions follow the key"}
#: Other properties go to the client.
_PREFIXES = {"properties.": "conf"}
_KEY: Mapping[str, TableOption] = {
    "key.format": _key_format, "key.fields": _key_fields, "value.fields-include": _fields_include, "key.fields-prefix": _key_prefix,
}  # fmt: skip
_TRANSACTIONS: Mapping[str, TableOption] = {
    "sink.transactional-id-prefix": "transactional_id",
    "sink.delivery-guarantee": _delivery,
    "sink.semantic": _semantic,
}

SOURCE_TABLES: Mapping[str, TableOptions] = {
    "kafka": TableOptions(
        {
            **_CONNECTION,
            "properties.group.id": "group",
            "scan.startup.mode": _startup,
            "scan.startup.timestamp-millis": _from_time,
            "scan.startup.specific-offsets": _from_offsets,
            "scan.bounded.mode": _bounded,
            "topic-pattern": _pattern,
            "key.format": _read_key_format,
            "key.fields": _read_key_fields,
            "key.fields-prefix": _key_prefix,
            "value.fields-include": _fields_include,
        },
        {**_RUNTIME, "sink.partitioner": OF_FLINKS_RUNTIME},
        _PREFIXES,
        format="json",
        keyed=True,
    ),
    "upsert-kafka": TableOptions(
        {
            **_CONNECTION,
            "properties.group.id": "group",
            "key.format": _read_key_format,
            "key.fields-prefix": _key_prefix,
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
        needs_key=True,
    ),
}
