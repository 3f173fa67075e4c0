"""How SQL texts write the options of MySQL tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headrace.interfaces.table_options import UNUSED_OF_JDBC, TableOption, TableOptions
from headrace_changes.databases.table_options import FOLLOWED, FOLLOWED_UNUSED, OF_DEBEZIUM, plain_name


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
    "connection.max-retry-timeout": "connect_timeout",
}
_UNUSED = {
    "driver": "there is one driver",
    "scan.fetch-size": "rows are read by ranges of their key",
    "scan.auto-commit": "rows are read by ranges of their key",
    **UNUSED_OF_JDBC,
}
_NAMES = ("mysql", "jdbc", "db", "rds")

SOURCE_TABLES: Mapping[str, TableOptions] = dict.fromkeys(_NAMES, TableOptions(_OPTIONS, _UNUSED))
SINK_TABLES: Mapping[str, TableOptions] = dict.fromkeys(
    _NAMES, TableOptions(_OPTIONS, _UNUSED, with_key=lambda key: {"mode": "upsert"})
)


#: Flink CDC's: https://nightlies.apache.org/flink/flink-cdc-docs-stable/docs/connectors/flink-sources/mysql-cdc/
CHANGES_TABLES: Mapping[str, TableOptions] = {
    "mysql-cdc": TableOptions(
        {**FOLLOWED, "database-name": plain_name("database"), "table-name": plain_name("table", after_point=True)},
        {
            **FOLLOWED_UNUSED,
            "server-time-zone": "sessions use UTC; a TIMESTAMP is an instant, whatever the server's zone is",
            "debezium.min.row.count.to.stream.results": OF_DEBEZIUM,
            "debezium.snapshot.locking.mode": "no locks are taken",
            "debezium.database.server.name": OF_DEBEZIUM,
        },
        columns_option="columns",
    )
}
