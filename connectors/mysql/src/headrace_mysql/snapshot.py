"""The rows that a table had at a position of the binary log, read in chunks of its key, without locks.

A chunk is read some time after the position. What was changed meanwhile is in the log, with the old rows: they take the places of
the rows that were read. So every chunk is the table as it was at the position, however often and whenever it is read. (Netflix'
DBLog, which Flink CDC follows, puts the new rows in their places instead, and gives another result each time:
https://arxiv.org/abs/2010.12597.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
from headrace.flow.messages import CHANGE, ChangeKind
from headrace.foundation.clock import Clock
from headrace.foundation.errors import HeadraceError, JobError, RetriableError
from pymysql.cursors import SSCursor

from headrace_mysql.binlog.following import LogPlace, LogReader, LogRows
from headrace_mysql.binlog.positions import ROWS_PER_TRANSACTION
from headrace_mysql.connection import connect, quoted_for_parameters, translating
from headrace_mysql.log_server import LogServer
from headrace_mysql.reader import _HAS_ARROW
from headrace_mysql.settings import MySQLChangesSettings
from headrace_mysql.tables import TableColumn
from headrace_mysql.types import INTEGER_BYTES, column_type, selected, series_of

#: How long to wait for events that are in the log according to the server.
_LOG_SECONDS = 30.0
_WAIT_SECONDS = 0.1
_TEXTS = {"char", "varchar"}
_PLAIN = {*INTEGER_BYTES, "decimal", "date", "datetime", "timestamp", "year", "binary", "varbinary"}
#: Weights asked for with one query.
_WEIGHTS_MAX = 500
_PRESENT = "__hr_present"

#: The key of a row as JSON values.
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column of the key by which chunks are read."""

    column: TableColumn

    @property
    def order(self) -> str:
        """The column of frames by which rows are ordered as the server orders them."""
        return f"__hr_order_{self.column.name}"

    @property
    def is_text(self) -> bool:
        """Whether the server orders by a collation: then its weights are asked for."""
        return self.column.kind in _TEXTS

    def weight(self, text: str) -> str:
        """Return the SQL expression for the weight of a text."""
        padded = "nopad" not in self.column.collation and "0900" not in self.column.collation
        return f"WEIGHT_STRING({text} AS CHAR({self.column.length}))" if padded else f"WEIGHT_STRING({text})"

    def literal_weight(self) -> str:
        """Return the SQL expression for the weight of a parameter."""
        column = self.column
        return self.weight(f"CONVERT(%s USING {column.character_set}) COLLATE {column.collation}")

    def from_json(self, value: Any) -> Any:
        """Return a value of a hint as a parameter of a statement."""
        kind = self.column.kind
        if kind in ("binary", "varbinary"):
            return bytes.fromhex(value)
        if kind == "decimal":
            return Decimal(value)
        return int(value) if kind == "bigint" else value


def check_key(key: Sequence[TableColumn], settings: MySQLChangesSettings) -> None:
    """Raise JobError for a key whose order is not known here."""
    for column in key:
        if column.kind not in _PLAIN | _TEXTS:
            raise JobError(
                f"table {settings.database}.{settings.table}: its key has {column.name!r} {column.full_type.upper()}, and a snapshot "
                "cannot be read in chunks by a key of this type",
                plugin="mysql_changes",
                option="table",
                hint="start='latest' reads the changes only; or give the table a primary key of numbers, texts, bytes or dates",
            )
    if [column.full_type for column in key] == ["tinyint(1)"]:
        raise JobError(
            f"table {settings.database}.{settings.table}: its key {key[0].name!r} is TINYINT(1), which is read as true or false: its other "
            "values could not be told apart",
            plugin="mysql_changes",
            option="table",
            hint=f"start='latest' reads the changes only; or ALTER TABLE … MODIFY {key[0].name} SMALLINT NOT NULL",
        )


class Snapshot:
    """Reads the rows of a table as they were at ``place``, in the order of the key, from behind ``after`` on."""

    def __init__(
        self,
        settings: MySQLChangesSettings,
        place: LogPlace,
        wanted: Mapping[str, pl.DataType],
        known: Mapping[str, TableColumn],
        key: Sequence[TableColumn],
        queue: str,
        clock: Clock,
        after: Key | None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._queue = queue
        self._key = [KeyPart(column) for column in key]
        self._orders = [part.order for part in self._key]
        self._wanted = dict(wanted)
        #: What is read: the columns, and those of the key that are not among them.
        self._read = {**wanted, **{part.column.name: column_type(part.column) for part in self._key}}
        self._columns = {name: known[name] for name in self._read}
        self._log = LogReader(settings, place, self._read, known, queue, clock)
        self._changed: pl.DataFrame | None = None
        self._connection: Any = None
        #: Rows up to this key were read.
        self.after = after
        #: The values of that key by which rows are ordered, once they are known.
        self._after_orders: list[Any] | None = None
        #: Whether there are no more rows.
        self.ended = False

    def chunk(self, rows_max: int) -> tuple[pl.DataFrame, list[Key]]:
        """Return the next rows, about ``rows_max``, and the key of each. None at all: call again, unless ``ended``.

        Raises RetriableError when the server is away, DataError when its log is not there any more, JobError when the table was changed.
        """
        rows_max = min(rows_max, self._settings.chunk_rows)
        try:
            found = self._select(rows_max + 1)
            self._catch_up()
        except HeadraceError:
            self.close()
            raise
        # The row more tells now that there is none, not with the next chunk.
        ended, found = found.height <= rows_max, found.head(rows_max)
        last = None if ended else found.row(-1, named=True)
        merged = self._as_it_was(found, last)
        self.ended = ended
        keys = _keys_of(merged, self._key)
        if last is not None:
            self.after = _keys_of(found.tail(1), self._key)[0]
            self._after_orders = [last[name] for name in self._orders]
        return merged.select(list(self._wanted)), keys

    def close(self) -> None:
        """End the connections; the collected changes stay."""
        self._log.close()
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    # -------------------------------------------------------------------------------------------------- the table

    def _select(self, rows_max: int) -> pl.DataFrame:
        columns = [selected(column).replace("%", "%%") for column in self._columns.values()]
        weights = [part.weight(quoted_for_parameters(part.column.name)) for part in self._key if part.is_text]
        condition, parameters = self._behind()
        order = ", ".join(quoted_for_parameters(part.column.name) for part in self._key)
        statement = (
            f"SELECT 0, {', '.join([*columns, *weights])} FROM {quoted_for_parameters(self._settings.table)}"  # noqa: S608
            f"{condition} ORDER BY {order} LIMIT %s"
        )
        types = {**self._read, **{part.order: pl.Binary() for part in self._key if part.is_text}}
        made = self._series(statement, (*parameters, rows_max), types)
        frame = pl.DataFrame(made)
        return frame.with_columns(
            [pl.col(part.column.name).alias(part.order) for part in self._key if not part.is_text]
        )

    def _behind(self) -> tuple[str, tuple[Any, ...]]:
        """Return the condition for keys behind the last one: the first differing part is greater."""
        if self.after is None:
            return "", ()
        names = [quoted_for_parameters(part.column.name) for part in self._key]
        values = [part.from_json(value) for part, value in zip(self._key, self.after, strict=True)]
        ways, parameters = [], []
        for place, name in enumerate(names):
            ways.append(" AND ".join([*(f"{other} = %s" for other in names[:place]), f"{name} > %s"]))
            parameters += values[: place + 1]
        # The first part by itself lets the server use the index.
        return f" WHERE {names[0]} >= %s AND (({') OR ('.join(ways)}))", (values[0], *parameters)

    def _series(self, statement: str, parameters: tuple[Any, ...], types: Mapping[str, pl.DataType]) -> list[pl.Series]:
        with translating(self._settings), self._connected().cursor(SSCursor if _HAS_ARROW else None) as cursor:
            cursor.execute(statement, parameters)
            if _HAS_ARROW:
                from headrace_mysql.row_packets import RowPackets

                return RowPackets(cursor).columns(types, pl.Int64())[1]
            rows = cursor.fetchall()
        columns = list(zip(*rows, strict=True))[1:] if rows else [()] * len(types)
        return [series_of(name, kind, values) for (name, kind), values in zip(types.items(), columns, strict=True)]

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = connect(self._settings, autocommit=True)
        return self._connection

    # ----------------------------------------------------------------------------------------------------- the log

    def _catch_up(self) -> None:
        """Read the log up to where it ends now, which is behind everything that the chunk has."""
        target = LogServer(self._connected(), self._settings).end()
        deadline = self._clock.monotonic() + _LOG_SECONDS
        while not (before := self._log.place).log.covers(target):
            rows = self._log.read(_WAIT_SECONDS)
            if rows is not None:
                self._note(rows)
            # Transactions of other tables move the place, too.
            if self._log.place is not before and self._log.place != before:
                deadline = self._clock.monotonic() + _LOG_SECONDS
            elif self._clock.monotonic() > deadline:
                raise RetriableError(
                    f"the log of MySQL at {self._settings.host}:{self._settings.port} ends at {target} according to the server, but was "
                    f"received only up to {self._log.place.log}",
                    plugin="mysql_changes",
                )

    def _note(self, rows: LogRows) -> None:
        """Keep the old row of each key that is changed for the first time since the position; none, if there was no row."""
        old = [ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE]
        frame = rows.frame.with_columns(pl.col(CHANGE).is_in(old).alias(_PRESENT)).drop(CHANGE)
        frame = self._unread(self._ordered(frame.unique(subset=self._names, keep="first", maintain_order=True)))
        changed = frame if self._changed is None else pl.concat([self._changed, frame])
        self._changed = changed.unique(subset=self._orders, keep="first", maintain_order=True)
        size = self._changed.estimated_size()
        if size > self._settings.snapshot_memory_max_bytes:
            raise JobError(
                f"{self._changed.height:,} rows of table {self._settings.database}.{self._settings.table} were changed before the "
                f"snapshot reached them; keeping them in memory takes {size:,} bytes",
                plugin="mysql_changes",
                option="snapshot_memory_max_bytes",
                queue=self._queue,
                hint="raise the limit, or start the job when fewer rows are written",
            )

    @property
    def _names(self) -> list[str]:
        return [part.column.name for part in self._key]

    def _ordered(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add the columns by which rows are ordered. Asks the server for the weights of texts."""
        return frame.with_columns(
            [
                pl.Series(part.order, self._weights(part, frame[part.column.name].to_list()), dtype=pl.Binary)
                if part.is_text
                else frame[part.column.name].alias(part.order)
                for part in self._key
            ]
        )

    def _weights(self, part: KeyPart, texts: Sequence[str]) -> list[bytes]:
        found: list[bytes] = []
        with translating(self._settings), self._connected().cursor() as cursor:
            for begin in range(0, len(texts), _WEIGHTS_MAX):
                some = texts[begin : begin + _WEIGHTS_MAX]
                cursor.execute("SELECT " + ", ".join([part.literal_weight()] * len(some)), tuple(some))
                found += cursor.fetchall()[0]
        return found

    def _unread(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows behind those that were read."""
        if self.after is None or not frame.height:
            return frame
        if self._after_orders is None:
            self._after_orders = [
                self._weights(part, [value])[0] if part.is_text else _from_json(value, part)
                for part, value in zip(self._key, self.after, strict=True)
            ]
        return frame.filter(self._behind_orders(frame, self._after_orders))

    def _behind_orders(self, frame: pl.DataFrame, values: Sequence[Any]) -> pl.Expr:
        literals = [pl.lit(value, dtype=frame.schema[name]) for name, value in zip(self._orders, values, strict=True)]
        return _greater(self._orders, literals)

    def _as_it_was(self, found: pl.DataFrame, last: Mapping[str, Any] | None) -> pl.DataFrame:
        """Return a chunk with the rows that it had at the position, and forget the collected changes of it."""
        if self._changed is None or not self._changed.height:
            return found
        changed = self._changed
        here = changed
        if last is not None:
            behind = self._behind_orders(changed, [last[name] for name in self._orders])
            here, self._changed = changed.filter(~behind), changed.filter(behind)
        else:
            self._changed = None
        if not here.height:
            return found
        was = here.filter(pl.col(_PRESENT)).drop(_PRESENT).select(found.columns)
        kept = found.join(here, on=self._orders, how="anti", maintain_order="left")
        return pl.concat([kept, was]).sort(self._orders)


def _greater(names: Sequence[str], values: Sequence[pl.Expr]) -> pl.Expr:
    """Return whether rows are greater than values, by the first column that differs."""
    result = pl.lit(False)
    for name, value in zip(reversed(names), reversed(values), strict=True):
        result = (pl.col(name) > value) | ((pl.col(name) == value) & result)
    return result


def _keys_of(frame: pl.DataFrame, key: Sequence[KeyPart]) -> list[Key]:
    """Return the keys of rows as JSON values."""
    columns = [[_to_json(value) for value in frame[part.column.name].to_list()] for part in key]
    return list(zip(*columns, strict=True))


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    if isinstance(value, date):
        return value.isoformat()
    return value


def _from_json(value: Any, part: KeyPart) -> Any:
    kind = part.column.kind
    if kind in ("binary", "varbinary"):
        return bytes.fromhex(value)
    if kind == "decimal" or (kind == "bigint" and part.column.unsigned):
        return Decimal(value)
    if kind == "date":
        return date.fromisoformat(value)
    if kind == "datetime":
        return datetime.fromisoformat(value)
    if kind == "timestamp":
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    return value


def slots_for(rows_estimated: int) -> int:
    """Return how many times ``ROWS_PER_TRANSACTION`` offsets are left for the rows of a snapshot: far more than are estimated."""
    return 1 + 8 * rows_estimated // ROWS_PER_TRANSACTION
