"""How SQL texts write the options of Elasticsearch tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOption, TableOptions


def _hosts(text: str) -> Mapping[str, Any]:
    return {"url": text.split(";")[0]}


def _with_key(key: Sequence[str]) -> Mapping[str, Any]:
    return {"id": key[0] if len(key) == 1 else None}


_OPTIONS: Mapping[str, TableOption] = {"hosts": _hosts, "index": "index", "username": "user", "password": "password"}
_UNUSED = {"document-type": "newer servers have none", "sink.bulk-flush.max-actions": OF_FLINKS_RUNTIME}
_NAMES = ("elasticsearch", "elasticsearch-7", "elasticsearch-8", "es")

SOURCE_TABLES: Mapping[str, TableOptions] = dict.fromkeys(_NAMES, TableOptions(_OPTIONS, _UNUSED))
SINK_TABLES: Mapping[str, TableOptions] = dict.fromkeys(_NAMES, TableOptions(_OPTIONS, _UNUSED, with_key=_with_key))
