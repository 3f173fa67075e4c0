"""Reads a table and its changes: the snapshot, then the binary log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from headrace.flow.declared_columns import DeclaredColumns
from headrace.flow.messages import CHANGE, Queue, RawBatch, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import DataError, JobError
from headrace_changes.databases.change_reader import ChangesReader

from headrace_mysql.binlog.following import LogPlace, LogReader, LogRows
from headrace_mysql.binlog.positions import ROWS_PER_TRANSACTION, LogPosition, check_server
from headrace_mysql.connection import connect
from headrace_mysql.log_server import LogServer
from headrace_mysql.settings import MySQLChangesSettings
from headrace_mysql.snapshot import Key, Snapshot
from headrace_mysql.tables import TableColumn

#: A planner is not led on by transactions of other tables unless so many have passed: else it would never come to an end.
_EMPTY_STEP = 10_000 * ROWS_PER_TRANSACTION


@dataclass(frozen=True)
class Described:
    """What is read, looked up when the job is built and then passed to other processes."""

    #: All columns of the table by name, as they are now.
    known: Mapping[str, TableColumn]
    #: The columns that are read, and their types.
    wanted: Mapping[str, pl.DataType]
    #: The columns that identify a row; none for a table without a key.
    key: Sequence[TableColumn]
    #: What the columns become.
    declared: DeclaredColumns


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """Where the next row of a snapshot is read: behind the row with the key ``after``, of which there were ``rows``."""

    #: Where the log is read on after the snapshot.
    place: LogPlace
    #: What offsets of the log are greater after the snapshot, so that there is room for its rows.
    room: int
    rows: int = 0
    after: Key | None = None

    @property
    def offset(self) -> int:
        return self.place.offset + self.rows

    def read_position(self) -> ReadPosition:
        hint = {**self.place.read_position().hint, "room": self.room}
        return ReadPosition(self.offset, {**hint, "after": list(self.after)} if self.after is not None else hint)

    @property
    def end(self) -> LogPlace:
        """Where the log is read on."""
        return LogPlace(self.place.log, self.place.columns, base=self.place.base + self.room)


def place_of(position: ReadPosition, queue: Queue) -> LogPlace | SnapshotPlace:
    """Return the place that a position's hint holds. Raises JobError."""
    hint = position.hint
    try:
        place = LogPlace.of(hint)
        if "room" not in hint:
            return place
        after = tuple(hint["after"]) if "after" in hint else None
        return SnapshotPlace(place, int(hint["room"]), position.offset - place.offset, after)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise JobError(
            f"offset {position.offset} has no place in the binary log", plugin="mysql_changes", queue=queue.id,
            offset=position.offset, hint="offsets of this source cannot be set by hand: start with a new checkpoint",
        ) from error  # fmt: skip


class MySQLChangesReader(ChangesReader):
    """Gives the rows of a table as they were at a position of the log, and then all changes since.

    A place in the snapshot is the key of its last row. See ``ChangesReader``.
    """

    empty_step = _EMPTY_STEP
    _place: LogPlace | SnapshotPlace

    def __init__(
        self,
        settings: MySQLChangesSettings,
        described: Described,
        queue: Queue,
        clock: Clock,
        place: LogPlace | SnapshotPlace,
    ) -> None:
        super().__init__(queue, described.declared, place)
        self._settings = settings
        self._described = described
        self._clock = clock
        self._connection: Any = None
        self._log: LogReader | None = None
        self._snapshot: Snapshot | None = None
        #: A part of the snapshot with its keys, and how many of its rows were given.
        self._chunk: tuple[pl.DataFrame, list[Key]] | None = None
        self._given_of_chunk = 0

    def place_of(self, position: ReadPosition) -> LogPlace | SnapshotPlace:
        return place_of(position, self._queue)

    def in_snapshot(self) -> bool:
        return isinstance(self._place, SnapshotPlace)

    @property
    def latest(self) -> int:
        place = self._place.end if isinstance(self._place, SnapshotPlace) else self._place
        return max(self._position.offset, place.base + self.end_of_log().ordinal)

    def end_of_log(self) -> LogPosition:
        return self._server().end()

    def reached(self, end: LogPosition) -> bool:
        return isinstance(self._place, LogPlace) and self._place.log.covers(end)

    def check(self) -> None:
        """Raise DataError for a position of another server, or behind the end of the log; JobError for one of another kind."""
        place = self._place.place if isinstance(self._place, SnapshotPlace) else self._place
        end = self._server().end()
        check_server(place.log, self._server().server_id())
        if type(end) is not type(place.log):
            raise JobError(
                f"the checkpoint has the position {place.log}, but the server's positions look like {end}",
                plugin="mysql_changes", option="positions", queue=self._queue.id, hint="set the option positions to its previous value",
            )  # fmt: skip
        if not end.covers(place.log):
            raise DataError(
                f"position {place.log} (offset {self._position.offset}) is behind the end of the log, {end} (offset "
                f"{place.base + end.ordinal}): this is another server, or its binary log was reset",
                plugin="mysql_changes",
                queue=self._queue.id,
                offset=self._position.offset,
                hint="start with a new checkpoint: the job reads the whole table again",
            )

    def ahead(self) -> MySQLChangesReader:
        return MySQLChangesReader(
            self._settings, _keys_only(self._described), self._queue, self._clock, self._place
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------- reading

    def poll_snapshot(self, max_records: int) -> RawBatch | None:
        place = self._place
        assert isinstance(place, SnapshotPlace)
        if self._snapshot is None:
            described = self._described
            self._snapshot = Snapshot(
                self._settings, place.place, described.wanted, described.known, described.key, self._queue.id, self._clock,
                place.after,
            )  # fmt: skip
        if self._chunk is None:
            self._chunk, self._given_of_chunk = self._snapshot.chunk(max_records), 0
        frame, keys = self._chunk
        first, begin = place.offset, self._given_of_chunk
        count = self.allowed(min(max_records, frame.height - begin))
        self._given_of_chunk = begin + count
        if place.rows + count > max(place.room, 0):
            raise JobError(
                f"the snapshot has more rows than offsets are reserved for it, {place.room:,}", plugin="mysql_changes",
                queue=self._queue.id, hint="ANALYZE TABLE, so that the server knows the number of rows, and start with a new checkpoint",
            )  # fmt: skip
        if count:
            place = SnapshotPlace(place.place, place.room, place.rows + count, keys[begin + count - 1])
        self.set_place(place)
        if self._given_of_chunk == frame.height:
            self._chunk = None
            if self._snapshot.ended:
                self._snapshot.close()
                self._snapshot = None
                self.set_place(place.end)
        return self.inserted(frame.slice(begin, count), first)

    def read_log(self, wait_seconds: float) -> tuple[LogRows | None, LogPlace]:
        assert isinstance(self._place, LogPlace)
        if self._log is None:
            described = self._described
            self._log = LogReader(
                self._settings, self._place, described.wanted, described.known, self._queue.id, self._clock
            )
        return self._log.read(wait_seconds), self._log.place

    def nothing(self) -> pl.DataFrame:
        return pl.DataFrame(schema={**self._described.wanted, CHANGE: pl.Int8()})

    def _server(self) -> LogServer:
        if self._connection is None or not self._connection.open:
            self._connection = connect(self._settings, autocommit=True)
        return LogServer(self._connection, self._settings)

    def disconnect(self) -> None:
        for part in (self._log, self._snapshot):
            if part is not None:
                part.close()
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()
        self._log = self._snapshot = self._chunk = None


def _keys_only(described: Described) -> Described:
    """Return the same with the columns that a planner needs: the key, or one column of a table that has none."""
    names = [column.name for column in described.key if column.name in described.wanted]
    names = names or list(described.wanted)[:1]
    wanted = {name: described.wanted[name] for name in names}
    return Described(described.known, wanted, described.key, DeclaredColumns(wanted, wanted))
