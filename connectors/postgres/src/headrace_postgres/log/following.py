"""Follows the changes of one table in the log of a slot from a position on: rows as columns, with offsets and positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from headrace.flow.byte_slices import SPARE_BYTES
from headrace.flow.messages import CHANGE, ChangeKind
from headrace.foundation.clock import Clock
from headrace.foundation.errors import HeadraceError, RetriableError
from numpy.typing import NDArray

from headrace_postgres.connection import quoted_table
from headrace_postgres.log.decoding import Decoder, Relation, Scanned, Scanner
from headrace_postgres.log.places import LogPlace
from headrace_postgres.log.stream import SlotStream, open_stream
from headrace_postgres.settings import PostgresChangesSettings
from headrace_postgres.tables import TableColumn

#: How much of the log is taken at once, at most.
_BYTES_MAX = 8 << 20
#: Nothing for so long, though the server was asked: the connection is lost.
_SILENCE_SECONDS = 30
Integers = NDArray[np.int64]

#: Returns for each row whether its change is passed over: (keys, numbers of the transactions).
AlreadyThere = Callable[[pl.DataFrame, Integers], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class LogRows:
    """Changes in the order of the log. An update is two rows with the same offset."""

    #: The wanted columns and ``CHANGE``.
    frame: pl.DataFrame
    #: One for each row.
    offsets: Integers
    #: Behind the last row, and behind transactions without rows that follow it.
    end: LogPlace
    #: For each row: the place where its transaction begins, by number in ``_places``, and the number of its change there.
    _places: Sequence[LogPlace]
    _groups: Integers
    _numbers: Integers

    def place_at(self, row: int) -> LogPlace:
        """Return the place before a row, which is the first one of its change."""
        if row >= len(self.offsets):
            return self.end
        return replace(self._places[int(self._groups[row])], rows=int(self._numbers[row]))


@dataclass(frozen=True)
class Followed:
    """What is followed, and how."""

    #: The number of the table.
    table: int
    slot: str
    publication: str
    wanted: Mapping[str, TableColumn]
    types: Mapping[str, pl.DataType]
    key: Sequence[str]
    #: Whether old rows are whole (REPLICA IDENTITY FULL).
    full: bool


@dataclass(frozen=True)
class Questions:
    """What the reader of a log asks."""

    #: Called before the slot is read from a place on; raises DataError when the slot does not have the log from there on.
    on_open: Callable[[LogPlace], None]
    #: Both raise JobError when the table was changed in a way that cannot be followed.
    on_relation: Callable[[Relation], None]
    on_truncate: Callable[[], None]
    #: Asked for transactions that end before the place's ``until``.
    already_there: AlreadyThere


class LogReader:
    """Reads the changes of a table from a place on. Opens its connection at the first ``read``."""

    def __init__(
        self,
        settings: PostgresChangesSettings,
        followed: Followed,
        place: LogPlace,
        clock: Clock,
        questions: Questions,
    ) -> None:
        self._settings = settings
        self._followed = followed
        self._clock = clock
        self._decoder = Decoder(
            quoted_table(settings), followed.wanted, followed.types, followed.key, full=followed.full
        )
        self._questions = questions
        #: Behind the last change that was read.
        self.place = place
        self._stream: SlotStream | None = None
        self._scanner: Scanner | None = None
        self._heard = 0.0
        self._confirmed = 0
        #: An error that the next ``read`` raises, because rows before it had to be returned first.
        self._failure: Exception | None = None

    def read(self, wait_seconds: float) -> LogRows | None:
        """Return the next changes, or None when nothing came; the place may have moved all the same.

        Raises RetriableError when the connection is lost: the next call begins again at the place.
        """
        try:
            self._raise_failure()
            stream, scanner = self._opened()
            buffer, begins = bytearray(), list[int]()
            stream.confirm(self._confirmed)
            before = stream.alive
            stream.receive(buffer, begins, _BYTES_MAX, wait_seconds)
            if not begins:
                self._check_silence(stream.alive > before)
                self._advance(stream.sent)
                return None
            self._heard = self._clock.monotonic()
            buffer += bytes(SPARE_BYTES)
            found = scanner.scan(buffer, begins)
            rows = self._rows(buffer, found)
            self._failure = found.error
            # The place stays behind the last commit, where every reader of these rows stands; it moves on when nothing comes.
            if rows is None:
                self._raise_failure()
            return rows
        except HeadraceError:
            self.close()
            raise

    def confirm(self, lsn: int) -> bool:
        """Let the next ``read``, or ``close``, confirm to the server what is not needed any more; return whether a
        stream is open for that.

        May be called by another thread than the one that reads.
        """
        self._confirmed = max(self._confirmed, lsn)
        return self._stream is not None

    def keep_alive(self) -> None:
        """Send a status message to the server while rows that were read are returned. Raises RetriableError."""
        if self._stream is not None:
            self._stream.keep_alive()

    def _advance(self, sent: int) -> None:
        """Move the place to where the server is, while no transaction is open."""
        if not self.place.commit and sent > self.place.lsn:
            self.place = replace(self.place, lsn=sent)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _opened(self) -> tuple[SlotStream, Scanner]:
        if self._stream is None or self._scanner is None:
            followed = self._followed
            settings, questions = self._settings, self._questions
            # The server would begin at what the slot has, and say nothing, when the slot is another one since the connection was lost.
            questions.on_open(self.place)
            self._stream = open_stream(settings, followed.slot, followed.publication, self.place.lsn, self._clock)
            self._scanner = Scanner(
                settings.schema, settings.table, followed.table, questions.on_relation, questions.on_truncate
            )
            self._skipped = self.place.rows
            self._waits_for = self.place.commit
            self._heard = self._clock.monotonic()
        return self._stream, self._scanner

    def _check_silence(self, heard: bool) -> None:
        now = self._clock.monotonic()
        if heard:
            self._heard = now
        elif now - self._heard > _SILENCE_SECONDS:
            raise RetriableError(
                f"PostgreSQL at {self._settings.host}:{self._settings.port} has sent nothing for {_SILENCE_SECONDS} s",
                plugin="postgres_changes",
            )

    def close(self) -> None:
        """End the connection. A later ``read`` begins again at the place."""
        stream, self._stream, self._scanner = self._stream, None, None
        if stream is not None:
            with suppress(HeadraceError):  # then the next checkpoint tells it
                stream.confirm(self._confirmed)
            stream.close()

    # ---------------------------------------------------------------------------------------------------- decoding

    def _rows(self, buffer: bytearray, found: Scanned) -> LogRows | None:
        counts = np.bincount(np.array(found.groups, dtype=np.int64), minlength=len(found.transactions))
        places, firsts = self._places(found, counts.tolist())
        if not found.kinds:
            return None
        images = self._decoder.images(buffer, found)
        groups = np.array(found.groups, dtype=np.int64)
        starts = np.cumsum(counts) - counts
        numbers = np.arange(len(groups)) - starts[groups] + np.array(firsts, dtype=np.int64)[groups]
        of_change = images.changes
        row_groups, row_numbers = groups[of_change], numbers[of_change]
        skipped = np.array([place.rows for place in places], dtype=np.int64)
        kept = row_numbers >= skipped[row_groups]
        kept &= ~self._seen(images.keys, found, places, row_groups, kept)
        offsets = (
            np.array([place.offset_of(place.commit) for place in places], dtype=np.int64)[row_groups] + row_numbers
        )
        frame = images.frame
        if not kept.all():
            frame = _alone(frame, row_groups, row_numbers, kept).filter(pl.Series(kept))
        if not frame.height:
            return None
        return LogRows(frame, offsets[kept], self.place, places, row_groups[kept], row_numbers[kept])

    def _places(self, found: Scanned, counts: Sequence[int]) -> tuple[list[LogPlace], list[int]]:
        """Return the place at which reading of each transaction continues, and the number of its first change here. Moves the place."""
        places, firsts = [], []
        for transaction, count in zip(found.transactions, counts, strict=True):
            again = transaction.commit < self._waits_for
            if again:
                # Before the transaction that was read in part: it has no rows of the table.
                places.append(replace(self.place, commit=transaction.commit, rows=count))
                firsts.append(0)
                continue
            continues = self.place.commit == transaction.commit and self._waits_for == 0
            if not continues:
                skipped = self._skipped if self.place.commit == transaction.commit else 0
                self._skipped = self._waits_for = 0
                self._done = 0
                self.place = replace(self.place, commit=transaction.commit, rows=skipped)
            places.append(self.place)
            firsts.append(self._done)
            self._done += count
            rows = max(self.place.rows, self._done)
            self.place = replace(self.place, rows=rows)
            if transaction.end:
                self.place = self.place.after(transaction.end)
        return places, firsts

    def _seen(
        self, keys: pl.DataFrame, found: Scanned, places: Sequence[LogPlace], groups: Integers, kept: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return which rows the chunks of the snapshot already have."""
        there = np.zeros(len(groups), dtype=bool)
        before = np.array([place.commit < place.until for place in places], dtype=bool)
        rows = np.flatnonzero(kept & before[groups])
        if len(rows):
            numbers = np.array([transaction.number for transaction in found.transactions], dtype=np.int64)
            there[rows] = self._questions.already_there(keys[rows], numbers[groups[rows]])
        return there

    _skipped = 0
    _waits_for = 0
    #: Changes of the open transaction that were gone through.
    _done = 0


def _alone(frame: pl.DataFrame, groups: Integers, numbers: Integers, kept: NDArray[np.bool_]) -> pl.DataFrame:
    """Make an insert or a delete of the row of an update whose other row is passed over."""
    change = pl.col(CHANGE)
    shown = pl.DataFrame({"kept": kept, "group": groups, "number": numbers})
    # An update without its old row stays one row.
    both = shown.select(pl.col("kept").all().over("group", "number")).to_series()
    kind = (
        pl.when(change == ChangeKind.UPDATE_BEFORE)
        .then(pl.lit(int(ChangeKind.DELETE), dtype=pl.Int8))
        .when(change == ChangeKind.UPDATE_AFTER)
        .then(pl.lit(int(ChangeKind.INSERT), dtype=pl.Int8))
        .otherwise(change)
    )
    return frame.with_columns(pl.when(both).then(change).otherwise(kind).alias(CHANGE))
