"""A source and sinks for tests of the Spark backend: their state is on disk, where every process sees it.

A module that workers import, as users' own connectors are.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from headrace.flow.messages import INDEX, OFFSET, Batch, Bodies, Position, Queue, RawBatch, ReadPosition
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, JobError, RetriableError
from headrace.interfaces.operator import Operator, OperatorSpec
from headrace.interfaces.readers import OffsetReader
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings, StaleWriterError, TransactionalSink
from headrace.interfaces.source import EARLIEST, LATEST, Reader, Source, StartPosition


class CountingSource(Source):
    """Queues of numbers: record n of queue q is ``{"n": n, "queue": "q"}``. A file per queue says how many there are."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def set_count(self, queue: str, count: int) -> None:
        """Let a queue have that many records; it is created if need be."""
        self.directory.mkdir(parents=True, exist_ok=True)
        new = self.directory / f".{queue}.new"
        new.write_text(str(count), encoding="utf-8")
        new.replace(self.directory / queue)

    def count(self, queue: str) -> int:
        return int((self.directory / queue).read_text(encoding="utf-8"))

    def remove(self, queue: str) -> None:
        (self.directory / queue).unlink()

    def queues(self) -> Collection[Queue]:
        if not self.directory.is_dir():
            raise JobError(f"{self.directory} is no directory", hint="make it first")
        if (self.directory / ".away").exists():
            raise RetriableError("the counting server is away")
        return [Queue(path.name) for path in self.directory.iterdir() if not path.name.startswith(".")]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        offset = start.offset if isinstance(start, ReadPosition) else 0 if start is EARLIEST else self.count(queue.name)
        assert start is LATEST or start is EARLIEST or isinstance(start, ReadPosition)
        return _CountingReader(self, queue, offset)


class _CountingReader(OffsetReader):
    def __init__(self, source: CountingSource, queue: Queue, offset: int) -> None:
        self._source = source
        self._queue = queue
        super().__init__(offset)

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        end = min(self.latest, self._next + max_records)
        if end <= self._next:
            return None
        numbers = range(self._next, end)
        lost = self._source.directory / f".lost-{self._queue.name}"
        if lost.exists() and int(lost.read_text(encoding="utf-8")) >= self._next:
            raise DataError("records are lost", queue=self._queue.id, offset=self._next, hint="look in the bin")
        broken = self._source.directory / f".broken-{self._queue.name}"
        bad = set(json.loads(broken.read_text(encoding="utf-8"))) if broken.exists() else set()
        bodies = [b"{" if n in bad else b'{"n":%d,"queue":"%s"}' % (n, self._queue.name.encode()) for n in numbers]
        self._next = end
        return RawBatch(np.array(numbers, dtype=np.int64), self.position, bodies=Bodies.of(bodies))

    @property
    def latest(self) -> int:
        try:
            return self._source.count(self._queue.name)
        except FileNotFoundError:  # removed, which the planner has not seen yet: nothing more comes
            return self._next


class DatabaseSink(TransactionalSink):
    """Writes numbers to SQLite, each with its queue and position, together with the queue's greatest position."""

    concurrent = False

    def __init__(self, path: str | os.PathLike[str], settings: SinkSettings | None = None) -> None:
        self.path = str(path)
        self.settings = settings or SinkSettings()
        self._connection: sqlite3.Connection | None = None

    def prepare(self, schema: object) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS rows (queue TEXT, position INTEGER, part INTEGER, n INTEGER)"
            )
            connection.execute(
                "CREATE TABLE IF NOT EXISTS ends (queue TEXT PRIMARY KEY, position INTEGER, part INTEGER)"
            )

    def open(self) -> None:
        self._connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)

    def batch_insert(self, batch: SinkBatch) -> None:
        assert self._connection is not None
        refused = Path(self.path + ".refused")
        if refused.exists() and json.loads(refused.read_text(encoding="utf-8")) in batch.to_polars()["n"].to_list():
            raise ValueError("the database does not like this number")
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if self.last_offset(batch.queue) != batch.after:
                raise StaleWriterError("another writer was here", queue=batch.queue.id)
            self.insert(self._connection, batch)
            self._connection.execute("INSERT OR REPLACE INTO ends VALUES (?, ?, ?)", (batch.queue.id, *batch.last))
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise

    def insert(self, connection: sqlite3.Connection, batch: SinkBatch) -> None:
        rows = batch.frame.select(OFFSET, INDEX, "n").rows()
        connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", [(batch.queue.id, *row) for row in rows])

    def last_offset(self, queue: Queue) -> Position | None:
        assert self._connection is not None
        found = self._connection.execute("SELECT position, part FROM ends WHERE queue = ?", (queue.id,)).fetchone()
        return None if found is None else Position(*found)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def stored(self) -> list[tuple[str, int]]:
        """Return (queue, number) of all rows, sorted."""
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            return connection.execute("SELECT queue, n FROM rows ORDER BY queue, n").fetchall()


class WindowSink(DatabaseSink):
    """Writes windows (k, w, n) to SQLite, each with its queue's greatest position."""

    def prepare(self, schema: object) -> None:
        super().prepare(schema)
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS windows (k INTEGER, w INTEGER, n INTEGER)")

    def insert(self, connection: sqlite3.Connection, batch: SinkBatch) -> None:
        connection.executemany("INSERT INTO windows VALUES (?, ?, ?)", batch.frame.select("k", "w", "n").rows())

    def stored(self) -> list[tuple[int, int, int]]:  # type: ignore[override]
        """Return all rows, sorted."""
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            return connection.execute("SELECT k, w, n FROM windows ORDER BY k, w, n").fetchall()


class LineSink(Sink):
    """Appends rows as JSON lines to a file per process. At least once."""

    def __init__(self, directory: str | os.PathLike[str], settings: SinkSettings | None = None) -> None:
        self.directory = Path(directory)
        self.settings = settings or SinkSettings()

    def prepare(self, schema: object) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    def batch_insert(self, batch: SinkBatch) -> None:
        with open(self.directory / str(os.getpid()), "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, default=str) + "\n" for row in batch.rows())

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows written so far."""
        lines = [line for path in self.directory.iterdir() for line in path.read_text(encoding="utf-8").splitlines()]
        return [json.loads(line) for line in lines]


class Failing(OperatorSpec):
    """An operator with a mistake in it."""

    name = "failing"

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def open(self, schema: Schema | None) -> Operator:
        return _Failing()


class _Failing(Operator):
    def process(self, batch: Batch) -> Iterable[Batch]:
        return [batch.with_frame(batch.frame.head(1 // 0))]


def laid_out(directory: Path, records: Mapping[str, int]) -> DatabaseSink:
    """Write the input of a job, so many records for each queue; return the sink that it writes to."""
    source = CountingSource(directory / "queues")
    for queue, count in records.items():
        source.set_count(queue, count)
    sink = DatabaseSink(directory / "rows.db")
    sink.prepare(None)
    return sink
