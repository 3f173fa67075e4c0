"""Reads the columns and the unique keys of a table from a database file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace_sqlite.connection import quoted

_COMPUTED = (2, 3)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table."""

    name: str
    #: The type in the CREATE TABLE statement; it may be empty, or any words.
    declared_type: str
    nullable: bool
    has_default: bool
    computed: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table, or a view."""

    #: ``table``, ``view``.
    kind: str
    columns: Mapping[str, TableColumn]
    #: Names of the columns of each unique key, by its name. The primary key comes first.
    unique_keys: Mapping[str, tuple[str, ...]]
    #: The column that is the row number: SQLite chooses a number for NULL.
    numbered: str | None = None


def describe(cursor: Any, name: str) -> Table | None:
    """Return the table; None when there is none."""
    cursor.execute(
        "SELECT type FROM sqlite_schema WHERE type IN ('table', 'view') AND lower(name) = lower(%s)", (name,)
    )
    found = cursor.fetchone()
    if found is None:
        return None
    cursor.execute(f"PRAGMA table_xinfo({quoted(name)})")
    rows = cursor.fetchall()
    primary = tuple(row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5])
    numbered = len(primary) == 1 and next(row[2] for row in rows if row[5]).upper() == "INTEGER"
    columns = {
        row[1]: TableColumn(
            name=row[1],
            declared_type=row[2],
            nullable=not row[3],
            has_default=row[4] is not None or row[6] in _COMPUTED or (numbered and bool(row[5])),
            computed=row[6] in _COMPUTED,
        )
        for row in rows
        if row[6] != 1  # hidden columns of virtual tables
    }
    keys = {"PRIMARY KEY": primary} if numbered else {}
    return Table(found[0], columns, {**keys, **_unique_indexes(cursor, name)}, primary[0] if numbered else None)


def table_names(cursor: Any) -> list[str]:
    """Return the names of all tables."""
    cursor.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
    return [name for (name,) in cursor.fetchall()]


def _unique_indexes(cursor: Any, name: str) -> dict[str, tuple[str, ...]]:
    """Return the keys that identify a row: indexes without a condition, over columns that compare texts
    case-sensitively.
    """
    cursor.execute(f"PRAGMA index_list({quoted(name)})")
    indexes = [row for row in cursor.fetchall() if row[2] and not row[4]]
    found = {}
    for index in sorted(indexes, key=lambda row: (row[3] != "pk", row[1])):
        cursor.execute("SELECT name, coll FROM pragma_index_xinfo(%s) WHERE key = 1 ORDER BY seqno", (index[1],))
        parts = cursor.fetchall()
        if all(column is not None and collation == "BINARY" for column, collation in parts):
            found["PRIMARY KEY" if index[3] == "pk" else index[1]] = tuple(column for column, _ in parts)
    return found
