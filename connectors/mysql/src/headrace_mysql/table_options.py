"""How SQL texts write the options of MySQL tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOption, TableOptions


def _jdbc(text: str) -> Mapping[str, Any]:
    found = re.fullmatch(r"jdbc:(?:mysql|mariadb)://([^:/?]+)(?::(\d+))?/([^?]+)(\?.*)?", text)
    if found is None:
        raise ValueError("only jdbc:mysql://host:port/database is supported")
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
_CHANGES = TableOptions(refused="changes of a MySQL table are not read; use 'jdbc', or a topic with the changes")

SOURCE_TABLES: Mapping[str, TableOptions] = {
    **dict.fromkeys(_NAMES, TableOptions(_OPTIONS, _UNUSED)),
    "mysql-cdc": _CHANGES,
}
SINK_TABLES: Mapping[str, TableOptions] = {
    **dict.fromkeys(_NAMES, TableOptions(_OPTIONS, _UNUSED, with_key=lambda key: {"mode": "upsert"})),
    "mysql-cdc": _CHANGES,
}
