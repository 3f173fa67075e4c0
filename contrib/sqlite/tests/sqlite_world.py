"""A database file of a test, and batches of rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
from headrace.flow.messages import INDEX, OFFSET, Batch, Position, Queue
from headrace.flow.schema import Schema
from headrace.interfaces.sink import SinkBatch
from headrace_sqlite import SQLiteSink, SQLiteSinkSettings


class Database:
    """A file ``a.db`` in a directory, and what a test wants of it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "a.db"

    def options(self, **more: Any) -> dict[str, Any]:
        return {"table": "t", "database": str(self.path), **more}

    def execute(self, *statements: str) -> list[Any]:
        """Execute statements one after the other and return the rows of the last one."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return [connection.execute(statement).fetchall() for statement in statements][-1]

    def rows(self, table: str = "t") -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608

    def sink(self, schema: Mapping[str, Any] | None, **more: Any) -> SQLiteSink:
        """Return a sink that is checked, prepared and opened."""
        sink = SQLiteSink(SQLiteSinkSettings.of(self.options(**more), plugin="sqlite"))
        begin(sink, schema)
        return sink


def begin(sink: SQLiteSink, schema: Mapping[str, Any] | None) -> None:
    made = None if schema is None else Schema.of(schema)
    sink.check(made)
    sink.prepare(made)
    sink.open()


def frame_of(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, Any], first: int = 0) -> pl.DataFrame:
    """Return rows as a sink gets them, with offsets from ``first``."""
    header = pl.DataFrame(
        {OFFSET: range(first, first + len(rows)), INDEX: [0] * len(rows)}, {OFFSET: pl.Int64, INDEX: pl.Int32}
    )
    return pl.DataFrame(list(rows), schema=dict(Schema.of(schema).items())).hstack(header)


def batch_of(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, Any], first: int = 0) -> Batch:
    return Batch(Queue("q"), frame_of(rows, schema, first))


def insert(sink: SQLiteSink, frames: Iterable[pl.DataFrame], after: Position | None = None) -> Position | None:
    """Write frames of one queue one after the other and return its position."""
    for frame in frames:
        batch = SinkBatch(Queue("q"), frame, after)
        sink.batch_insert(batch)
        after = batch.last
    return after
