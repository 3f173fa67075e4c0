"""What the tests of changes share: readers, changes as tuples, and the table that changes make."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import polars as pl
from headrace.flow.messages import CHANGE, ChangeKind, RawBatch
from headrace.interfaces.source import EARLIEST, Reader, StartPosition
from headrace_postgres import PostgresChangesSettings, PostgresChangesSource
from postgres_world import PostgresDatabase

from tests.change_readers import SECOND, opened_reader


def changes_of(database: PostgresDatabase, **more: Any) -> PostgresChangesSource:
    """Return a source as a job has it."""
    source = PostgresChangesSource(PostgresChangesSettings.of(database.options(**more), plugin="postgres_changes"))
    source.check()
    return source


def opened(database: PostgresDatabase, start: StartPosition = EARLIEST, **more: Any) -> AbstractContextManager[Reader]:
    return opened_reader(changes_of(database, **more), start)


def read_until_stopped(reader: Reader, batches: list[RawBatch]) -> None:
    """Read until an error, which is raised; ``batches`` is given what came before it."""
    for _ in range(20):
        if (raw := reader.poll(10, SECOND)) is not None:
            batches.append(raw)


def changes_in(batches: Sequence[RawBatch]) -> list[tuple[Any, ...]]:
    """Return (kind, values …) of each row."""
    frames = [raw.frame for raw in batches if raw.frame is not None]
    return pl.concat(frames).select(CHANGE, pl.exclude(CHANGE)).rows() if frames else []


def applied(rows: Sequence[tuple[Any, ...]], *, full: bool) -> dict[Any, tuple[Any, ...]]:
    """Return the table that changes make, by its first column. With old rows, each must be the one that is there."""
    table: dict[Any, tuple[Any, ...]] = {}
    for kind, *values in rows:
        row = tuple(values)
        if kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER):
            if full:
                assert row[0] not in table, f"{row} comes, but {table[row[0]]} is there"
            table[row[0]] = row
        else:
            if full:
                assert table.get(row[0]) == row, f"{row} goes, but {table.get(row[0])} is there"
            table.pop(row[0], None)
    return table


def table_of(database: PostgresDatabase, columns: str = "*") -> dict[Any, tuple[Any, ...]]:
    return {row[0]: row for row in database.execute(f"SELECT {columns} FROM t")}  # noqa: S608
