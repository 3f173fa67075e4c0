"""Follows the changes of one table in the binary log from a position on: rows as columns, with offsets and positions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.messages import CHANGE, ChangeKind, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import HeadraceError, JobError, RetriableError
from numpy.typing import NDArray

from headrace_mysql.binlog.images import Integers, images_of
from headrace_mysql.binlog.layout import TableMap, columns_from_json, columns_to_json, table_maps_differ
from headrace_mysql.binlog.positions import ROWS_PER_TRANSACTION, LogPosition, position_from_json
from headrace_mysql.binlog.scanning import Scanned, Scanner
from headrace_mysql.binlog.schema_changes import SchemaChanges
from headrace_mysql.binlog.stream import SILENCE_SECONDS, LogStream, open_stream, refusal
from headrace_mysql.binlog.values import SPARE_BYTES, Data, series_of_places
from headrace_mysql.settings import MySQLChangesSettings
from headrace_mysql.tables import TableColumn

#: How much of the log is taken at once, at most.
_BYTES_MAX = 4 << 20

Columns = tuple[TableColumn, ...]


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where the next change is read: after ``rows`` changes of the table in the transaction that follows ``log``."""

    log: LogPosition
    #: The columns of the table there.
    columns: Columns
    rows: int = 0
    #: How much offsets are greater than the ordinals of positions.
    base: int = 0

    @property
    def offset(self) -> int:
        return self.base + self.log.ordinal + self.rows

    def read_position(self) -> ReadPosition:
        """Return the place as a position whose hint holds all of it."""
        more = {name: value for name, value in (("rows", self.rows), ("base", self.base)) if value}
        return ReadPosition(self.offset, {**self.log.to_json(), **more, "columns": columns_to_json(self.columns)})

    @classmethod
    def of(cls, hint: Mapping[str, Any]) -> LogPlace:
        """Read a hint. Raises KeyError or ValueError for a hint of another source."""
        columns = columns_from_json(hint["columns"])
        return cls(position_from_json(hint), columns, int(hint.get("rows", 0)), int(hint.get("base", 0)))


@dataclass(frozen=True, slots=True)
class LogRows:
    """Changes in the order of the log. An update is two rows with the same offset."""

    #: The wanted columns and ``CHANGE``.
    frame: pl.DataFrame
    #: One for each row.
    offsets: Integers
    #: Behind the last row, and behind transactions without rows that follow it.
    end: LogPlace
    _start: LogPosition
    _ends: Sequence[Any]
    #: For each row: how many transactions ended before it, the number of its change in its transaction, and which columns the table had.
    _groups: Integers
    _numbers: Integers
    _bases: Integers
    _columns: Sequence[Columns]
    _which_columns: Integers

    def place_at(self, row: int) -> LogPlace:
        """Return the place before a row, which is the first one of its change."""
        if row >= len(self.offsets):
            return self.end
        group = int(self._groups[row])
        log = self._start.after(self._ends[:group])
        columns = self._columns[int(self._which_columns[row])]
        return LogPlace(log, columns, int(self._numbers[row]), int(self._bases[row]))


@dataclass(frozen=True, slots=True)
class _Decoded:
    """Rows of events, the number of each one's event, and the number of its change there."""

    frame: pl.DataFrame
    events: Integers
    numbers: Integers


class LogReader:
    """Reads the changes of a table from a place on. Opens its connection at the first ``read``.

    ``wanted`` has the columns of the frames and their types; a column that the table has not yet, or not any more, is NULL.
    """

    def __init__(
        self,
        settings: MySQLChangesSettings,
        place: LogPlace,
        wanted: Mapping[str, pl.DataType],
        known: Mapping[str, TableColumn],
        queue: str,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._wanted = wanted
        self._queue = queue
        self._clock = clock
        self._schema_changes = SchemaChanges(
            settings.database, settings.table, known.get, ignore_truncate=settings.ignore_truncate
        )
        # A column that was added while an earlier run read is only now known by its type.
        columns = tuple(column if column.kind else known.get(column.name, column) for column in place.columns)
        #: Behind the last change that was read.
        self.place = LogPlace(place.log, columns, place.rows, place.base)
        self._skipped = place.rows
        #: Changes of the transaction that is open which were read already, those that are skipped too.
        self._done = 0
        self._stream: LogStream | None = None
        self._scanner: Scanner | None = None
        self._buffer = bytearray()
        self._heard = 0.0
        #: What ``_check`` has compared, by identity: kept here, so that no other object can have the same one.
        self._checked: dict[tuple[int, int], tuple[TableMap, Columns]] = {}
        #: Raised by the next ``read``, as rows before it had to be given.
        self._failure: Exception | None = None

    def read(self, wait_seconds: float) -> LogRows | None:
        """Return the next changes, or None when nothing came; the place may have moved all the same.

        Raises RetriableError when the connection is lost: the next call begins again at the place. DataError when the server does not have
        the log from the place on, JobError when the table was changed in a way that cannot be followed.
        """
        try:
            self._raise_failure()
            scanner = self._opened()
            stream = self._stream
            assert stream is not None
            if not stream.receive(self._buffer, _BYTES_MAX, wait_seconds):
                self._check_silence()
                return None
            self._heard = self._clock.monotonic()
            start = scanner.position
            found, scanned, refused = scanner.scan(self._buffer)
            rows = self._rows(found, start, scanner, scanned)
            del self._buffer[:scanned]
            self._failure = found.error
            if refused is not None:
                self._failure = refusal(refused, scanner.position, self._settings, self._queue, self.place.offset)
            if rows is None:
                self._raise_failure()
            return rows
        except HeadraceError:
            self.close()
            raise

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _opened(self) -> Scanner:
        if self._scanner is None:
            log = self.place.log
            self._stream, checksums = open_stream(self._settings, log)
            self._scanner = Scanner(
                self._settings.database, self._settings.table, log, checksums, self.place.columns, self._after_statement
            )
            self._skipped, self._done = self.place.rows, 0
            self._heard = self._clock.monotonic()
        return self._scanner

    def _after_statement(self, database: str, statement: str, columns: Columns) -> Columns:
        return self._schema_changes.after(database, statement, columns)

    def _check_silence(self) -> None:
        if self._clock.monotonic() - self._heard > SILENCE_SECONDS:
            raise RetriableError(
                f"MySQL at {self._settings.host}:{self._settings.port} has sent nothing from its binary log for {SILENCE_SECONDS} s",
                plugin="mysql",
            )

    def close(self) -> None:
        """End the connection. A later ``read`` begins again at the place."""
        stream, self._stream, self._scanner = self._stream, None, None
        self._buffer = bytearray()
        self._checked.clear()
        if stream is not None:
            stream.close()

    # ---------------------------------------------------------------------------------------------------- decoding

    def _rows(self, found: Scanned, start: LogPosition, scanner: Scanner, scanned: int) -> LogRows | None:
        begin_base = self.place.base
        ordinals = np.array([start.ordinal, *found.ordinals], dtype=np.int64)
        if not found.begins:
            bases = _bases(begin_base, ordinals, np.array([self._done]))
            self._move(scanner, bases, 0 if found.ends else self._done)
            return None
        raw = self._buffer[:scanned] + found.unpacked + bytes(SPARE_BYTES)
        data = Data(raw, np.frombuffer(raw, dtype=np.uint8))
        kinds, groups = np.array(found.kinds, dtype=np.int8), np.array(found.after, dtype=np.int64)
        maps = np.array(found.map_numbers, dtype=np.int64)
        begins, stops = np.array(found.begins, dtype=np.int64), np.array(found.stops, dtype=np.int64)
        parts = []
        for number, (table_map, columns) in enumerate(found.maps):
            events = np.flatnonzero(maps == number)
            parts.append(self._decoded(data, events, begins, stops, kinds, table_map, columns))
        frame = parts[0].frame if len(parts) == 1 else pl.concat([part.frame for part in parts])
        events = np.concatenate([part.events for part in parts])
        numbers = np.concatenate([part.numbers for part in parts])
        counts = np.zeros(len(kinds), dtype=np.int64)
        np.maximum.at(counts, events, numbers + 1)
        before = np.cumsum(counts) - counts
        first_of_group = np.searchsorted(groups, groups, side="left")
        event_numbers = before - before[first_of_group] + np.where(groups == 0, self._done, 0)
        totals = np.bincount(groups, weights=counts, minlength=len(ordinals)).astype(np.int64)
        totals[0] += self._done
        bases = _bases(begin_base, ordinals, totals)
        row_groups, row_numbers = groups[events], event_numbers[events] + numbers
        row_bases = bases[row_groups]
        offsets = row_bases + ordinals[row_groups] + row_numbers
        skipped = self._skipped if self._skipped else 0
        self._move(scanner, bases, int(totals[-1]))
        rows = LogRows(
            frame, offsets, self.place, start, found.ends, row_groups, row_numbers, row_bases,
            [columns for _, columns in found.maps], maps[events],
        )  # fmt: skip
        return _without_first(rows, skipped) if skipped else rows

    def _move(self, scanner: Scanner, bases: Integers, done: int) -> None:
        """Set the place after the scanned events."""
        ended = len(bases) > 1
        if ended:
            self._skipped = 0
        self._done = done
        self.place = LogPlace(scanner.position, scanner.state, max(done, self._skipped), int(bases[-1]))

    def _decoded(
        self,
        data: Data,
        events: Integers,
        begins: Integers,
        stops: Integers,
        kinds: NDArray[np.int8],
        table_map: TableMap,
        columns: Columns,
    ) -> _Decoded:
        self._check(table_map, columns)
        slots = {column.name: slot for slot, column in enumerate(columns)}
        present = [name for name in self._wanted if name in slots]
        images = images_of(
            data.array, begins[events], stops[events], [wire.extent for wire in table_map.columns],
            [slots[name] for name in present],
        )  # fmt: skip
        of_event = events[images.events]
        kind = kinds[of_event]
        update = kind == ChangeKind.UPDATE_AFTER
        kind = np.where(update & (images.numbers % 2 == 0), ChangeKind.UPDATE_BEFORE, kind).astype(np.int8)
        made = {
            name: series_of_places(columns[slots[name]], table_map.columns[slots[name]], places, data)
            for name, places in zip(present, images.columns, strict=True)
        }
        count = len(kind)
        frame = pl.DataFrame(
            [
                made[name].cast(wanted)
                if name in made
                else pl.repeat(None, count, dtype=wanted, eager=True).alias(name)
                for name, wanted in self._wanted.items()
            ]
        ).with_columns(pl.Series(CHANGE, kind))
        return _Decoded(frame, of_event, np.where(update, images.numbers // 2, images.numbers))

    def _check(self, table_map: TableMap, columns: Columns) -> None:
        if (key := (id(table_map), id(columns))) in self._checked:
            return
        problem = table_maps_differ(columns, table_map, self._wanted)
        if problem is not None:
            raise JobError(
                f"table {self._settings.database}.{self._settings.table}: {problem}",
                plugin="mysql_changes",
                option="table",
                queue=self._queue,
                hint="if the table was changed while the binary log was off, start with a new checkpoint; otherwise leave the column out "
                "with columns=",
            )
        self._checked[key] = (table_map, columns)


def _bases(base: int, ordinals: Integers, totals: Integers) -> Integers:
    """Return the base before each transaction and after the last one: it grows after one with more rows than there is room for."""
    bases = np.full(len(ordinals), base, dtype=np.int64)
    room = np.diff(ordinals)
    for group in np.flatnonzero(totals[: len(room)] > room).tolist():
        lacking = int(totals[group] - room[group])
        bases[group + 1 :] += math.ceil(lacking / ROWS_PER_TRANSACTION) * ROWS_PER_TRANSACTION
    return bases


def _without_first(rows: LogRows, skipped: int) -> LogRows | None:
    """Leave out the first changes of the first transaction, which were read before."""
    kept = (rows._groups > 0) | (rows._numbers >= skipped)
    if not kept.any():
        return None
    return LogRows(
        rows.frame.filter(pl.Series(kept)), rows.offsets[kept], rows.end, rows._start, rows._ends, rows._groups[kept],
        rows._numbers[kept], rows._bases[kept], rows._columns, rows._which_columns[kept],
    )  # fmt: skip
