"""The server's description of a table: its columns, its unique keys, whether it has transactions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.foundation.errors import JobError, did_you_mean

from headrace_mysql.connection import is_mariadb, translating
from headrace_mysql.settings import MySQLSettings


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as ``information_schema`` describes it, types in lower case."""

    name: str
    #: ``decimal``
    kind: str
    #: ``decimal(12,2) unsigned``
    full_type: str
    nullable: bool = True
    has_default: bool = False
    auto_increment: bool = False
    precision: int = 0
    scale: int = 0
    #: Of a text; empty for other types.
    character_set: str = ""
    collation: str = ""
    #: Longest text, in characters.
    length: int = 0

    @property
    def unsigned(self) -> bool:
        return "unsigned" in self.full_type


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view."""

    columns: Mapping[str, TableColumn]
    #: Names of the columns of each unique index, by its name; the primary key's is ``PRIMARY``.
    unique_keys: Mapping[str, tuple[str, ...]]
    #: The storage engine; None for a view.
    engine: str | None
    #: Whether the engine has transactions; None for a view.
    transactional: bool | None

    @property
    def primary_key(self) -> tuple[str, ...]:
        return self.unique_keys.get("PRIMARY", ())


def describe(connection: Any, settings: MySQLSettings) -> Table | None:
    """Return the table as the user may see it; None when the user may not see it."""
    place = (settings.database, settings.table)
    with translating(settings), connection.cursor() as cursor:
        cursor.execute(
            "SELECT t.engine, e.transactions FROM information_schema.tables t LEFT JOIN information_schema.engines e"
            " ON e.engine = t.engine WHERE t.table_schema = %s AND t.table_name = %s",
            place,
        )
        found = cursor.fetchone()
        if found is None:
            connection.rollback()
            return None
        cursor.execute(
            "SELECT column_name, data_type, column_type, is_nullable, column_default, extra, numeric_precision,"
            " numeric_scale, character_set_name, collation_name, character_maximum_length FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            place,
        )
        columns = [_column(*row) for row in cursor.fetchall()]
        cursor.execute(
            "SELECT index_name, column_name FROM information_schema.statistics WHERE table_schema = %s"
            " AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index",
            place,
        )
        keys: dict[str, tuple[str, ...]] = {}
        for index, name in cursor.fetchall():
            # An index over an expression has no column name: it cannot be used as a key here.
            keys[index] = (*keys.get(index, ()), name or "")
        connection.rollback()
    engine, transactions = found
    return Table({column.name: column for column in columns}, keys, engine, engine and transactions == "YES")


def no_such_table(connection: Any, settings: MySQLSettings, *, hint: str = "") -> JobError:
    """Return the error for a table that does not exist, with the most similar name."""
    with translating(settings), connection.cursor() as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (settings.database,))
        names = [name for (name,) in cursor.fetchall()]
        connection.rollback()
    return JobError(
        f"MySQL at {settings.host}:{settings.port}: there is no table {settings.table!r} in database"
        f" {settings.database!r} that user {settings.user!r} may see",
        plugin="mysql",
        option="table",
        hint=did_you_mean(settings.table, names, known="tables") + hint,
    )


def next_automatic_key(connection: Any, settings: MySQLSettings) -> int | None:
    """Return the next value of the table's AUTO_INCREMENT column, None when it has none."""
    with translating(settings), connection.cursor() as cursor:
        if not is_mariadb(connection):
            # MySQL 8 would give a value that can be a day old.
            cursor.execute("SET SESSION information_schema_stats_expiry = 0")
        cursor.execute(
            "SELECT auto_increment FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            (settings.database, settings.table),
        )
        found = cursor.fetchone()
    return None if found is None or found[0] is None else int(found[0])


def _column(
    name: str,
    kind: str,
    full_type: str,
    nullable: str,
    default: Any,
    extra: str | None,
    precision: Any,
    scale: Any,
    character_set: str | None,
    collation: str | None,
    length: Any,
) -> TableColumn:
    extra = (extra or "").lower()
    automatic = "auto_increment" in extra
    return TableColumn(
        name=name,
        kind=kind.lower(),
        full_type=_lower_outside_of_texts(full_type),
        nullable=nullable == "YES",
        has_default=default is not None or automatic or "generated" in extra,
        auto_increment=automatic,
        precision=int(precision or 0),
        scale=int(scale or 0),
        character_set=(character_set or "").lower(),
        collation=(collation or "").lower(),
        length=int(length or 0),
    )


def _lower_outside_of_texts(full_type: str) -> str:
    """Return a type in lower case, but the texts of an ENUM or SET as they are."""
    return re.sub(r"'(?:[^']|'')*'|[^']+", lambda part: part[0] if part[0][0] == "'" else part[0].lower(), full_type)
