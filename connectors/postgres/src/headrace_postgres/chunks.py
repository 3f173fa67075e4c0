"""The snapshot of a table in chunks of its key, without locks, and which changes of the log its chunks already have.

A chunk is read when it is needed, some time after the log's first position. With it the server tells which transactions it sees
(``pg_current_snapshot``). Behind the last chunk the log is read from its first position on. A change is passed over if its transaction
was seen by the chunk in whose range its key lies. So the changes of each key go on where its chunk was read. Netflix' DBLog
(https://arxiv.org/abs/2010.12597) does that with positions of the log as watermarks; transactions tell it exactly, as one can be in the
log before others see its rows.

A chunk cannot be read again later: its rows would be others. So it is stored, compressed, in a table of the server
before its rows are given. It is removed when a later checkpoint is stored. Its range, and which transactions it has
seen, are kept until the log has passed the last chunk.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from headrace.foundation.errors import DataError, JobError
from numpy.typing import NDArray

from headrace_postgres.connection import connect, quoted, translated, translating
from headrace_postgres.log.places import lsn_of
from headrace_postgres.pages import Key, Pages
from headrace_postgres.positions import lock_number
from headrace_postgres.settings import PostgresChangesSettings
from headrace_postgres.tables import TableColumn
from headrace_postgres.types import INTEGERS

STATEMENT = """
CREATE TABLE IF NOT EXISTS {table} (
  slot text NOT NULL,
  run text NOT NULL,              -- one for each time that a job begins anew
  number integer NOT NULL,
  last_key text[],                -- the chunk has the keys up to this one; NULL: all that follow
  seen text NOT NULL,             -- the transactions that it has seen, as pg_snapshot
  lsn pg_lsn NOT NULL,            -- it was read before the log reached this position
  row_count bigint NOT NULL,
  content bytea,                  -- its rows, until a checkpoint is behind them
  PRIMARY KEY (slot, run, number)
)
"""
_COLUMNS = {"slot", "run", "number", "last_key", "seen", "lsn", "row_count", "content"}
_PERMISSION = "42501"


@dataclass(frozen=True)
class Chunk:
    """Rows of a snapshot. ``last``: it is the last chunk."""

    number: int
    frame: pl.DataFrame
    last_key: Key | None
    #: Where the log was when it had been read.
    lsn: int

    @property
    def last(self) -> bool:
        return self.last_key is None


class Chunks:
    """The chunks of one snapshot, stored in a table of the server. Connects when it is first used."""

    def __init__(
        self,
        settings: PostgresChangesSettings,
        slot: str,
        run: str,
        columns: Mapping[str, TableColumn],
        key: Sequence[TableColumn],
    ) -> None:
        self._settings = settings
        self._place = (slot, run)
        self._key = tuple(key)
        self._pages = Pages(settings, columns, key, "postgres_changes")
        self._table = f"{quoted(settings.schema)}.{quoted(settings.chunks_table)}"
        self._in_statements = self._table.replace("%", "%%")
        self._connection: Any = None

    def prepare(self) -> None:
        """Create the table unless it exists, and remove what earlier runs left. Raises JobError."""
        import psycopg

        settings = self._settings
        connection = self._connected()
        with translating(settings), connection.transaction(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT column_name::text FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
                (settings.schema, settings.chunks_table),
            )
            found = {name for (name,) in cursor.fetchall()}
            if not found:
                try:
                    cursor.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(self._table),))
                    cursor.execute(STATEMENT.format(table=self._table))
                except psycopg.Error as error:
                    if error.sqlstate != _PERMISSION:
                        raise translated(error, settings) from error
                    raise JobError(
                        f"PostgreSQL at {settings.host}:{settings.port}: user {settings.user!r} may not create the table"
                        f" {settings.database}.{settings.schema}.{settings.chunks_table}, which holds the chunks of snapshots",
                        plugin="postgres_changes",
                        option="chunks_table",
                        hint="let an administrator create it once (the statement is in docs/connectors/postgres.md), or grant CREATE "
                        "on the schema; start='latest' needs no such table",
                    ) from error
            elif not found >= _COLUMNS:
                raise JobError(
                    f"table {settings.database}.{settings.schema}.{settings.chunks_table} is not a table of chunks",
                    plugin="postgres_changes",
                    option="chunks_table",
                    hint="name a table that does not exist; it will be created",
                )
            cursor.execute(f"DELETE FROM {self._in_statements} WHERE slot = %s", self._place[:1])  # noqa: S608

    def chunk(self, number: int) -> Chunk:
        """Return a chunk, read now if it is not stored. Raises DataError for one that was removed."""
        found = self._stored(number)
        if found is None:
            self._read(number)
            found = self._stored(number)
        if found is None:
            raise self._gone(number)
        return found

    def _stored(self, number: int) -> Chunk | None:
        with translating(self._settings), self._cursor() as cursor:
            cursor.execute(
                f"SELECT content, last_key, lsn::text FROM {self._in_statements}"  # noqa: S608
                " WHERE slot = %s AND run = %s AND number = %s",
                (*self._place, number),
            )
            row = cursor.fetchone()
        if row is None:
            return None
        content, last_key, lsn = row
        if content is None:
            raise self._gone(number)
        frame = pl.read_ipc(io.BytesIO(content))
        return Chunk(number, frame, None if last_key is None else tuple(last_key), lsn_of(lsn))

    def _gone(self, number: int) -> DataError:
        return DataError(
            f"chunk {number} of the snapshot is not there any more: a later checkpoint was stored, or another job has started from the "
            f"beginning with the slot {self._place[0]!r}",
            plugin="postgres_changes",
            hint="start with a new checkpoint: the job reads the whole table again",
        )

    def _read(self, number: int) -> None:
        """Read a chunk and store it, unless another process does so first."""
        rows_max = self._settings.chunk_rows
        connection = self._connected()
        after: Key | None = None
        with translating(self._settings), connection.transaction(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            if number:
                cursor.execute(
                    f"SELECT last_key FROM {self._in_statements} WHERE slot = %s AND run = %s AND number = %s",  # noqa: S608
                    (*self._place, number - 1),
                )
                before = cursor.fetchone()
                if before is None or before[0] is None:
                    raise self._gone(number - 1)
                after = tuple(before[0])
            # One more row than needed is read: so it is known now, and not only with the next chunk, whether this is
            # the last one.
            page = self._pages.read(connection, after, rows_max + 1)
            ended = page.frame.height <= rows_max
            last_key = None if ended else list(page.key_at(rows_max - 1))
            content = io.BytesIO()
            page.frame.head(rows_max).write_ipc(content, compression="zstd")
            cursor.execute(
                f"INSERT INTO {self._in_statements} (slot, run, number, last_key, seen, lsn, row_count, content)"  # noqa: S608
                " VALUES (%s, %s, %s, %s::text[], pg_current_snapshot()::text, pg_current_wal_insert_lsn(), %s, %s)"
                " ON CONFLICT DO NOTHING",
                (*self._place, number, last_key, min(page.frame.height, rows_max), content.getvalue()),
            )

    def forget(self, *, before: int | None) -> None:
        """Remove the rows of chunks before a number, or everything of the slot. Called when a checkpoint is stored."""
        with translating(self._settings), self._cursor() as cursor:
            cursor.execute("SELECT to_regclass(%s) IS NULL", (self._table,))
            if cursor.fetchone() == (True,):
                return  # the job began without a snapshot
            if before is None:
                cursor.execute(f"DELETE FROM {self._in_statements} WHERE slot = %s", self._place[:1])  # noqa: S608
                return
            cursor.execute(
                f"UPDATE {self._in_statements} SET content = NULL"  # noqa: S608
                " WHERE slot = %s AND run = %s AND number < %s AND content IS NOT NULL",
                (*self._place, before),
            )

    def ranges(self) -> Ranges:
        """Return the ranges of the chunks, and the transactions that each has seen."""
        with translating(self._settings), self._cursor() as cursor:
            cursor.execute(
                f"SELECT last_key, seen FROM {self._in_statements} WHERE slot = %s AND run = %s ORDER BY number",  # noqa: S608
                self._place,
            )
            found = cursor.fetchall()
        if not found or found[-1][0] is not None:
            raise self._gone(len(found))
        return Ranges(self._key, [tuple(key) for key, _ in found[:-1]], [Seen.parse(seen) for _, seen in found])

    def numbers_of(self, keys: pl.DataFrame, ranges: Ranges) -> NDArray[np.int64]:
        """Return the number of the chunk in whose range each key lies."""
        if not ranges.ends:
            return np.zeros(keys.height, dtype=np.int64)
        if ranges.numbers is not None:
            numbers = np.searchsorted(ranges.numbers, keys.to_series().cast(pl.Int64).to_numpy(), side="left")
            return numbers.astype(np.int64)
        kinds = ", ".join(f"%s::text[]::{column.full_type.replace('%', '%%')}[]" for column in self._key)
        names = [f"k{number}" for number in range(len(self._key))]
        collated = [
            f"{{}}.{name}" + (f" COLLATE {column.collation.replace('%', '%%')}" if column.collation else "")
            for name, column in zip(names, self._key, strict=True)
        ]
        one, other = (", ".join(each.format(row) for each in collated) for row in "bv")
        statement = (
            f"SELECT (SELECT count(*) FROM unnest({kinds}) AS b({', '.join(names)}) WHERE ({one}) < ({other}))"  # noqa: S608
            f" FROM unnest({kinds}) WITH ORDINALITY AS v({', '.join(names)}, n) ORDER BY n"
        )
        ends_by_column = [list(each) for each in zip(*ranges.ends, strict=True)]
        with translating(self._settings), self._cursor() as cursor:
            cursor.execute(statement, [*ends_by_column, *(keys[name].to_list() for name in keys.columns)])
            return np.array([number for (number,) in cursor.fetchall()], dtype=np.int64)

    def _cursor(self) -> Any:
        return self._connected().cursor()

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._settings, autocommit=True)
        return self._connection

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


@dataclass(frozen=True, slots=True)
class Seen:
    """The transactions that a query has seen: all before ``low``, none from ``high`` on, and between them those not in ``running``."""

    low: int
    high: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Seen:
        """Read a ``pg_snapshot``: ``10:20:10,14,15``."""
        low, high, running = text.split(":")
        return cls(int(low), int(high), frozenset(int(number) for number in running.split(",") if number))


class Ranges:
    """The ranges of chunks, and the transactions that each of them has seen."""

    def __init__(self, key: Sequence[TableColumn], ends: Sequence[Key], seen: Sequence[Seen]) -> None:
        """``ends``: the last key of each chunk but the last."""
        self.ends = ends
        self._seen = seen
        self._lows = np.array([each.low for each in seen], dtype=np.int64)
        self._highs = np.array([each.high for each in seen], dtype=np.int64)
        #: For a key of one whole number: these are compared here. Only the server knows the order of its other types.
        self.numbers: NDArray[np.int64] | None = None
        if len(key) == 1 and key[0].kind in INTEGERS:
            self.numbers = np.array([int(end[0]) for end in ends], dtype=np.int64)

    def seen(
        self, transactions: NDArray[np.int64], chunks_of: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    ) -> NDArray[np.bool_]:
        """Return for each row whether the chunk of its key has seen its transaction, of whose number the log has 32 bits.

        ``chunks_of`` returns the chunks of rows; it is asked only for transactions that some chunks have seen and others not.
        """
        # The log is read soon after the chunks: the number is the one next to theirs that has these bits.
        last = int(self._highs.max())
        whole = last + ((transactions - last + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
        there: NDArray[np.bool_] = whole < self._lows.min()
        unsure = np.flatnonzero(~there & (whole < last))
        if len(unsure):
            chunks = chunks_of(unsure)
            there[unsure] = whole[unsure] < self._highs[chunks]
            between = there[unsure] & (whole[unsure] >= self._lows[chunks])
            for row, chunk in zip(unsure[between].tolist(), chunks[between].tolist(), strict=True):
                there[row] = int(whole[row]) not in self._seen[chunk].running
        return there
