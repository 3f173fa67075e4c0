"""Columns of PARTITIONED BY whose values are in the names of queues: ``day=2024-01-31/hour=7/part.json``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace_sql.binding import types
from headrace_sql.binding.tables import Table
from headrace_sql.binding.trees import physical, text_of

if TYPE_CHECKING:
    from headrace.jobs.dsl import Stream

#: The temporary column with the name of the queue.
QUEUE = "__partition_queue"
#: The directory of NULL, as Flink and headrace call it, and as Hive and Spark do.
_DEFAULTS = ("__DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__")


def columns_of_records(table: Table, by_queue: Sequence[str], format_name: str | None) -> Mapping[str, Any]:
    """Return the columns that records may have. Of JSON those of the partitions, too: files that are in no such directory have them."""
    if format_name == "json":
        return table.columns
    return {name: kind for name, kind in table.columns.items() if name not in by_queue}


def with_partitions(stream: Stream, table: Table, by_queue: Sequence[str]) -> Stream:
    """Return a stream with the columns that the names of its queues have, in the order of the table."""
    added = {}
    for name in by_queue:
        # The last one: the table itself may lie in a partition of another one.
        expression = f"^(?:.*/)?{_name_in_directory(name)}=([^/]*)/".replace("'", "''")
        found = f"nullif(regexp_extract({text_of(physical(QUEUE))}, '{expression}', 1), '')"
        # A plus has no special meaning in the names of directories.
        text = f"url_decode(replace({found}, '+', '%2B'))"
        for default in _DEFAULTS:
            text = f"nullif({text}, '{default}')"
        value = f"CAST({text} AS {types.word_for(table.columns[name])})"
        is_there = f"{found} IS NOT NULL"
        own = text_of(physical(name)) if name in (stream.schema or {}) else "NULL"
        added[name] = f"CASE WHEN {is_there} THEN {value} ELSE {own} END"
    made = stream.with_columns(**added)
    others = [name for name in made.schema or {} if name not in table.columns and name != QUEUE]
    return made.select(*(text_of(physical(name)) for name in (*table.columns, *others)))


def _name_in_directory(name: str) -> str:
    """Return an expression for a column's name as directories have it: characters that are no letters may be written as %XX."""
    made = ""
    for each in name:
        coded = "".join(f"%{byte:02X}" for byte in each.encode())
        is_plain = each.isascii() and each.isalnum()
        made += each if is_plain else f"(?:{re.escape(each)}|{coded}|{coded.lower()})"
    return made
