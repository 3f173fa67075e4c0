"""How SQL texts write the options of Elasticsearch tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOption, TableOptions


def _hosts(text: str) -> Mapping[str, Any]:
    hosts = [each.strip() for each in text.split(";") if each.strip()]
    return {"url": hosts[0] if len(hosts) == 1 else hosts}


def _with_key(key: Sequence[str]) -> Mapping[str, Any]:
    return {"id": key[0] if len(key) == 1 else list(key)}


def _guarantee(text: str) -> Mapping[str, Any]:
    if text not in ("at-least-once", "none"):
        raise ValueError("at-least-once: a repeated document with an id overwrites itself")
    return {}


def _path_prefix(text: str) -> Mapping[str, Any]:
    raise ValueError("this option does not exist: write the path in 'hosts', as in 'https://search:9200/v1'")


_OPTIONS: Mapping[str, TableOption] = {
    "hosts": _hosts, "index": "index", "username": "user", "password": "password", "socket.timeout": "request_timeout",
    "connection.path-prefix": _path_prefix,
}  # fmt: skip
_SINK_OPTIONS: Mapping[str, TableOption] = {
    **_OPTIONS,
    "document-id.key-delimiter": "id_delimiter",
    "sink.delivery-guarantee": _guarantee,
}
_NOT_KEPT = "a document that is refused goes to the dead letters; bad_records='stop' lets it end the job"
_UNUSED = {
    "document-type": "newer servers have none",
    "failure-handler": _NOT_KEPT,
    **dict.fromkeys(
        (
            "sink.bulk-flush.max-actions",
            "sink.bulk-flush.max-size",
            "sink.bulk-flush.interval",
            "sink.bulk-flush.backoff.strategy",
            "sink.bulk-flush.backoff.max-retries",
            "sink.bulk-flush.backoff.delay",
            "sink.flush-on-checkpoint",
            "sink.parallelism",
            "connection.timeout",
            "connection.request-timeout",
            "connection.max-retry-timeout",
        ),
        OF_FLINKS_RUNTIME,
    ),
}
_NAMES = ("elasticsearch", "elasticsearch-7", "elasticsearch-8", "es")

SOURCE_TABLES: Mapping[str, TableOptions] = dict.fromkeys(_NAMES, TableOptions(_OPTIONS, _UNUSED))
SINK_TABLES: Mapping[str, TableOptions] = dict.fromkeys(
    _NAMES, TableOptions(_SINK_OPTIONS, _UNUSED, with_key=_with_key)
)
