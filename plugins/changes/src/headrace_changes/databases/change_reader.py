"""Reads a table and its changes: a snapshot of its rows, then the log. A position is a place in either of them."""

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import polars as pl
from headrace.flow.declared_columns import DeclaredColumns
from headrace.flow.messages import CHANGE, ChangeKind, Queue, RawBatch, ReadPosition
from headrace.foundation.errors import HeadraceError
from headrace.interfaces.source import Reader
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class Place(Protocol):
    """Where the next row is read, in the snapshot or in the log."""

    @property
    def offset(self) -> int: ...
    def read_position(self) -> ReadPosition: ...


class LogRows(Protocol):
    """Changes in the order of the log. An update is two rows with the same offset."""

    @property
    def frame(self) -> pl.DataFrame: ...
    @property
    def offsets(self) -> Integers: ...
    def place_at(self, row: int) -> Place: ...


class ChangesReader(Reader):
    """Gives the rows of a table in a snapshot, and then the changes of the log.

    Both parts depend only on the position: the same offset always has the same row. A position between two rows is the position of the
    log before their transaction and the number of changes behind it, or a place in the snapshot. A subclass knows the places, reads the
    snapshot and the log, and says where the log ends.
    """

    #: A planner is not led on by the log of other tables unless that is so much: else it would never come to an end.
    empty_step: ClassVar[int]

    def __init__(self, queue: Queue, declared: DeclaredColumns, place: Place) -> None:
        """``declared``: the columns that the job gets, made of the columns that the subclass reads."""
        self._queue = queue
        self._declared = declared
        self._end: ReadPosition | None = None
        #: The changes that were read from the log, and how many of them were returned.
        self._rows: LogRows | None = None
        self._given = 0
        self._place: Place = place
        self._position = place.read_position()
        self._first_offset = self._position.offset

    # ---------------------------------------------------------------------------------- what a server has of its own

    @abstractmethod
    def place_of(self, position: ReadPosition) -> Place:
        """Return the place that a position's hint holds. Raises JobError."""

    @abstractmethod
    def in_snapshot(self) -> bool:
        """Return whether ``self._place`` is in the snapshot."""

    @abstractmethod
    def poll_snapshot(self, max_records: int) -> RawBatch | None:
        """Return rows of the snapshot (``inserted``, of ``allowed`` rows), and set the place behind them.

        At the end of the snapshot that is one of the log.
        """

    @abstractmethod
    def read_log(self, wait_seconds: float) -> tuple[LogRows | None, Place]:
        """Return the next changes from ``self._place`` on, and the place behind all that was read."""

    @abstractmethod
    def end_of_log(self) -> Any:
        """Return the present end of the log, in the form that ``reached`` takes."""

    @abstractmethod
    def reached(self, end: Any) -> bool:
        """Return whether ``self._place``, which is one of the log, is at an end or behind it, between two transactions."""

    @abstractmethod
    def ahead(self) -> Self:
        """Return a reader at the same place that a planner uses to find where a number of records ends. It need not
        read all columns.
        """

    @abstractmethod
    def nothing(self) -> pl.DataFrame:
        """Return an empty frame with the columns that are read, and ``CHANGE``."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close all connections. They are opened again, at the same place, when they are needed."""

    def keep_alive(self) -> None:
        """Called while rows that were read are returned: a server may drop a client that sends nothing for long."""
        return

    def leave(self) -> None:
        """Called at the end of a planned range: another process may read the next one while this reader is kept.

        One that closes the log forgets ``self._rows`` too, as they are behind the place.
        """
        return

    # ---------------------------------------------------------------------------------------------------- positions

    @property
    def position(self) -> ReadPosition:
        return self._position

    @property
    def earliest(self) -> int:
        # A reader without a position begins at the present end of the log, so readers have no common beginning.
        return min(self._first_offset, self._position.offset)

    def seek(self, position: ReadPosition) -> None:
        place = self.place_of(position)
        self._forget()
        self._place, self._position = place, position

    def limit(self, end: ReadPosition) -> None:
        self._end = end

    def position_after(self, max_records: int) -> ReadPosition:
        target, ahead = self.end_of_log(), self.ahead()
        found = last = self._position
        left = max_records
        try:
            while left > 0:
                raw = ahead.poll(left, timedelta(seconds=1))
                if raw is not None and len(raw):
                    left -= len(np.unique(raw.offsets))
                    found = ahead.position
                last = ahead.position
                if not ahead.in_snapshot() and ahead._rows is None and ahead.reached(target):
                    break
        finally:
            ahead.close()
        at_its_end = self.in_snapshot() and found is self._position
        return last if at_its_end or last.offset - found.offset > self.empty_step else found

    # ------------------------------------------------------------------------------------------------------- reading

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        if self._end is not None and self._position.offset >= self._end.offset:
            self._end = None
        before = self._position
        try:
            raw = (
                self.poll_snapshot(max_records)
                if self.in_snapshot()
                else self._poll_log(max_records, timeout.total_seconds())
            )
        except HeadraceError:
            self._forget()
            self._place, self._position = self.place_of(before), before
            raise
        if self._end is not None and self._position.offset >= self._end.offset:
            self.leave()
        if raw is None and self._position.offset > before.offset:
            return self.batch(self.nothing(), np.empty(0, dtype=np.int64))
        return raw

    def _poll_log(self, max_records: int, wait_seconds: float) -> RawBatch | None:
        if self._rows is None:
            (self._rows, place), self._given = self.read_log(wait_seconds), 0
            if self._rows is None:
                self.set_place(place)
                return None
        else:
            self.keep_alive()
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
            self._place, self._position = self.place_of(self._end), self._end
            return self.batch(rows.frame.slice(begin, len(some)), some)
        self.set_place(place)
        return self.batch(rows.frame.slice(begin, len(some)), some)

    def allowed(self, count: int) -> int:
        """Return how many of the next ``count`` rows of a snapshot may be given: a planned range may end before them."""
        return count if self._end is None else min(count, self._end.offset - self._place.offset)

    def inserted(self, frame: pl.DataFrame, first: int) -> RawBatch | None:
        """Return rows of a snapshot as inserts with the offsets from ``first`` on; None for no rows. The place is behind them."""
        if not frame.height:
            return None
        inserts = pl.repeat(ChangeKind.INSERT, frame.height, dtype=pl.Int8, eager=True).alias(CHANGE)
        return self.batch(frame.with_columns(inserts), np.arange(first, first + frame.height, dtype=np.int64))

    def batch(self, frame: pl.DataFrame, offsets: Integers) -> RawBatch:
        """Return rows before the position as a batch."""
        return RawBatch(offsets, self._position, frame=self._declared.of(frame))

    def set_place(self, place: Place) -> None:
        """Go on to a place."""
        self._place = place
        end = self._end
        if end is not None and place.offset == end.offset:
            # As it was planned, so that the next range begins where this reader stands.
            self._position = end
            return
        self._position = place.read_position()

    def _forget(self) -> None:
        self._rows, self._given = None, 0
        self.disconnect()

    def close(self) -> None:
        self._forget()
