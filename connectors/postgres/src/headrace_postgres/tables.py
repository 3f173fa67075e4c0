"""The server's description of a table: its columns, its unique keys, how it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.foundation.errors import JobError, did_you_mean

from headrace_postgres.connection import translating
from headrace_postgres.settings import PostgresSettings

#: https://www.postgresql.org/docs/current/catalog-pg-class.html
KINDS = {
    "r": "table", "p": "partitioned table", "v": "view", "m": "materialized view", "f": "foreign table", "S": "sequence",
    "c": "composite type",
}  # fmt: skip
TABLE, PARTITIONED, VIEW = "r", "p", "v"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as the catalog describes it. A domain counts as the type below it."""

    name: str
    #: The type's name in the catalog: ``int4``, ``varchar``, ``timestamptz``.
    kind: str
    #: As SQL writes it: ``numeric(12,2)``.
    full_type: str
    #: Kind of type, as the catalog has it: ``E`` for an enum, ``A`` for an array.
    category: str = "U"
    nullable: bool = True
    has_default: bool = False
    #: Whether the server generates its values, so that none may be written.
    generated: bool = False
    #: Whether they are computed from other columns, which the log does not have.
    computed: bool = False
    precision: int = 0
    scale: int = 0
    #: As SQL writes it; empty: that of the type.
    collation: str = ""
    #: Number of the column's type in the catalog.
    type_number: int = 0
    #: Number of the column in its table, which it keeps when it is renamed.
    number: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view."""

    columns: Mapping[str, TableColumn]
    #: Names of the columns of each unique index without condition, by its name. The primary key comes first.
    unique_keys: Mapping[str, tuple[str, ...]]
    #: Key of ``KINDS``.
    kind: str
    primary_key: tuple[str, ...] = ()
    #: Whether it survives a crash of the server: not UNLOGGED, not TEMPORARY.
    durable: bool = True
    #: Which old columns the log contains: ``d`` those of the primary key, ``f`` all, ``i`` those of an index, ``n``
    #: none.
    replica_identity: str = "d"
    #: The columns of that index.
    identity_key: tuple[str, ...] = ()
    #: Number of the table in the catalog.
    number: int = 0


_TABLE = """
SELECT c.oid::int8, c.relkind, c.relpersistence, c.relreplident FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS = """
SELECT a.attname, b.typname, format_type(b.oid, CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END), b.typcategory,
  NOT (a.attnotnull OR t.typnotnull), a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL,
  a.attgenerated <> '' OR a.attidentity = 'a', a.attgenerated <> '', CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
  coalesce((SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname) FROM pg_collation l JOIN pg_namespace n
    ON n.oid = l.collnamespace WHERE l.oid = a.attcollation AND a.attcollation <> t.typcollation), ''),
  t.oid::int8, a.attnum::int4
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS = """
SELECT i.relname, x.indisprimary, x.indisreplident,
  (SELECT array_agg(coalesce(a.attname, '') ORDER BY k.place) FROM unnest(x.indkey::int2[]) WITH ORDINALITY k(number, place)
   LEFT JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.number WHERE k.place <= x.indnkeyatts)::text[]
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
WHERE x.indrelid = %s AND x.indisunique AND x.indisvalid AND x.indpred IS NULL AND x.indimmediate
ORDER BY x.indisprimary DESC, i.relname
"""


def describe(connection: Any, settings: PostgresSettings) -> Table | None:
    """Return the table, or None if it does not exist."""
    with translating(settings), connection.cursor() as cursor:
        cursor.execute(_TABLE, (settings.schema, settings.table))
        found = cursor.fetchone()
        if found is None:
            connection.rollback()
            return None
        number, kind, persistence, identity = found
        cursor.execute(_COLUMNS, (number,))
        columns = [_column(*row) for row in cursor.fetchall()]
        cursor.execute(_KEYS, (number,))
        keys = cursor.fetchall()
        connection.rollback()
    return Table(
        columns={column.name: column for column in columns},
        # An index over an expression has no column name: it cannot be used as a key here.
        unique_keys={name: tuple(names) for name, _, _, names in keys if all(names)},
        kind=kind,
        primary_key=next((tuple(names) for _, primary, _, names in keys if primary), ()),
        durable=persistence == "p",
        replica_identity=identity,
        identity_key=next((tuple(names) for _, _, chosen, names in keys if chosen), ()),
        number=number,
    )


def no_such_table(connection: Any, settings: PostgresSettings, *, hint: str = "") -> JobError:
    """Return the error for a table that does not exist, with the most similar name."""
    with translating(settings), connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'v')",
            (settings.schema,),
        )
        names = [name for (name,) in cursor.fetchall()]
        connection.rollback()
    return JobError(
        f"PostgreSQL at {settings.host}:{settings.port}: there is no table {settings.table!r} in the schema"
        f" {settings.schema!r} of database {settings.database!r}",
        plugin="postgres",
        option="table",
        hint=did_you_mean(settings.table, names, known="tables") + hint,
    )


def _column(
    name: str,
    kind: str,
    full_type: str,
    category: str,
    nullable: bool,
    default: bool,
    generated: bool,
    computed: bool,
    modifier: int,
    collation: str,
    type_number: int,
    number: int,
) -> TableColumn:
    precision, scale = numeric_digits(modifier) if kind == "numeric" else (0, 0)
    return TableColumn(
        name, kind, full_type, category, nullable, default or generated, generated, computed, precision, scale, collation, type_number,
        number,
    )  # fmt: skip


def numeric_digits(modifier: int) -> tuple[int, int]:
    """Return precision and scale of a numeric by its type's modifier; zeros when it has none."""
    if modifier < 4:
        return 0, 0
    # As numeric.c packs it; from version 15 on the scale has eleven bits and may be negative.
    return (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4 & 0x7FF) ^ 1024) - 1024
