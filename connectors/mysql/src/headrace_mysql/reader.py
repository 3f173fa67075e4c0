"""Reads one range of a table's keys, or the whole table with its new rows."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import DataError, HeadraceError, JobError
from headrace.interfaces.readers import OffsetReader
from numpy.typing import NDArray
from pymysql.cursors import SSCursor

from headrace_mysql.connection import connect, quoted_for_parameters, translating
from headrace_mysql.settings import MySQLSourceSettings
from headrace_mysql.tables import TableColumn, next_automatic_key
from headrace_mysql.types import column_type, selected, series_of

_OFFSET_MAX = 2**63 - 1


def _has_arrow() -> bool:
    """Return whether pyarrow is installed with everything that ``row_packets`` uses."""
    try:
        return int(version("pyarrow").partition(".")[0]) >= 20
    except PackageNotFoundError:
        return False


#: With it, rows become columns without Python objects in between.
_HAS_ARROW = _has_arrow()
#: How often a poll that may wait looks for new rows.
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class KeyRange:
    """The keys of a queue: from ``low`` to before ``high``, or all (a queue that is polled)."""

    key: TableColumn
    low: int | None = None
    high: int | None = None

    @property
    def base(self) -> int:
        """The number that is subtracted from a key to get its offset: 0, so that a row's offset is its key.

        Offsets are at least 0 and less than 2**63. In a range with other keys, offsets count from the range's begin.
        """
        if self.low is None or self.high is None:
            return 0
        return 0 if self.low >= 0 and self.high <= _OFFSET_MAX else self.low


class MySQLReader(OffsetReader):
    """Reads rows in the order of their keys, page by page, on its own connection.

    Rows that come with a key smaller than the position are not seen: keys must grow. In poll mode a row becomes visible when
    its transaction is committed, which need not be the order of the keys. So a poll stops before rows that it has known for
    less than ``settle``: rows with smaller keys have this time to become visible.
    """

    def __init__(
        self,
        settings: MySQLSourceSettings,
        keys: KeyRange,
        columns: Mapping[str, TableColumn],
        queue: Queue,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._queue = queue
        self._clock = clock
        self._types = {name: column_type(column) for name, column in columns.items()}
        super().__init__()
        self._connection: Any = None
        #: The greatest offset that `latest` has given: a caller may wait until the position reaches it.
        self._promised = 0
        #: (when it was seen, the end of the table then); it counts as settled when it was seen long enough ago.
        self._seen: deque[tuple[float, int]] = deque()
        self._settled = 0
        key, table = quoted_for_parameters(keys.key.name), quoted_for_parameters(settings.table)
        listed = ", ".join(selected(column).replace("%", "%%") for column in columns.values())
        self._bounds = f"FROM {table}" + (f" WHERE {key} >= %s AND {key} < %s" if keys.low is not None else "")
        self._page = f"SELECT {key}, {listed} FROM {table} WHERE {key} >= %s AND {key} < %s ORDER BY {key} LIMIT %s"  # noqa: S608
        self._last_of_page = (
            f"SELECT MAX(k) FROM (SELECT {key} AS k FROM {table}"  # noqa: S608
            f" WHERE {key} >= %s AND {key} < %s ORDER BY {key} LIMIT %s) AS page"
        )

    # ----------------------------------------------------------------------------------------------- where to begin

    def begin(self, *, latest: bool) -> None:
        """Take the position of a queue that no checkpoint knows. Raises JobError for keys that cannot be polled."""
        if self._keys.low is None:
            smallest = self._bound("MIN")
            if smallest is not None and smallest < 0:
                raise JobError(
                    f"table {self._settings.database}.{self._settings.table} has the key {smallest}",
                    plugin="mysql",
                    option="mode",
                    hint="poll reads keys from 0 on; read negative ones with mode='scan', or poll another key",
                )
        self._next = self._end() if latest else self._first

    def restore(self, position: ReadPosition) -> None:
        """Take a checkpoint's position. Raises DataError when the table cannot have reached it, because it was created again."""
        end = self._end()
        if position.offset > end:
            # The last rows may have been deleted. A counter of the server shows this; without one, any key in the range is possible.
            counted = self._keys.key.auto_increment
            key = next_automatic_key(self._connected(), self._settings) if counted else None
            end = self._last if key is None else max(end, min(key - self._keys.base, self._last))
        if position.offset > end:
            raise DataError(
                f"position {position.offset} is greater than {end}, the position of the table's next row: the table was emptied or "
                "recreated",
                plugin="mysql",
                queue=self._queue.id,
                offset=position.offset,
                hint="start with a new checkpoint to read it from its beginning",
            )
        self._next = position.offset

    @property
    def earliest(self) -> int:
        found = self._bound("MIN")
        return self._end() if found is None else self._offset(found)

    @property
    def latest(self) -> int:
        end = self._end()
        self._promised = max(self._promised, end)
        return end

    def position_after(self, max_records: int) -> ReadPosition:
        end = self._readable()
        if end <= self._next:
            return self.position
        [(found,)] = self._query(self._last_of_page, (*self._key_bounds(end), max_records))
        return ReadPosition(min(end, max(self._next, self._promised)) if found is None else self._offset(found) + 1)

    # ------------------------------------------------------------------------------------------------------ reading

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        clock, never = self._clock, threading.Event()
        deadline = clock.monotonic() + (timeout.total_seconds() if self._settings.mode == "poll" else 0.0)
        while (found := self._read(max_records)) is None and (left := deadline - clock.monotonic()) > 0:
            clock.wait(never, min(left, _LOOK_SECONDS))
        return found

    def _read(self, max_records: int) -> RawBatch | None:
        end = self._readable()
        if self._next >= end:
            return None
        found = self._rows(self._page, (*self._key_bounds(end), max_records))
        if found is None:
            # Rows that existed when a caller asked for `latest` have been deleted, or their numbers were never used.
            self._next = max(self._next, min(end, self._promised))
            return None
        offsets, columns = found
        self._next = int(offsets[-1]) + 1
        return RawBatch(offsets, self.position, frame=pl.DataFrame(columns))

    def _readable(self) -> int:
        """Return the offset behind the last row that may be read now."""
        if self._keys.high is not None:
            return self._last
        end = self._end()
        now = self._clock.monotonic()
        if not self._seen or self._seen[-1][1] < end:
            self._seen.append((now, end))
        while self._seen and now - self._seen[0][0] >= self._settings.settle.total_seconds():
            self._settled = max(self._settled, self._seen.popleft()[1])
        return self._settled

    def _end(self) -> int:
        """Return the offset behind the last row that is visible now."""
        found = self._bound("MAX")
        if found is not None and self._offset(found) >= _OFFSET_MAX:
            raise JobError(
                f"key {found} of table {self._settings.database}.{self._settings.table} is too large to be an offset",
                plugin="mysql",
                option="key",
                hint="such keys are read with mode='scan' only",
            )
        return self._first if found is None else self._offset(found) + 1

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    # ------------------------------------------------------------------------------------------- offsets and queries

    def _offset(self, key: Any) -> int:
        return int(key) - self._keys.base

    @property
    def _first(self) -> int:
        """The smallest offset that the queue can have."""
        return 0 if self._keys.low is None else self._keys.low - self._keys.base

    @property
    def _last(self) -> int:
        """The offset behind the greatest one that the queue can have."""
        return _OFFSET_MAX if self._keys.high is None else min(self._keys.high - self._keys.base, _OFFSET_MAX)

    def _key_bounds(self, end: int) -> tuple[int, int]:
        return self._next + self._keys.base, end + self._keys.base

    def _bound(self, function: str) -> int | None:
        keys = self._keys
        parameters = () if keys.low is None or keys.high is None else (keys.low, keys.high)
        key = quoted_for_parameters(keys.key.name)
        [(found,)] = self._query(f"SELECT {function}({key}) {self._bounds}", parameters)
        return None if found is None else int(found)

    def _connected(self) -> Any:
        if self._connection is None:
            # Each query sees all rows that are committed when it begins: a poll needs that.
            self._connection = connect(self._settings, autocommit=True)
        return self._connection

    def _rows(self, statement: str, parameters: tuple[int, ...]) -> tuple[NDArray[np.int64], list[pl.Series]] | None:
        """Return the offsets and the columns of the rows that a statement gives, in which the key comes first."""
        if not _HAS_ARROW:
            rows = self._query(statement, parameters)
            if not rows:
                return None
            keys, *columns = zip(*rows, strict=True)
            offsets = np.fromiter((key - self._keys.base for key in keys), dtype=np.int64, count=len(keys))
            return offsets, [
                series_of(*column, values) for column, values in zip(self._types.items(), columns, strict=True)
            ]
        from headrace_mysql.row_packets import RowPackets

        packets = self._query(statement, parameters, RowPackets)
        if not len(packets):
            return None
        key, made = packets.columns(self._types, pl.UInt64() if self._keys.key.unsigned else pl.Int64())
        # Keys and offsets have 64 bits: an overflow of the subtraction does no harm.
        base = np.uint64(self._keys.base & 0xFFFF_FFFF_FFFF_FFFF)
        return (key.to_numpy().view(np.uint64) - base).view(np.int64), made

    def _query(self, statement: str, parameters: tuple[int, ...], take: Callable[[SSCursor], Any] | None = None) -> Any:
        """Return a statement's rows, or the result of ``take`` for an unbuffered cursor."""
        connection = self._connected()
        try:
            with translating(self._settings), connection.cursor(None if take is None else SSCursor) as cursor:
                cursor.execute(statement, parameters)
                return cursor.fetchall() if take is None else take(cursor)
        except HeadraceError:
            self.close()
            raise
