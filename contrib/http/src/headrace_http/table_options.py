"""How SQL texts write the options of HTTP tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOption, TableOptions


def _statuses(name: str) -> Callable[[str], Mapping[str, Any]]:
    def read(text: str) -> Mapping[str, Any]:
        return {name: tuple(int(each) for each in text.split(","))}

    return read


_NAMES = ("stored_statuses", "retry_statuses", "dead_letter_statuses")
_OPTIONS: Mapping[str, TableOption] = {name.replace("_", "-"): _statuses(name) for name in _NAMES}

SOURCE_TABLES: Mapping[str, TableOptions] = {"http": TableOptions()}
SINK_TABLES: Mapping[str, TableOptions] = {
    "http": TableOptions(_OPTIONS, {"sink.parallelism": OF_FLINKS_RUNTIME}, prefixes={"headers.": "headers"})
}
