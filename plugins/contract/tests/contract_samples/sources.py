"""Healthy sources on a real store that needs no server: logs in SQLite, as bodies and as columns."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import headrace as hr
import numpy as np
import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import BrokenQueueError, DataError, JobError, RetriableError
from headrace.interfaces.source import EARLIEST, LATEST, StartPosition


class LogSettings(hr.Settings, frozen=True, kw_only=True):
    database: Annotated[str, hr.option("the SQLite file with the tables queues and records")]
    password: Annotated[hr.Secret | None, hr.option("a password, to have one")] = None


class LogSource(hr.Source):
    """Reads queues of a SQLite file. Ids count over all queues, so that a queue's offsets have gaps."""

    Settings = LogSettings

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self.reader: type[LogReader] = LogReader

    def queues(self) -> Collection[hr.Queue]:
        with self.connected() as connection:
            return [hr.Queue(name) for (name,) in connection.execute("SELECT name FROM queues")]

    def open(self, queue: hr.Queue, start: StartPosition) -> hr.Reader:
        return self.reader(self, queue.name, start)

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """Give a connection, and close it."""
        directory = Path(self.settings.database).parent
        if not directory.parent.is_dir():
            raise JobError(f"there is no directory {str(directory.parent)!r}", hint="create it")
        try:
            connection = sqlite3.connect(f"file:{self.settings.database}?mode=ro", uri=True, timeout=20)
        except sqlite3.OperationalError as error:
            raise RetriableError(f"cannot open {self.settings.database}: {error}") from error
        try:
            yield connection
        finally:
            connection.close()


class LogReader(hr.Reader):
    """Reads one queue; connects for each call."""

    def __init__(self, source: LogSource, name: str, start: StartPosition) -> None:
        self._source = source
        self._name = name
        self._next = self._begin(start)

    def _begin(self, start: StartPosition) -> int:
        if isinstance(start, hr.ReadPosition):
            earliest, latest = self.earliest, self.latest
            if not earliest <= start.offset <= latest:
                raise DataError(
                    f"offset {start.offset} is not held: earliest {earliest}, latest {latest}",
                    queue=self._name,
                    offset=start.offset,
                )
            return start.offset
        if isinstance(start, hr.StartAt):
            micros = (start.time - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
            found = self.one("SELECT min(id) FROM records WHERE queue = ? AND time >= ?", self._name, micros)
            return self.latest if found is None else int(found)
        return self.earliest if start is EARLIEST else self.latest

    def one(self, statement: str, *parameters: Any) -> Any:
        """Return the one value of a query."""
        with self._source.connected() as connection:
            return connection.execute(statement, parameters).fetchone()[0]

    def check_held(self) -> None:
        """Raise for records that were deleted before they were read."""
        begin = self.one("SELECT begin FROM queues WHERE name = ?", self._name)
        if self._next < begin:
            raise DataError(f"offset {self._next} is not held: earliest {begin}", queue=self._name, offset=self._next)

    def check_whole(self) -> None:
        """Raise for a queue that somebody has broken."""
        if self.one("SELECT count(*) FROM broken WHERE name = ?", self._name):
            raise BrokenQueueError(f"{self._name} is damaged", queue=self._name, offset=self._next, hint="mend it")

    def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
        self.check_held()
        self.check_whole()
        with self._source.connected() as connection:
            rows = connection.execute(
                "SELECT id, time, body FROM records WHERE queue = ? AND id >= ? ORDER BY id LIMIT ?",
                (self._name, self._next, max_records),
            ).fetchall()
        if not rows:
            return None
        ids, times, bodies = zip(*rows, strict=True)
        self._next = ids[-1] + 1
        return self.made(np.array(ids, dtype=np.int64), np.array(times, dtype=np.int64), list(bodies))

    def made(self, offsets: Any, times: Any, bodies: list[bytes]) -> hr.RawBatch:
        """Return the batch of these records."""
        return hr.RawBatch(offsets, self.position, bodies=hr.Bodies.of(bodies), times=times)

    def seek(self, position: hr.ReadPosition) -> None:
        self._next = position.offset

    @property
    def position(self) -> hr.ReadPosition:
        return hr.ReadPosition(self._next)

    def position_after(self, max_records: int) -> hr.ReadPosition:
        last = self.one(
            "SELECT max(id) FROM (SELECT id FROM records WHERE queue = ? AND id >= ? ORDER BY id LIMIT ?)",
            self._name, self._next, max_records,
        )  # fmt: skip
        return self.position if last is None else hr.ReadPosition(int(last) + 1)

    @property
    def earliest(self) -> int:
        return int(self.one("SELECT coalesce((SELECT min(id) FROM records WHERE queue = ?), begin) FROM queues "
                            "WHERE name = ?", self._name, self._name))  # fmt: skip

    @property
    def latest(self) -> int:
        return int(self.one("SELECT coalesce((SELECT max(id) + 1 FROM records WHERE queue = ?), begin) FROM queues "
                            "WHERE name = ?", self._name, self._name))  # fmt: skip


class ColumnLogSource(LogSource):
    """Knows its columns and gives frames instead of bodies."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__(settings)
        self.reader = ColumnLogReader

    def schema(self) -> Schema:
        return Schema.of({"number": "int64", "text": "string"})


class ColumnLogReader(LogReader):
    """Decodes what it reads."""

    def made(self, offsets: Any, times: Any, bodies: list[bytes]) -> hr.RawBatch:
        frame = pl.DataFrame([json.loads(body) for body in bodies], schema={"number": pl.Int64, "text": pl.String})
        return hr.RawBatch(offsets, self.position, frame=frame)


class LogWorld:
    """The outside world of these sources: what the author of a test does to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.connected() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, begin INTEGER)")
            connection.execute("CREATE TABLE IF NOT EXISTS broken (name TEXT)")
            connection.execute("CREATE TABLE IF NOT EXISTS records "
                               "(id INTEGER PRIMARY KEY AUTOINCREMENT, queue, time, body)")  # fmt: skip

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """Give a connection in a transaction."""
        connection = sqlite3.connect(self.path, timeout=20)
        for setting in ("synchronous = OFF", "journal_mode = MEMORY"):  # nobody kills the process that writes here
            connection.execute(f"PRAGMA {setting}")
        try:
            with connection:
                yield connection
        finally:
            connection.close()

    def add_queue(self) -> str:
        with self.connected() as connection:
            count = connection.execute("SELECT count(*) FROM queues").fetchone()[0]
            begin = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM records").fetchone()[0]
            connection.execute("INSERT INTO queues VALUES (?, ?)", (f"queue {count}", begin))
            connection.execute("INSERT INTO records (queue, time, body) VALUES ('gap', 0, x'')")
        return f"queue {count}"

    def write(self, queue: str, bodies: Collection[bytes]) -> None:
        with self.connected() as connection:
            for body in bodies:
                connection.execute("INSERT INTO records (queue, time, body) VALUES (?, ?, ?)",
                                   (queue, time.time_ns() // 10_000_000 * 10_000, bytes(body)))  # fmt: skip
                connection.execute("INSERT INTO records (queue, time, body) VALUES ('gap', 0, x'')")

    def remove_queue(self, queue: str) -> None:
        with self.connected() as connection:
            connection.execute("DELETE FROM queues WHERE name = ?", (queue,))

    def break_queue(self, queue: str) -> None:
        with self.connected() as connection:
            connection.execute("INSERT INTO broken VALUES (?)", (queue,))

    def mend_queue(self, queue: str) -> None:
        with self.connected() as connection:
            connection.execute("DELETE FROM broken WHERE name = ?", (queue,))

    def forget(self, queue: str, before: int) -> None:
        with self.connected() as connection:
            connection.execute("DELETE FROM records WHERE queue = ? AND id < ?", (queue, before))
            connection.execute("UPDATE queues SET begin = ? WHERE name = ?", (before, queue))


__all__ = ["EARLIEST", "LATEST", "ColumnLogSource", "LogSource", "LogWorld"]
