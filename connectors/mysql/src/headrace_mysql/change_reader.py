"""Reads a table and its changes: the snapshot, then the binary log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.declared_columns import DeclaredColumns
from headrace.flow.messages import CHANGE, ChangeKind, Queue, RawBatch, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import DataError, HeadraceError, JobError
from headrace.interfaces.source import Reader
from numpy.typing import NDArray

from headrace_mysql.binlog.following import LogPlace, LogReader, LogRows
from headrace_mysql.binlog.positions import ROWS_PER_TRANSACTION
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
            f"offset {position.offset} does not say where in the binary log it is", plugin="mysql_changes", queue=queue.id,
            offset=position.offset, hint="offsets of this source cannot be set by hand; start with a new checkpoint",
        ) from error  # fmt: skip


class MySQLChangesReader(Reader):
    """Gives the rows of a table as they were at a position of the log, and then all changes since.

    Both parts depend only on the position: the same offset always has the same row. A position between two rows is the position of the
    log before their transaction and the number of changes behind it, or the key of the last row of the snapshot.
    """

    def __init__(
        self,
        settings: MySQLChangesSettings,
        described: Described,
        queue: Queue,
        clock: Clock,
        place: LogPlace | SnapshotPlace,
    ) -> None:
        self._settings = settings
        self._described = described
        self._queue = queue
        self._clock = clock
        self._connection: Any = None
        self._end: ReadPosition | None = None
        self._log: LogReader | None = None
        self._snapshot: Snapshot | None = None
        self._rows: LogRows | None = None
        #: How many of ``_rows``, or of ``_chunk``, were given.
        self._given = 0
        self._chunk: tuple[pl.DataFrame, list[Key]] | None = None
        self._place = place
        self._position = place.read_position()
        self._first_offset = self._position.offset

    # ---------------------------------------------------------------------------------------------------- positions

    @property
    def position(self) -> ReadPosition:
        return self._position

    @property
    def earliest(self) -> int:
        # A reader that begins anew begins at the end that the log has then: there is no beginning that all share.
        return min(self._first_offset, self._position.offset)

    @property
    def latest(self) -> int:
        end = self._server().end()
        place = self._place.end if isinstance(self._place, SnapshotPlace) else self._place
        return max(self._position.offset, place.base + end.ordinal)

    def seek(self, position: ReadPosition) -> None:
        place = place_of(position, self._queue)
        self._forget()
        self._place, self._position = place, position

    def limit(self, end: ReadPosition) -> None:
        self._end = end

    def check(self) -> None:
        """Raise DataError when the position is behind the end of the log: the server is another one, or began its log anew."""
        place = self._place.place if isinstance(self._place, SnapshotPlace) else self._place
        end = self._server().end()
        try:
            there = end.covers(place.log)
        except AssertionError as error:
            raise JobError(
                f"the checkpoint has the position {place.log}, but the server names positions like {end}",
                plugin="mysql_changes", option="positions", queue=self._queue.id, hint="set positions as before",
            ) from error  # fmt: skip
        if not there:
            raise DataError(
                f"position {place.log} (offset {self._position.offset}) is behind the end of the log, {end} (offset "
                f"{place.base + end.ordinal}): the server is another one, or its log was begun anew",
                plugin="mysql_changes",
                queue=self._queue.id,
                offset=self._position.offset,
                hint="start with a new checkpoint, which reads the table anew",
            )

    def position_after(self, max_records: int) -> ReadPosition:
        target = self._server().end()
        ahead = MySQLChangesReader(self._settings, _keys_only(self._described), self._queue, self._clock, self._place)
        found = last = self._position
        left = max_records
        try:
            while left > 0:
                raw = ahead.poll(left, timedelta(seconds=1))
                if raw is not None and len(raw):
                    left -= len(np.unique(raw.offsets))
                    found = ahead.position
                last = ahead.position
                place = ahead._place
                if isinstance(place, LogPlace) and ahead._rows is None and place.log.covers(target):
                    break
        finally:
            ahead.close()
        at_its_end = isinstance(self._place, SnapshotPlace) and found is self._position
        return last if at_its_end or last.offset - found.offset > _EMPTY_STEP else found

    # ------------------------------------------------------------------------------------------------------- reading

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        if self._end is not None and self._position.offset >= self._end.offset:
            self._end = None
        before = self._position
        try:
            raw = (
                self._poll_snapshot(max_records)
                if isinstance(self._place, SnapshotPlace)
                else self._poll_log(max_records, timeout.total_seconds())
            )
        except HeadraceError:
            self._forget()
            self._place = place_of(before, self._queue)
            self._position = before
            raise
        if raw is None and self._position.offset > before.offset:
            return self._batch(self._nothing(), np.empty(0, dtype=np.int64))
        return raw

    def _poll_snapshot(self, max_records: int) -> RawBatch | None:
        place = self._place
        assert isinstance(place, SnapshotPlace)
        if self._snapshot is None:
            described = self._described
            self._snapshot = Snapshot(
                self._settings, place.place, described.wanted, described.known, described.key, self._queue.id, self._clock,
                place.after,
            )  # fmt: skip
        if self._chunk is None:
            self._chunk, self._given = self._snapshot.chunk(max_records), 0
        frame, keys = self._chunk
        count = min(max_records, frame.height - self._given)
        if self._end is not None:
            count = min(count, self._end.offset - place.offset)
        begin, self._given = self._given, self._given + count
        if place.rows + count > max(place.room, 0):
            raise JobError(
                f"the snapshot has more rows than its offsets leave room for, {place.room:,}", plugin="mysql_changes",
                queue=self._queue.id, hint="ANALYZE TABLE, so that the server knows its size, and start with a new checkpoint",
            )  # fmt: skip
        if count:
            place = SnapshotPlace(place.place, place.room, place.rows + count, keys[self._given - 1])
        offsets = np.arange(place.offset - count, place.offset, dtype=np.int64)
        self._set(place)
        if self._given == frame.height:
            self._chunk = None
            if self._snapshot.ended:
                self._snapshot.close()
                self._snapshot = None
                self._set(place.end)
        if not count:
            return None
        made = frame.slice(begin, count)
        inserts = pl.repeat(ChangeKind.INSERT, count, dtype=pl.Int8, eager=True).alias(CHANGE)
        return self._batch(made.with_columns(inserts), offsets)

    def _poll_log(self, max_records: int, wait_seconds: float) -> RawBatch | None:
        if self._rows is None:
            self._rows, self._given = self._read_log(wait_seconds), 0
            if self._rows is None:
                return None
        rows = self._rows
        stop = len(rows.offsets)
        if self._end is not None:
            stop = int(np.searchsorted(rows.offsets, self._end.offset))
        # Both rows of an update have the same offset, so records are counted by what differs.
        some = rows.offsets[self._given : min(stop, self._given + 2 * max_records)]
        if len(some):
            record = np.cumsum(np.diff(some, prepend=some[:1]) > 0)
            some = some[: int(np.searchsorted(record, max_records))]
        begin, self._given = self._given, self._given + len(some)
        place = rows.place_at(self._given)
        if self._given == len(rows.offsets):
            self._rows = None
        elif self._end is not None and self._given == stop and place.offset > self._end.offset:
            self._place, self._position = place_of(self._end, self._queue), self._end
            return self._batch(rows.frame.slice(begin, len(some)), some)
        self._set(place)
        return self._batch(rows.frame.slice(begin, len(some)), some)

    def _read_log(self, wait_seconds: float) -> LogRows | None:
        assert isinstance(self._place, LogPlace)
        if self._log is None:
            described = self._described
            self._log = LogReader(
                self._settings, self._place, described.wanted, described.known, self._queue.id, self._clock
            )
        rows = self._log.read(wait_seconds)
        if rows is None:
            self._set(self._log.place)
        return rows

    def _set(self, place: LogPlace | SnapshotPlace) -> None:
        self._place = place
        end = self._end
        if end is not None and place.offset >= end.offset:
            # As it was planned, so that the next range begins where this reader stands.
            self._position = end if place.offset == end.offset else place.read_position()
            return
        self._position = place.read_position()

    def _batch(self, frame: pl.DataFrame, offsets: NDArray[np.int64]) -> RawBatch:
        return RawBatch(offsets, self._position, frame=self._described.declared.of(frame))

    def _nothing(self) -> pl.DataFrame:
        return pl.DataFrame(schema={**self._described.wanted, CHANGE: pl.Int8()})

    def _server(self) -> LogServer:
        if self._connection is None or not self._connection.open:
            self._connection = connect(self._settings, autocommit=True)
        return LogServer(self._connection, self._settings)

    def _forget(self) -> None:
        log, self._log = self._log, None
        snapshot, self._snapshot = self._snapshot, None
        self._rows = self._chunk = None
        self._given = 0
        if log is not None:
            log.close()
        if snapshot is not None:
            snapshot.close()
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    def close(self) -> None:
        self._forget()


def _keys_only(described: Described) -> Described:
    """Return the same with the columns that a planner needs: the key, or one column of a table that has none."""
    names = [column.name for column in described.key if column.name in described.wanted]
    names = names or list(described.wanted)[:1]
    wanted = {name: described.wanted[name] for name in names}
    return Described(described.known, wanted, described.key, DeclaredColumns(wanted, wanted))
