"""What the tests of changes share: readers, changes as tuples, and the table that changes make."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import polars as pl
from headrace.flow.messages import CHANGE, ChangeKind, RawBatch, ReadPosition
from headrace.interfaces.source import EARLIEST, LATEST, Reader, StartPosition
from headrace_mysql import MySQLChangesSettings, MySQLChangesSource
from mysql_world import Database

from tests.change_readers import opened_reader


def changes_of(database: Database, **more: Any) -> MySQLChangesSource:
    """Return a source as a job has it."""
    source = MySQLChangesSource(MySQLChangesSettings.of(database.options(**more), plugin="mysql_changes"))
    source.check()
    return source


def opened(database: Database, start: StartPosition = EARLIEST, **more: Any) -> AbstractContextManager[Reader]:
    return opened_reader(changes_of(database, **more), start)


def latest(database: Database, **more: Any) -> ReadPosition:
    """Return where the log ends now."""
    with opened(database, LATEST, **more) as reader:
        return reader.position


def frame_of(batches: Sequence[RawBatch]) -> pl.DataFrame:
    frames = [raw.frame for raw in batches if raw.frame is not None]
    return pl.concat(frames) if frames else pl.DataFrame()


def changes_in(batches: Sequence[RawBatch]) -> list[tuple[Any, ...]]:
    """Return (kind, values …) of each row."""
    frame = frame_of(batches)
    if not frame.width:
        return []
    without_zones = pl.col(pl.Datetime("us", "UTC")).dt.replace_time_zone(None)  # as the driver gives them
    return frame.with_columns(without_zones).select(CHANGE, pl.exclude(CHANGE)).rows()


def applied(rows: Sequence[tuple[Any, ...]], table: list[tuple[Any, ...]] | None = None) -> list[tuple[Any, ...]]:
    """Return the table that changes make, sorted. Fails when a row is taken away that is not there."""
    counts: dict[tuple[Any, ...], int] = {}
    for row in table or []:
        counts[row] = counts.get(row, 0) + 1
    for kind, *values in rows:
        row = tuple(values)
        if kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER):
            counts[row] = counts.get(row, 0) + 1
        else:
            assert counts.get(row, 0) > 0, f"{row} is taken away, but is not there"
            counts[row] -= 1
    return sorted((row for row, count in counts.items() for _ in range(count)), key=_texts)


def table_of(database: Database, table: str = "t", columns: str = "*") -> list[tuple[Any, ...]]:
    return sorted(database.execute(f"SELECT {columns} FROM `{table}`"), key=_texts)  # noqa: S608


def _texts(row: tuple[Any, ...]) -> list[str]:
    return [str(value) for value in row]
