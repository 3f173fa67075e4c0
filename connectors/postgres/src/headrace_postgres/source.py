"""The PostgreSQL source: a table, read once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.flow.schema import Schema
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import DataError, HeadraceError, JobError, did_you_mean
from headrace.interfaces.readers import started
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import Reader, Source, StartAt, StartPosition

from headrace_postgres.connection import connect, place_of, quoted
from headrace_postgres.pages import Page, Pages
from headrace_postgres.settings import PostgresSourceSettings
from headrace_postgres.table_options import SOURCE_TABLES
from headrace_postgres.tables import KINDS, Table, TableColumn, describe, no_such_table
from headrace_postgres.types import column_type

#: As the key: where a row lies in the table's file.
_PLACE_IN_FILE = ["ctid"]
#: At most one part in this many of the time goes into counting rows.
_COUNTING_RATIO = 50


@dataclass(frozen=True)
class _Described:
    """What is read, looked up once and then passed to other processes."""

    columns: Mapping[str, TableColumn]
    key: tuple[TableColumn, ...]
    #: Whether the server guarantees that the key is unique and never NULL. Else each page is checked.
    key_is_declared: bool


class PostgresSource(Source):
    """Reads a table once, in the order of its key, page by page. One queue, named as the table.

    The offset of a row is its number in that order; a position also holds the key of the row before it, so that rows which are added
    or deleted before that key do not move it. See ``key_of`` for the key.
    """

    Settings: ClassVar[type[Settings]] = PostgresSourceSettings
    table_options = SOURCE_TABLES
    bounded = True

    def __init__(self, settings: PostgresSourceSettings, clock: Clock | None = None) -> None:
        self.settings: PostgresSourceSettings = settings
        self._clock = clock or SystemClock()
        self._table: _Described | None = None

    def check(self) -> None:
        """Check names. Raises JobError."""
        for option in ("table", "schema", "database"):
            quoted(getattr(self.settings, option), option=option)

    def schema(self) -> Schema:
        """Return the columns as the table has them. Raises JobError or RetriableError."""
        return Schema({name: column_type(column) for name, column in self._described().columns.items()})

    def queues(self) -> Collection[Queue]:
        self._described()
        return [Queue(self.settings.table)]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        """Return a reader with its own connection. Raises JobError for a start by time, which rows do not have."""
        if isinstance(start, StartAt):
            raise JobError(
                "rows of a table have no time, so a time cannot be the start",
                plugin="postgres",
                option="start",
                hint="use where() on a column",
            )
        reader = PostgresReader(self.settings, self._described(), queue, self._clock)
        return started(reader, start)

    def _described(self) -> _Described:
        if self._table is None:
            settings = self.settings
            connection = connect(settings)
            try:
                table = describe(connection, settings)
                if table is None:
                    raise no_such_table(connection, settings)
            finally:
                connection.close()
            where = f"PostgreSQL at {settings.host}:{settings.port}, table {place_of(settings)}"
            key = [] if settings.key is None or list(settings.key) == _PLACE_IN_FILE else list(settings.key)
            for option, names in (("columns", settings.columns or ()), ("key", key)):
                for name in names:
                    if name not in table.columns:
                        hint = did_you_mean(name, table.columns, known="columns of the table")
                        raise JobError(
                            f"{where}: it has no column {name!r}", plugin="postgres", option=option, hint=hint
                        )
            chosen = {name: table.columns[name] for name in settings.columns or table.columns}
            found = key_of(table, settings, where)
            self._table = _Described(chosen, found, _is_declared(found, table))
        return self._table


def key_of(table: Table, settings: PostgresSourceSettings, where: str) -> tuple[TableColumn, ...]:
    """Return the columns to read by: those of ``key``, the primary key, or a unique key of columns that are NOT NULL.

    None at all for ``key=['ctid']``: rows are read in the order of the table's file. Raises JobError for a table
    without a key: a row that is changed moves in the file, so that it would be read twice or not at all.
    """
    plain = table.kind not in ("v", "f", "p")
    if settings.key is not None and list(settings.key) == _PLACE_IN_FILE:
        if plain:
            return ()
        raise JobError(
            f"{where}: it is a {KINDS[table.kind]}, whose rows have no place in a file of its own", plugin="postgres", option="key",
            hint="name columns that are unique and never NULL: key=['id']",
        )  # fmt: skip
    if settings.key is not None:
        return tuple(table.columns[name] for name in settings.key)
    for names in (table.primary_key, *table.unique_keys.values()):
        columns = tuple(table.columns[name] for name in names)
        if columns and not any(column.nullable for column in columns):
            return columns
    of_file = ", or, if nobody changes or deletes rows while it is read, key=['ctid']" if plain else ""
    raise JobError(
        f"{where}: it has no key by which its rows could be read in order", plugin="postgres", option="key",
        hint=f"name columns that are unique and never NULL: key=['id']{of_file}",
    )  # fmt: skip


def _is_declared(key: tuple[TableColumn, ...], table: Table) -> bool:
    """Return whether the table says that a key is unique and never NULL. Of a view nothing is known."""
    names = {column.name for column in key}
    unique = any(set(columns) <= names for columns in table.unique_keys.values())
    return not key or (unique and not any(column.nullable for column in key))


class PostgresReader(Reader):
    """Reads pages after the last key, on its own connection. Each page is a separate query, which sees what is committed then."""

    def __init__(self, settings: PostgresSourceSettings, described: _Described, queue: Queue, clock: Clock) -> None:
        self._clock = clock
        #: Rows of a large table are not counted again at once: (when they were counted, how long that took).
        self._counted = (float("-inf"), 0.0)
        self._settings = settings
        self._queue = queue
        self._pages = Pages(settings, described.columns, described.key, "postgres")
        self._key_is_declared = described.key_is_declared
        self._position = ReadPosition(0)
        self._connection: Any = None
        self._page: Page | None = None
        self._given = 0
        #: The greatest offset that `latest` has given: a caller may wait until the position reaches it.
        self._promised = 0
        self._end: int | None = None
        self._ended = False

    def restore(self, position: ReadPosition) -> None:
        """Take a checkpoint's position. Raises DataError for a position that this source has not made."""
        self._check(position)
        self._position = position

    def begin(self, *, latest: bool) -> None:
        """Begin at the first row, or behind all rows that are there."""
        if not latest:
            return
        after = self._asked(self._pages.last)
        self._position = ReadPosition(self.latest, {"after": None if after is None else list(after)})

    def seek(self, position: ReadPosition) -> None:
        self._check(position)
        self._position, self._page, self._end, self._ended = position, None, None, False

    def limit(self, end: ReadPosition) -> None:
        self._end = end.offset

    def _check(self, position: ReadPosition) -> None:
        if position.offset and "after" not in position.hint:
            raise DataError(
                f"offset {position.offset} belongs to no row: it may be after the end of the table", plugin="postgres",
                queue=self._queue.id, offset=position.offset, hint="start with a new checkpoint",
            )  # fmt: skip

    @property
    def position(self) -> ReadPosition:
        return self._position

    @property
    def earliest(self) -> int:
        return 0

    @property
    def latest(self) -> int:
        begun = self._clock.monotonic()
        when, took = self._counted
        if not self._ended and begun - when >= took * _COUNTING_RATIO:
            found = self._position.offset + self._asked(lambda connection: self._pages.count(connection, self._after))
            self._counted = (begun, self._clock.monotonic() - begun)
            self._promised = max(self._promised, found)
        return max(self._promised, self._position.offset)

    def position_after(self, max_records: int) -> ReadPosition:
        ahead = PostgresReader.__new__(PostgresReader)
        ahead.__dict__.update(self.__dict__, _connection=None, _page=None, _given=0, _end=None)
        try:
            left = max_records
            while left > 0 and (raw := ahead.poll(left, timedelta(0))) is not None:
                left -= len(raw)
            return ahead.position
        finally:
            ahead.close()

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        if self._ended:
            return None
        if self._end is not None:
            max_records = min(max_records, self._end - self._position.offset)
            if max_records <= 0:
                return None
        if self._page is None or self._given >= self._page.frame.height:
            self._page = self._asked(self._read_page)
            self._given = 0
        page, begin = self._page, self._given
        count = min(max_records, page.frame.height - begin)
        if not count:
            # Rows that existed when a caller asked for `latest` may have been deleted.
            self._ended = True
            self._position = ReadPosition(
                max(self._position.offset, self._promised), self._position.hint or {"after": None}
            )
            return None
        first = self._position.offset
        self._given += count
        self._position = ReadPosition(first + count, {"after": list(page.key_at(self._given - 1))})
        offsets = np.arange(first, first + count, dtype=np.int64)
        return RawBatch(offsets, self._position, frame=page.frame.slice(begin, count))

    def _read_page(self, connection: Any) -> Page:
        """Return the next page. Raises JobError for a key that is not what the option says: rows would be lost."""
        rows_max = self._settings.page_rows
        if self._key_is_declared:
            return self._pages.read(connection, self._after, rows_max)
        # One more row than is given: a page must not end between two rows of the same key.
        page = self._pages.read(connection, self._after, rows_max + 1)
        problem = None
        if page.keys.null_count().sum_horizontal().item() or (
            not page.frame.height and self._pages.has_rows_without_key(connection)
        ):
            problem = "is NULL in some rows"
        elif page.keys.is_duplicated().any():
            problem = "is not unique"
        if problem is not None:
            settings = self._settings
            raise JobError(
                f"PostgreSQL at {settings.host}:{settings.port}, table {place_of(settings)}: the key {', '.join(settings.key or ())} "
                f"{problem}, so that rows would be left out", plugin="postgres", option="key", queue=self._queue.id,
                offset=self._position.offset, hint="name columns that are unique together and never NULL",
            )  # fmt: skip
        return page.head(rows_max)

    @property
    def _after(self) -> tuple[str, ...] | None:
        after = self._position.hint.get("after")
        return None if after is None else tuple(after)

    def _asked(self, ask: Any) -> Any:
        try:
            if self._connection is None:
                self._connection = connect(self._settings, autocommit=True)
            return ask(self._connection)
        except HeadraceError:
            self.close()
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
