"""The MySQL source: a table in ranges of its key, or its new rows as they come."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from headrace.flow.messages import Queue, ReadPosition
from headrace.flow.schema import Schema
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import JobError, did_you_mean
from headrace.interfaces.readers import started
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import Reader, Source, StartAt, StartPosition

from headrace_mysql.connection import connect, quoted, translating
from headrace_mysql.reader import KeyRange, MySQLReader
from headrace_mysql.settings import MySQLSourceSettings
from headrace_mysql.table_options import SOURCE_TABLES
from headrace_mysql.tables import Table, TableColumn, describe, no_such_table
from headrace_mysql.types import INTEGER_BYTES, column_type

#: More ranges than this are a mistake: the keys have large gaps, and the ranges are too small for them.
RANGES_MAX = 10_000
_RANGES_WANTED = 100


@dataclass(frozen=True)
class _Described:
    """The columns and key of the table, looked up once and then passed to other processes."""

    columns: Mapping[str, TableColumn]
    key: TableColumn


class MySQLSource(Source):
    """Reads a table by an integer column that is unique and does not change.

    ``scan``: a queue per range of ``range_size`` keys that has rows or lies between such; ranges lie at fixed places, so
    their names stay when the table grows. ``poll``: one queue, which also gives new rows with greater keys.
    The offset of a row is its key; see ``KeyRange.base`` for keys that cannot be offsets.
    """

    Settings: ClassVar[type[Settings]] = MySQLSourceSettings
    table_options = SOURCE_TABLES

    def __init__(self, settings: MySQLSourceSettings, clock: Clock | None = None) -> None:
        self.settings: MySQLSourceSettings = settings
        self.bounded = settings.mode == "scan"
        self._clock = clock or SystemClock()
        self._table: _Described | None = None

    def check(self) -> None:
        """Check names. Raises JobError."""
        for option in ("table", "database", "key"):
            name = getattr(self.settings, option)
            if name is not None:
                quoted(name, option=option)

    def schema(self) -> Schema:
        """Return the columns as the table has them. Raises JobError or RetriableError."""
        return Schema({name: column_type(column) for name, column in self._described().columns.items()})

    def restore(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """Check that the ranges have the same bounds as before. Raises JobError when they do not: rows would be read again."""
        if self.settings.mode != "scan":
            return
        for queue in positions:
            found = _range_of(queue.name)
            if found is not None and found[1] - found[0] != self.settings.range_size:
                raise JobError(
                    f"the checkpoint has the range {queue.name!r}, whose size is not {self.settings.range_size}",
                    plugin="mysql",
                    option="range_size",
                    hint=f"set range_size={found[1] - found[0]} as before, or start with a new checkpoint",
                )

    def queues(self) -> Collection[Queue]:
        """Return the ranges from the smallest to the greatest key, or the one queue that is polled."""
        settings = self.settings
        described = self._described()
        if settings.mode == "poll":
            return [Queue(settings.table)]
        connection = connect(settings, autocommit=True)
        try:
            with translating(settings), connection.cursor() as cursor:
                table, key = quoted(settings.table), quoted(described.key.name)
                cursor.execute(f"SELECT MIN({key}), MAX({key}) FROM {table}")  # noqa: S608
                low, high = cursor.fetchone()
        finally:
            connection.close()
        if low is None:
            return []
        size = settings.range_size
        first, last = low // size, high // size
        if last - first >= RANGES_MAX:
            raise JobError(
                f"the keys {low} to {high} of table {settings.database}.{settings.table} make {last - first + 1:,} ranges",
                plugin="mysql",
                option="range_size",
                hint=f"range_size={(high - low) // _RANGES_WANTED + 1} makes about {_RANGES_WANTED}",
            )
        return [Queue(f"{settings.table}[{n * size},{(n + 1) * size})") for n in range(first, last + 1)]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        """Return a reader with its own connection. Raises JobError for a start by time, which rows do not have."""
        if isinstance(start, StartAt):
            raise JobError(
                "rows of a table have no time, so a time cannot be the start",
                plugin="mysql",
                option="start",
                hint="use where() on a column",
            )
        described = self._described()
        bounds = _range_of(queue.name) if self.settings.mode == "scan" else None
        if bounds is None and self.settings.mode == "scan":
            raise JobError(f"{queue.name!r} is not a range of keys", plugin="mysql", queue=queue.id)
        keys = KeyRange(described.key, *(bounds or (None, None)))
        reader = MySQLReader(self.settings, keys, described.columns, queue, self._clock)
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
            for name in settings.columns or ():
                if name not in table.columns:
                    hint = did_you_mean(name, table.columns, known="columns of the table")
                    raise _refused(settings, f"it has no column {name!r}", "columns", hint)
            chosen = {name: table.columns[name] for name in settings.columns or table.columns}
            self._table = _Described(chosen, _key_of(table, settings))
        return self._table


def _key_of(table: Table, settings: MySQLSourceSettings) -> TableColumn:
    """Return the column to read by. Raises JobError when rows could be read twice or never."""
    wanted = settings.key
    if wanted is None:
        if len(table.primary_key) != 1:
            what = f"{', '.join(table.primary_key)} together" if table.primary_key else "not there"
            raise _refused(settings, f"its primary key is {what}", "key", _key_hint(table))
        (wanted,) = table.primary_key
    elif wanted not in table.columns:
        hint = did_you_mean(wanted, table.columns, known="columns of the table")
        raise _refused(settings, f"it has no column {wanted!r}", "key", hint)
    column = table.columns[wanted]
    if column.kind not in INTEGER_BYTES:
        raise _refused(settings, f"{wanted!r} is {column.full_type.upper()}, no integer", "key", _key_hint(table))
    if (wanted,) not in table.unique_keys.values() or column.nullable:
        problem = f"{wanted!r} is not declared both unique and NOT NULL"
        raise _refused(settings, problem, "key", _key_hint(table))
    return column


def _key_hint(table: Table) -> str:
    fit = [
        columns[0]
        for columns in table.unique_keys.values()
        if len(columns) == 1
        and columns[0] in table.columns
        and table.columns[columns[0]].kind in INTEGER_BYTES
        and not table.columns[columns[0]].nullable
    ]
    needed = "rows are read by one integer column that is unique and NOT NULL: "
    return needed + (f"key={fit[0]!r} is one" if fit else "add one, such as an AUTO_INCREMENT column with a unique key")


def _refused(settings: MySQLSourceSettings, problem: str, option: str, hint: str) -> JobError:
    where = f"MySQL at {settings.host}:{settings.port}, table {settings.database}.{settings.table}"
    return JobError(f"{where}: {problem}", plugin="mysql", option=option, hint=hint)


def _range_of(name: str) -> tuple[int, int] | None:
    found = re.search(r"\[(-?\d+),(-?\d+)\)$", name)
    return None if found is None else (int(found[1]), int(found[2]))
