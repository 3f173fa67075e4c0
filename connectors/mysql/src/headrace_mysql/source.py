"""The MySQL source: a table in ranges of its key, or its new rows as they come."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import polars as pl
from headrace.clock import Clock, SystemClock
from headrace.errors import HeadraceError, JobError, did_you_mean
from headrace.messages import Queue, RawBatch, ReadPosition
from headrace.schema import Schema
from headrace.settings import Settings
from headrace.source import EARLIEST, Reader, Source, StartAt, StartPosition

from headrace_mysql.connection import connect, listed, quoted, translating
from headrace_mysql.settings import MySQLSourceSettings
from headrace_mysql.types import column_type, columns_of, key_of


class MySQLSource(Source):
    """Reads a table. The offset of a row is its key, so keys must be unique and not change.

    ``scan``: a queue per range of ``range_size`` keys; ranges lie at fixed places, so their names stay when the table
    grows. ``poll``: one queue, which goes on with rows of greater keys as they are committed.
    """

    Settings: ClassVar[type[Settings]] = MySQLSourceSettings

    def __init__(self, settings: MySQLSourceSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.bounded = settings.mode == "scan"
        self._clock = clock or SystemClock()
        self._types: dict[str, pl.DataType] | None = None
        self._key = ""

    def check(self) -> None:
        quoted(self.settings.table)

    def schema(self) -> Schema | None:
        return Schema(self._described())

    def queues(self) -> Collection[Queue]:
        self._described()
        if self.settings.mode == "poll":
            return [Queue(self.settings.table)]
        connection = connect(self.settings)
        try:
            with translating(self.settings), connection.cursor() as cursor:
                table, key = quoted(self.settings.table), quoted(self._key)
                cursor.execute(f"SELECT MIN({key}), MAX({key}) FROM {table}")  # noqa: S608
                low, high = cursor.fetchone()
        finally:
            connection.close()
        if low is None:
            return []
        size = self.settings.range_size
        return [
            Queue(f"{self.settings.table}[{n * size},{(n + 1) * size})") for n in range(low // size, high // size + 1)
        ]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        types = self._described()
        low: int | None = None
        high: int | None = None
        if self.settings.mode == "scan":
            low, high = map(int, queue.name.rpartition("[")[2].rstrip(")").split(","))
        if isinstance(start, StartAt):
            raise JobError(
                "a table has no times to start at", plugin="mysql", option="start", hint="use where() on a column"
            )
        reader = MySQLReader(self.settings, types, self._key, low, high, self._clock)
        if isinstance(start, ReadPosition):
            reader.seek(start)
        elif start is EARLIEST:
            reader.seek(ReadPosition(reader.earliest))
        else:
            reader.seek(ReadPosition(reader.latest))
        return reader

    def _described(self) -> dict[str, pl.DataType]:
        if self._types is not None:
            return self._types
        settings = self.settings
        connection = connect(settings)
        try:
            columns = columns_of(connection, settings)
        finally:
            connection.close()
        if not columns:
            raise JobError(
                f"there is no table {settings.table!r} in database {settings.database!r} at {settings.host}:{settings.port}",
                plugin="mysql",
                option="table",
            )
        names = {column.name: column for column in columns}
        for name in settings.columns or ():
            if name not in names:
                hint = did_you_mean(name, names, known="columns of the table")
                raise JobError(
                    f"table {settings.table!r} has no column {name!r}", plugin="mysql", option="columns", hint=hint
                )
        self._key = key_of(columns, settings.key, settings).name
        self._types = {name: column_type(names[name]) for name in settings.columns or names}
        return self._types


class MySQLReader(Reader):
    """Reads rows in the order of their key, page by page, on a connection of its own."""

    def __init__(
        self,
        settings: MySQLSourceSettings,
        types: Mapping[str, pl.DataType],
        key: str,
        low: int | None,
        high: int | None,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._types = dict(types)
        self._key = key
        self._low, self._high = low, high
        self._clock = clock
        self._next = low or 0
        self._connection: Any = None
        #: (when it was seen, the greatest key then): a key counts as settled once it was seen long enough ago.
        self._seen: deque[tuple[float, int]] = deque()
        self._settled: int | None = None
        self._page = (
            f"SELECT {quoted(key)}, {listed(list(self._types))} FROM {quoted(settings.table)}"  # noqa: S608
            f" WHERE {quoted(key)} >= %s AND {quoted(key)} < %s ORDER BY {quoted(key)} LIMIT %s"
        )

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        end = self._end()
        rows = self._query(self._page, (self._next, end, max_records)) if self._next < end else ()
        if not rows:
            self._next = max(self._next, end)
            if timeout and self._settings.mode == "poll":
                self._clock.wait(threading.Event(), timeout.total_seconds())
            return None
        offsets = np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))
        self._next = int(offsets[-1]) + 1
        columns = list(zip(*rows, strict=True))[1:]
        frame = pl.DataFrame(
            [_series(name, kind, values) for (name, kind), values in zip(self._types.items(), columns, strict=True)]
        )
        return RawBatch(offsets, ReadPosition(self._next), frame=frame)

    def seek(self, position: ReadPosition) -> None:
        self._next = position.offset

    @property
    def position(self) -> ReadPosition:
        return ReadPosition(self._next)

    @property
    def earliest(self) -> int:
        found = self._bound("MIN")
        return self.latest if found is None else found

    @property
    def latest(self) -> int:
        if self._high is not None:
            found = self._bound("MAX")
            return max(self._low or 0, 0 if found is None else found + 1)
        return self._end()

    def position_after(self, max_records: int) -> ReadPosition:
        end = self._end()
        statement = (
            f"SELECT MAX(k) FROM (SELECT {quoted(self._key)} AS k FROM {quoted(self._settings.table)}"  # noqa: S608
            f" WHERE {quoted(self._key)} >= %s AND {quoted(self._key)} < %s ORDER BY {quoted(self._key)} LIMIT %s) AS page"
        )
        [(found,)] = self._query(statement, (self._next, end, max_records))
        return ReadPosition(max(self._next, end) if found is None else int(found) + 1)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    def _end(self) -> int:
        """Return the key behind the last one that may be read now."""
        if self._high is not None:
            return self._high
        found = self._bound("MAX")
        now = self._clock.monotonic()
        greatest = 0 if found is None else found + 1
        if self._settled is None:
            # What was there at the start has settled, but for transactions that were open just then.
            self._settled = greatest if not self._settings.settle else 0
        if not self._seen or self._seen[-1][1] < greatest:
            self._seen.append((now, greatest))
        while self._seen and now - self._seen[0][0] >= self._settings.settle.total_seconds():
            self._settled = max(self._settled, self._seen.popleft()[1])
        return self._settled

    def _bound(self, function: str) -> int | None:
        key = quoted(self._key)
        statement = f"SELECT {function}({key}) FROM {quoted(self._settings.table)}"  # noqa: S608
        parameters: tuple[int, ...] = ()
        if self._high is not None:
            statement += f" WHERE {key} >= %s AND {key} < %s"
            parameters = (self._low or 0, self._high)
        [(found,)] = self._query(statement, parameters)
        return None if found is None else int(found)

    def _query(self, statement: str, parameters: tuple[int, ...]) -> Any:
        if self._connection is None:
            self._connection = connect(self._settings)
        try:
            with translating(self._settings), self._connection.cursor() as cursor:
                cursor.execute(statement, parameters)
                rows = cursor.fetchall()
                self._connection.commit()  # the next query must see what others commit meanwhile
                return rows
        except HeadraceError:
            self.close()
            raise


def _series(name: str, kind: pl.DataType, values: Any) -> pl.Series:
    if isinstance(kind, pl.Datetime):
        return pl.Series(name, values, dtype=pl.Datetime("us")).dt.replace_time_zone("UTC")
    if isinstance(kind, pl.Boolean):
        return pl.Series(name, values, dtype=pl.Int8).cast(pl.Boolean)
    return pl.Series(name, values, dtype=kind)
