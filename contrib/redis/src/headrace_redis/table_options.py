"""How SQL texts write the options of Redis tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOptions


def _with_key(key: Sequence[str]) -> Mapping[str, Any]:
    return {"key": list(key)}


SOURCE_TABLES: Mapping[str, TableOptions] = {"redis": TableOptions(format="json")}
SINK_TABLES: Mapping[str, TableOptions] = {
    "redis": TableOptions(unused={"sink.parallelism": OF_FLINKS_RUNTIME}, with_key=_with_key)
}
