"""Reads a table and its changes: the snapshot, then the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.declared_columns import DeclaredColumns
from headrace.flow.messages import CHANGE, Queue, RawBatch, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobError
from headrace_changes.databases.change_reader import ChangesReader
from numpy.typing import NDArray

from headrace_postgres.chunks import Chunk, Chunks, Ranges
from headrace_postgres.connection import connect
from headrace_postgres.log.decoding import Relation
from headrace_postgres.log.following import Followed, LogReader, LogRows, Questions
from headrace_postgres.log.places import OFFSETS_PER_BYTE, LogPlace
from headrace_postgres.log_server import LogServer
from headrace_postgres.relations import ANOTHER, another_table, check_relation
from headrace_postgres.settings import PostgresChangesSettings
from headrace_postgres.table_watch import TableWatch
from headrace_postgres.tables import Table, TableColumn

#: By how much offsets of the log are raised after a snapshot, to make room for its rows: more than any table has.
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
        return Followed(self.table.number, self.slot, self.publication, self.wanted, self.types, key, self.full)


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
        """Return where reading of the log continues. ``until``: no chunk has seen a change at or after this LSN."""
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
            f"offset {position.offset} has no place in the log", plugin="postgres_changes", queue=queue.id,
            offset=position.offset, hint="offsets of this source cannot be set by hand; start with a new checkpoint",
        ) from error  # fmt: skip


class PostgresChangesReader(ChangesReader):
    """Gives the rows of a table in chunks, and then all changes that the chunks do not have yet.

    A place in the snapshot is the number of a row in a chunk. See ``ChangesReader``.
    """

    empty_step = _EMPTY_STEP
    _place: LogPlace | SnapshotPlace

    def __init__(
        self,
        settings: PostgresChangesSettings,
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
        self._chunks: Chunks | None = None
        self._ranges: Ranges | None = None
        self._chunk: Chunk | None = None
        self._watch = TableWatch(clock)

    def place_of(self, position: ReadPosition) -> LogPlace | SnapshotPlace:
        return place_of(position, self._queue)

    def in_snapshot(self) -> bool:
        return isinstance(self._place, SnapshotPlace)

    @property
    def latest(self) -> int:
        place = self._place.end(0) if isinstance(self._place, SnapshotPlace) else self._place
        return max(self._position.offset, place.offset_of(max(place.lsn, self.end_of_log())))

    def end_of_log(self) -> int:
        return self._server().end()

    def reached(self, end: int) -> bool:
        place = self._place
        return isinstance(place, LogPlace) and not place.commit and place.lsn >= end

    def check(self) -> None:
        """Raise DataError when the slot does not have the log from the position on, JobError when the publication lacks the table."""
        place = self._place.log if isinstance(self._place, SnapshotPlace) else self._place
        self._check_table(place)
        self._check_place(place)

    def _check_place(self, place: LogPlace) -> None:
        self._server().check_place(self._described.slot, place, self._queue.id, self._position.offset)

    def _check_table(self, place: LogPlace) -> None:
        described, server = self._described, self._server()
        number, publication = described.table.number, described.publication
        server.check_table(number)
        server.check_publication(publication, list(described.wanted))
        if place.table and place.table != number:
            raise another_table(self._settings, ANOTHER)
        if place.entry and place.entry != server.entry(publication, number):
            raise another_table(
                self._settings, f"was taken out of the publication {publication!r} and put back: the log lacks its changes in between"
            )  # fmt: skip

    def confirm(self, lsn: int) -> bool:
        """Confirm to the server the part of the log that is not needed any more; return whether it was confirmed."""
        return self._log is not None and self._log.confirm(lsn)

    def ahead(self) -> PostgresChangesReader:
        # A slot is read by one connection at a time.
        if self._log is not None:
            self._log.close()
        reader = PostgresChangesReader(self._settings, self._described, self._queue, self._clock, self._place)
        reader._watch = self._watch
        return reader

    # ------------------------------------------------------------------------------------------------------- reading

    def poll_snapshot(self, max_records: int) -> RawBatch | None:
        place = self._place
        assert isinstance(place, SnapshotPlace)
        if self._chunk is None or self._chunk.number != place.chunk:
            chunk = self._opened_chunks(place.run).chunk(place.chunk)
            self._chunk = replace(chunk, frame=self._as_the_table(chunk.frame))
        chunk = self._chunk
        first, begin = place.offset, place.row
        count = self.allowed(min(max_records, chunk.frame.height - begin))
        place = replace(place, row=begin + count, seen=place.seen + count)
        if place.row < chunk.frame.height:
            self.set_place(place)
        elif chunk.last:
            self.set_place(place.end(chunk.lsn))
        else:
            self.set_place(replace(place, chunk=place.chunk + 1, row=0))
        return self.inserted(chunk.frame.slice(begin, count), first)

    def _as_the_table(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a chunk with the columns that the table has now: it may be older. Raises JobError where a type has changed."""
        wanted = self.nothing().drop(CHANGE, strict=False).schema
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

    def read_log(self, wait_seconds: float) -> tuple[LogRows | None, LogPlace]:
        assert isinstance(self._place, LogPlace)
        if self._log is None:
            questions = Questions(self._check_place, self._on_relation, self._on_truncate, self._already_there)
            self._log = LogReader(self._settings, self._described.followed, self._place, self._clock, questions)
        rows = self._log.read(wait_seconds)
        if rows is None:
            place = self._log.place
            self._watch.look(lambda: self._check_table(place), self.end_of_log, place)
        return rows, self._log.place

    def keep_alive(self) -> None:
        if self._log is not None:
            self._log.keep_alive()

    def _on_relation(self, relation: Relation) -> None:
        check_relation(relation, self._described, self._settings, self._server().columns_now, self._queue.id)

    def _on_truncate(self) -> None:
        if not self._settings.ignore_truncate:
            raise JobError(
                f"TRUNCATE has removed the rows of table {self._settings.schema}.{self._settings.table}: the log does not contain the "
                "removed rows",
                plugin="postgres_changes",
                option="ignore_truncate",
                queue=self._queue.id,
                hint="empty the target and start with a new checkpoint, or go on without it: ignore_truncate=True",
            )

    def _already_there(self, keys: pl.DataFrame, transactions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for each row whether it lies in a chunk that has seen its transaction."""
        assert self._log is not None
        chunks = self._opened_chunks(self._log.place.run)
        ranges = self._ranges = self._ranges or chunks.ranges()
        return ranges.seen(transactions, lambda rows: chunks.numbers_of(keys[rows], ranges))

    def _opened_chunks(self, run: str) -> Chunks:
        if self._chunks is None:
            described = self._described
            self._chunks = Chunks(self._settings, described.slot, run, described.wanted, described.key)
        return self._chunks

    def nothing(self) -> pl.DataFrame:
        return pl.DataFrame(schema={**self._described.types, CHANGE: pl.Int8()})

    def _server(self) -> LogServer:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._settings, autocommit=True)
        return LogServer(self._connection, self._settings)

    def leave(self) -> None:
        log, self._log, self._rows = self._log, None, None
        if log is not None:
            log.close()

    def disconnect(self) -> None:
        for part in (self._log, self._chunks, self._connection):
            if part is not None:
                part.close()
        self._log = self._chunks = self._connection = self._chunk = None


def names_of(columns: Sequence[TableColumn]) -> tuple[str, ...]:
    """Return the names of columns."""
    return tuple(column.name for column in columns)
