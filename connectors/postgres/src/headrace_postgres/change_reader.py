"""Reads a table and its changes: the snapshot, then the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.declared_columns import DeclaredColumns
from headrace.flow.messages import CHANGE, ChangeKind, Queue, RawBatch, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import HeadraceError, JobError
from headrace.interfaces.source import Reader
from numpy.typing import NDArray

from headrace_postgres.chunks import Chunk, Chunks, Ranges
from headrace_postgres.connection import connect
from headrace_postgres.log.decoding import Relation
from headrace_postgres.log.following import Followed, LogReader, LogRows
from headrace_postgres.log.places import OFFSETS_PER_BYTE, LogPlace
from headrace_postgres.log_server import LogServer
from headrace_postgres.relations import check_relation
from headrace_postgres.settings import PostgresChangesSettings
from headrace_postgres.tables import Table, TableColumn

#: How much offsets of the log are greater after a snapshot, so that there is room for its rows: more than any table has.
_SNAPSHOT_ROWS_MAX = 1 << 50
#: A planner is not led on by the log of other tables unless it is so long: else it would never come to an end.
_EMPTY_STEP = (16 << 20) * OFFSETS_PER_BYTE


@dataclass(frozen=True)
class Described:
    """What is read, looked up when the job is built and then passed to other processes."""

    table: Table
    #: The columns that are read, and their types.
    wanted: Mapping[str, TableColumn]
    types: Mapping[str, pl.DataType]
    #: The columns that identify a row; none for a table without a key.
    key: tuple[TableColumn, ...]
    #: What the columns become.
    declared: DeclaredColumns
    #: Whether the log has whole old rows.
    full: bool
    slot: str
    publication: str

    @property
    def followed(self) -> Followed:
        """What the log is asked for."""
        key = [column.name for column in self.key]
        return Followed(self.slot, self.publication, self.wanted, self.types, key, self.full)


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """Where the next row of a snapshot is read: at a row of a chunk, before which the snapshot had ``seen`` rows."""

    #: Where the log is read on after the snapshot.
    log: LogPlace
    run: str
    chunk: int = 0
    row: int = 0
    seen: int = 0

    @property
    def offset(self) -> int:
        return self.log.offset + self.seen

    def read_position(self) -> ReadPosition:
        """Return the place as a position whose hint holds all of it."""
        more = {"snapshot": self.run, "chunk": self.chunk, "row": self.row, "seen": self.seen}
        return ReadPosition(self.offset, {**self.log.hint(), **more})

    def end(self, until: int) -> LogPlace:
        """Return where the log is read on. ``until``: what the chunks have seen ends before it."""
        return replace(self.log, base=self.log.base + _SNAPSHOT_ROWS_MAX, run=self.run, until=until)


def place_of(position: ReadPosition, queue: Queue) -> LogPlace | SnapshotPlace:
    """Return the place that a position's hint holds. Raises JobError."""
    hint = position.hint
    try:
        place = LogPlace.of(hint)
        if "snapshot" not in hint:
            return place
        return SnapshotPlace(place, str(hint["snapshot"]), int(hint["chunk"]), int(hint["row"]), int(hint["seen"]))
    except (KeyError, ValueError, TypeError) as error:
        raise JobError(
            f"offset {position.offset} does not say where in the log it is", plugin="postgres_changes", queue=queue.id,
            offset=position.offset, hint="offsets of this source cannot be set by hand; start with a new checkpoint",
        ) from error  # fmt: skip


class PostgresChangesReader(Reader):
    """Gives the rows of a table in chunks, and then all changes that the chunks do not have yet.

    Both parts depend only on the position: the same offset always has the same row. A position between two rows is the position of the
    log before their transaction and the number of changes behind it, or the number of a row in a chunk of the snapshot.
    """

    def __init__(
        self,
        settings: PostgresChangesSettings,
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
        self._chunks: Chunks | None = None
        self._ranges: Ranges | None = None
        self._chunk: Chunk | None = None
        self._rows: LogRows | None = None
        #: How many of ``_rows`` were given.
        self._given = 0
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
        place = self._place.end(0) if isinstance(self._place, SnapshotPlace) else self._place
        return max(self._position.offset, place.offset_of(max(place.lsn, self._server().end())))

    def seek(self, position: ReadPosition) -> None:
        place = place_of(position, self._queue)
        self._forget()
        self._place, self._position = place, position

    def limit(self, end: ReadPosition) -> None:
        self._end = end

    def check(self) -> None:
        """Raise DataError when the slot does not have the log from the position on, JobError when the publication lacks the table."""
        place = self._place.log if isinstance(self._place, SnapshotPlace) else self._place
        described = self._described
        self._server().check_publication(described.publication, list(described.wanted))
        self._server().check_place(self._described.slot, place.lsn, self._queue.id, self._position.offset)

    def confirm(self, lsn: int) -> bool:
        """Tell the server what is not needed any more; returns whether it was told."""
        return self._log is not None and self._log.confirm(lsn)

    def position_after(self, max_records: int) -> ReadPosition:
        target = self._server().end()
        ahead = PostgresChangesReader(self._settings, self._described, self._queue, self._clock, self._place)
        # A slot is read by one connection at a time.
        if self._log is not None:
            self._log.close()
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
                if isinstance(place, LogPlace) and ahead._rows is None and not place.commit and place.lsn >= target:
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
        if self._end is not None and self._position.offset >= self._end.offset:
            self._free()
        if raw is None and self._position.offset > before.offset:
            return self._batch(self._nothing(), np.empty(0, dtype=np.int64))
        return raw

    def _poll_snapshot(self, max_records: int) -> RawBatch | None:
        place = self._place
        assert isinstance(place, SnapshotPlace)
        if self._chunk is None or self._chunk.number != place.chunk:
            chunk = self._opened_chunks(place.run).chunk(place.chunk)
            self._chunk = replace(chunk, frame=self._as_the_table(chunk.frame))
        chunk = self._chunk
        count = min(max_records, chunk.frame.height - place.row)
        if self._end is not None:
            count = min(count, self._end.offset - place.offset)
        first = place.offset
        frame = chunk.frame.slice(place.row, count)
        place = replace(place, row=place.row + count, seen=place.seen + count)
        if place.row < chunk.frame.height:
            self._set(place)
        elif chunk.last:
            self._set(place.end(chunk.lsn))
        else:
            self._set(replace(place, chunk=place.chunk + 1, row=0))
        if not count:
            return None
        inserts = pl.repeat(ChangeKind.INSERT, count, dtype=pl.Int8, eager=True).alias(CHANGE)
        return self._batch(frame.with_columns(inserts), np.arange(first, first + count, dtype=np.int64))

    def _as_the_table(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a chunk with the columns that the table has now: it may be older. Raises JobError where a type has changed."""
        wanted = self._nothing().drop(CHANGE, strict=False).schema
        for name, kind in wanted.items():
            if name in frame.columns and frame.schema[name] != kind:
                raise JobError(
                    f"column {name!r} had another type ({frame.schema[name]}, now {kind}) when the snapshot read it",
                    plugin="postgres_changes", queue=self._queue.id, offset=self._position.offset,
                    hint="start with a new checkpoint: the snapshot is read anew",
                )  # fmt: skip
        return frame.select(
            pl.col(name) if name in frame.columns else pl.lit(None, dtype=kind).alias(name)
            for name, kind in wanted.items()
        )

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
            self._log = LogReader(
                self._settings, self._described.followed, self._place, self._clock, self._on_relation, self._on_truncate,
                self._already_there,
            )  # fmt: skip
        rows = self._log.read(wait_seconds)
        if rows is None:
            self._set(self._log.place)
        return rows

    def _on_relation(self, relation: Relation) -> None:
        check_relation(relation, self._described, self._settings, self._server().columns_now, self._queue.id)

    def _on_truncate(self) -> None:
        if not self._settings.ignore_truncate:
            raise JobError(
                f"TRUNCATE has removed the rows of table {self._settings.schema}.{self._settings.table}: the log does not have them",
                plugin="postgres_changes",
                option="ignore_truncate",
                queue=self._queue.id,
                hint="start with a new checkpoint and an emptied target, or go on without it: ignore_truncate=True",
            )

    def _already_there(self, keys: pl.DataFrame, transaction: int) -> NDArray[np.bool_]:
        """Return which keys lie in chunks that have seen a transaction."""
        assert self._log is not None
        chunks = self._opened_chunks(self._log.place.run)
        if self._ranges is None:
            self._ranges = chunks.ranges()
        seen = self._ranges.seen_by(transaction)
        if seen.all() or not seen.any():
            return np.full(keys.height, bool(seen.all()))
        there: NDArray[np.bool_] = seen[chunks.numbers_of(keys, self._ranges)]
        return there

    def _opened_chunks(self, run: str) -> Chunks:
        if self._chunks is None:
            described = self._described
            self._chunks = Chunks(self._settings, described.slot, run, described.wanted, described.key)
        return self._chunks

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
        return pl.DataFrame(schema={**self._described.types, CHANGE: pl.Int8()})

    def _server(self) -> LogServer:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._settings, autocommit=True)
        return LogServer(self._connection, self._settings)

    def _free(self) -> None:
        """Leave the slot at the end of a planned range: another process may read the next one while this reader is kept."""
        log, self._log, self._rows = self._log, None, None
        if log is not None:
            log.close()

    def _forget(self) -> None:
        for part in (self._log, self._chunks, self._connection):
            if part is not None:
                part.close()
        self._log = self._chunks = self._connection = None
        self._rows = self._chunk = None
        self._given = 0

    def close(self) -> None:
        self._forget()


def names_of(columns: Sequence[TableColumn]) -> tuple[str, ...]:
    """Return the names of columns."""
    return tuple(column.name for column in columns)
