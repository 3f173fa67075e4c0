"""The statements with which a sink writes rows: COPY, and by key over a table of its session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.foundation.errors import JobError

from headrace_postgres.connection import listed, place_of, quoted, quoted_table
from headrace_postgres.copy_text import copy_text
from headrace_postgres.settings import PostgresSinkSettings
from headrace_postgres.tables import KINDS, VIEW, Table

if TYPE_CHECKING:
    import polars as pl

#: Tables of the session, emptied when a transaction ends.
_ROWS, _KEYS = "headrace_rows", "headrace_keys"


def upsert_key(settings: PostgresSinkSettings, table: Table, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns by which rows replace others: the primary key, else a unique key whose columns the stream has.

    ``names``: the columns that are written; None when they are known only row by row. Raises JobError.
    """
    for columns in table.unique_keys.values():
        if names is None or set(columns) <= set(names):
            return columns
    known = "; ".join(f"({', '.join(columns)})" for columns in table.unique_keys.values())
    lacking = f"has only {known}, of which the stream lacks columns" if known else "has none"
    raise JobError(
        f"PostgreSQL at {settings.host}:{settings.port}, table {place_of(settings)}: mode 'upsert' needs a primary or unique key, and "
        f"the {KINDS[table.kind]} {lacking}",
        plugin="postgres",
        option="mode",
        hint="add a key to the table, or use mode='insert'",
    )


@dataclass(frozen=True)
class TableWriter:
    """Writes frames into a table, on one connection and in its transaction. ``target`` names the column of the table."""

    settings: PostgresSinkSettings
    table: Table
    target: Callable[[str], str]
    #: The columns by which rows replace others; none: rows are only added.
    key: tuple[str, ...]

    def prepared(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, bytes]:
        """Return the rows that are written, the last one of each key, and their text. Slow work, done before the transaction."""
        by_target = {self.target(name): name for name in frame.columns}
        if self.key:
            named = [by_target[name] for name in self.key if name in by_target]
            frame = frame.unique(subset=named, keep="last", maintain_order=True)
        columns = {name: self.table.columns[self.target(name)] for name in frame.columns}
        return frame, copy_text(frame, columns)

    def write(self, cursor: Any, frame: pl.DataFrame, text: bytes) -> None:
        """Store the rows."""
        names = [self.target(name) for name in frame.columns]
        if not self.key and self.table.kind != VIEW:
            self._copy(cursor, f"{quoted_table(self.settings)} ({listed(names)})", text)
            return
        self._make_temporary(cursor, _ROWS, names)
        self._copy(cursor, f"pg_temp.{quoted(_ROWS)} ({listed(names)})", text)
        cursor.execute(self.upsert(names, f"pg_temp.{quoted(_ROWS)}"))

    def upsert(self, names: Sequence[str], rows: str) -> str:
        """Return the statement that stores rows of another table, by key if there is one."""
        if not self.key:
            # Rows are copied into tables only; a view takes them from a query.
            return f"INSERT INTO {quoted_table(self.settings)} ({listed(names)}) SELECT {listed(names)} FROM {rows}"  # noqa: S608
        changed = [name for name in names if name not in self.key]
        action = "NOTHING"
        if changed:
            action = "UPDATE SET " + ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in changed)
        return (
            f"INSERT INTO {quoted_table(self.settings)} ({listed(names)}) SELECT {listed(names)} FROM {rows}"  # noqa: S608
            f" ON CONFLICT ({listed(self.key)}) DO {action}"
        )

    def delete(self, cursor: Any, keys: pl.DataFrame, text: bytes) -> None:
        """Delete the rows with these keys. NULL in a key is compared as a value."""
        import polars as pl

        names = [self.target(name) for name in keys.columns]
        self._make_temporary(cursor, _KEYS, names)
        self._copy(cursor, f"pg_temp.{quoted(_KEYS)} ({listed(names)})", text)
        # IS NOT DISTINCT FROM uses no index, so it is written for keys with NULL alone.
        has_null = bool(keys.select(pl.any_horizontal(pl.all().is_null()).any()).item())
        for operator in ("=", "IS NOT DISTINCT FROM") if has_null else ("=",):
            same = " AND ".join(f"t.{quoted(name)} {operator} k.{quoted(name)}" for name in names)
            cursor.execute(
                f"DELETE FROM {quoted_table(self.settings)} AS t USING pg_temp.{quoted(_KEYS)} AS k WHERE {same}"  # noqa: S608
            )

    def _make_temporary(self, cursor: Any, name: str, names: Sequence[str]) -> None:
        """Make the session's table for rows of these columns, unless it is there."""
        cursor.execute(
            "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
            " AND NOT attisdropped",
            (f"pg_temp.{name}",),
        )
        [(found,)] = cursor.fetchall()
        if found == list(names):
            return
        if found:
            cursor.execute(f"DROP TABLE pg_temp.{quoted(name)}")
        cursor.execute(
            f"CREATE TEMPORARY TABLE {quoted(name)} ON COMMIT DELETE ROWS AS"  # noqa: S608
            f" SELECT {listed(names)} FROM {quoted_table(self.settings)} WITH NO DATA"
        )

    def _copy(self, cursor: Any, into: str, text: bytes) -> None:
        with cursor.copy(f"COPY {into} FROM STDIN") as copy:
            copy.write(text)
