"""A simulated MySQL: what the sink of headrace-mysql asks of a server, with transactions, row locks and lost connections.

It stands at the place of the driver's connection. A statement of the connector that is not known here is an error, so that nothing is
answered by chance. Rows that are not committed are seen by nobody else; a position is locked from the first write to the end of the
transaction; a transaction that is idle for 30 s, as that of a paused process, is ended by the server, as MariaDB does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pymysql
from headrace_mysql import connection as driver

from tests.simulation.servers import Server, shown
from tests.simulation.world.scheduler import Crashed, Process, World

_US = 400
#: A transaction takes many statements, so each is lost more rarely than a call of other servers.
_OF_A_STATEMENT = 0.2
_IDLE_US = driver.IDLE_TRANSACTION_SECONDS * 1_000_000
_LOCK_WAIT_US = 50_000_000
Row = tuple[Any, ...]

_CREATE = re.compile(r"\s*CREATE TABLE (?:IF NOT EXISTS )?`(\w+)` \((.*)\) ENGINE", re.DOTALL)
_WRITE = re.compile(r"(INSERT|REPLACE) INTO `(\w+)` \(([^)]*)\) VALUES (.*?)( ON DUPLICATE KEY UPDATE .*)?$", re.DOTALL)
_DELETE = re.compile(r"DELETE FROM `(\w+)` WHERE \(([^)]*)\) IN \((.*)\)$", re.DOTALL)
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}")
_VALUE = re.compile(r"'((?:[^'\\]|\\.)*)'|NULL|-?[\d.]+(?:e[-+]?\d+)?", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "Z": "\x1a", "b": "\b"}
#: What asks for rights and changes nothing.
_NOTHING = re.compile(r"WHERE (1 = 0|FALSE)\b|^SET ")


class _Table:
    def __init__(self, columns: Sequence[tuple[str, str, bool]], key: tuple[str, ...]) -> None:
        self.columns = columns
        self.key = key
        #: By key; rows of a table without a key are counted.
        self.by_key: dict[Row, dict[str, Any]] = {}
        self.counted: Counter[str] = Counter()
        self.values: dict[str, dict[str, Any]] = {}


class MySQL(Server):
    """The server. ``connection`` stands for the class of the driver's connections while the world is entered."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.tables: dict[str, _Table] = {}
        #: By writer and queue: the other columns of the table of positions.
        self.positions: dict[tuple[bytes, bytes], list[Any]] = {}
        self.locks: dict[tuple[bytes, bytes], _Connection] = {}
        self.faults: list[str] = []
        #: How many of 100 transactions are ended by the server because of a deadlock.
        self.deadlocks = 0.0

    def connection(self, **_: Any) -> _Connection:
        return _Connection(self)

    def there(self, table: str) -> Counter[str]:
        """Return the committed rows of a table, and how often each is there."""
        found = self.tables.get(table)
        if found is None:
            return Counter()
        return +found.counted if not found.key else Counter(map(shown, found.by_key.values()))

    def rows_of(self, table: str) -> list[dict[str, Any]]:
        """Return the committed rows of a table with their values."""
        found = self.tables.get(table)
        if found is None:
            return []
        keyed = list(found.by_key.values())
        return keyed or [found.values[text] for text, count in (+found.counted).items() for _ in range(count)]


class _Connection:
    server_status = 0

    def __init__(self, server: MySQL) -> None:
        self._server = server
        self._process: Process = server.world.current.process
        self.open = True
        self._was_closed = False
        #: When the server has heard of it last, and the changes of its transaction: of positions, and of rows.
        self._heard_us = server.world.us
        self._moved: dict[tuple[bytes, bytes], list[Any] | None] = {}
        self._changes: list[Callable[[], None]] = []
        self.ask("connect")

    def get_server_info(self) -> str:
        return "11.4.2-MariaDB"

    # ------------------------------------------------------------------------------------------------ the network

    def ask(self, what: str) -> None:
        """A statement travels to the server. Raises what the driver does when the connection is gone."""
        server, world = self._server, self._server.world
        if not self.open:
            raise pymysql.err.InterfaceError(0, "")
        world.step(server.name, what[:80])
        world.pause(int(_US * (0.5 + world.random.random())))
        if self._abandoned():
            self._lose("the server has ended the transaction")
        self._heard_us = world.us
        if (
            any(begin <= world.us < end for begin, end in server.away)
            or world.random.random() < server.lossy * _OF_A_STATEMENT
        ):
            self._lose("it is not there")

    def answered(self, what: str) -> None:
        """The answer travels; it may be lost, after the server has done what was asked."""
        server, world = self._server, self._server.world
        world.step(f"{server.name}.done", what[:80])
        if (
            any(begin <= world.us < end for begin, end in server.away)
            or world.random.random() < server.lossy * _OF_A_STATEMENT
        ):
            self._lose("its answer was lost")

    def _lose(self, why: str) -> None:
        self._server.world.trace.add(self._server.world.us, self._server.name, "fails", why)
        self.end()
        raise pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")

    def _abandoned(self) -> bool:
        """Whether the server has ended the transaction of this connection, whose process is gone or has slept too long."""
        writes = bool(self._moved or self._changes)
        return self._process.dead or (writes and self._server.world.us - self._heard_us > _IDLE_US)

    def end(self) -> None:
        """The connection is gone, and with it its transaction."""
        self.open = False
        self.undo()

    def undo(self) -> None:
        self._moved.clear()
        self._changes.clear()
        for key in [key for key, holder in self._server.locks.items() if holder is self]:
            del self._server.locks[key]

    # ------------------------------------------------------------------------------------------------ the driver

    def cursor(self) -> _Cursor:
        return _Cursor(self, self._server)

    def commit(self) -> None:
        self.ask("COMMIT")
        if self._server.deadlocks and self._server.world.random.random() < self._server.deadlocks:
            self.undo()
            raise pymysql.err.OperationalError(
                1213, "Deadlock found when trying to get lock; try restarting transaction"
            )
        for key, row in self._moved.items():
            if row is None:
                self._server.positions.pop(key, None)
            else:
                self._server.positions[key] = row
        for change in self._changes:
            change()
        self.undo()
        self.answered("COMMIT")

    def rollback(self) -> None:
        self.ask("ROLLBACK")
        self.undo()

    def close(self) -> None:
        if self._was_closed:
            raise pymysql.err.Error("Already closed")
        if self._server.world.current.process.dead:
            raise Crashed
        self._was_closed = True
        self.end()

    # ------------------------------------------------------------------------------------------ the transaction

    def position(self, key: tuple[bytes, bytes]) -> list[Any] | None:
        return self._moved.get(key, self._server.positions.get(key))

    def move(self, key: tuple[bytes, bytes], row: list[Any] | None) -> None:
        self._moved[key] = row

    def change(self, change: Callable[[], None]) -> None:
        self._changes.append(change)

    def lock(self, key: tuple[bytes, bytes]) -> None:
        """Wait for the lock of a position. Raises what the driver does when that takes too long."""
        server, world = self._server, self._server.world
        until = world.us + _LOCK_WAIT_US
        while (holder := server.locks.get(key)) is not None and holder is not self:
            if holder._abandoned():
                holder.end()
                continue
            if world.us > until:
                raise pymysql.err.OperationalError(1205, "Lock wait timeout exceeded; try restarting transaction")
            world.pause(50_000)
            self._heard_us = world.us
        server.locks[key] = self


class _Cursor:
    def __init__(self, connection: _Connection, server: MySQL) -> None:
        self._connection, self._server = connection, server
        self._rows: list[Row] = []
        self.rowcount = 0

    def __enter__(self) -> _Cursor:
        return self

    def __exit__(self, *_: Any) -> None:
        self._rows = []

    def fetchone(self) -> Row | None:
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[Row]:
        rows, self._rows = self._rows, []
        return rows

    def execute(self, statement: str | bytes, arguments: Sequence[Any] | None = None) -> int:
        text = statement.decode() if isinstance(statement, bytes) else statement
        self._connection.ask(text)
        self._rows, self.rowcount = self._answer(text, tuple(arguments or ())), 0
        self.rowcount = len(self._rows)
        if arguments is None or not text.startswith("SELECT"):
            self.rowcount = self._write(text, tuple(arguments or ()))
        self._connection.answered(text)
        return self.rowcount

    # ---------------------------------------------------------------------------------------------------- reading

    def _answer(self, text: str, given: Row) -> list[Row]:
        if not text.startswith("SELECT"):
            return []
        tables, server = self._server.tables, self._server
        if _NOTHING.search(text):
            return []
        if "information_schema" in text or "@@" in text or "_LOCK(" in text:
            return self._about(text, given)
        if text.startswith("SELECT 1 FROM") and "writer_id" not in text:
            return [(1,)] if server.there(text.split("`")[1]) else []
        assert "offsets" in text or "positions" in text, text
        if "queue_id = %s" in text:
            row = self._connection.position((given[0], given[1]))
            if row is None:
                return []
            return [(row[1],)] if text.startswith("SELECT queue ") else [(row[2], row[3])]
        of_writer = [row for (writer, _), row in server.positions.items() if writer == given[0]]
        if text.startswith("SELECT last_index, queue"):
            return [(row[3], row[1]) for row in of_writer if row[2] == given[1]]
        assert text.startswith("SELECT 1 FROM"), text
        found = [
            row for (writer, queue), row in server.positions.items()
            if writer == given[0] and queue != given[1] and row[2] != given[2]
        ]  # fmt: skip
        del tables
        return [(1,)] if found else []

    def _about(self, text: str, given: Row) -> list[Row]:
        if "@@max_allowed_packet" in text:
            return [(16 * 1024**2,)]
        if "_LOCK(" in text:  # creating takes one step here
            return [(1,)]
        if "collations" in text:
            return [("utf8mb4_0900_bin",)]
        table = self._server.tables.get(given[1])
        if table is None:
            return []
        if "information_schema.engines" in text:
            return [("InnoDB", "YES")]
        if "information_schema.statistics" in text:
            return [("PRIMARY", name) for name in table.key]
        if text.startswith("SELECT column_name FROM"):
            return [(name,) for name, _, _ in table.columns]
        return [
            (
                name,
                kind.split("(")[0],
                kind,
                "YES" if nullable else "NO",
                None,
                "",
                19,
                0,
                "utf8mb4",
                "utf8mb4_bin",
                1000,
            )
            for name, kind, nullable in table.columns
        ]

    # ---------------------------------------------------------------------------------------------------- writing

    def _write(self, text: str, given: Row) -> int:
        if text.startswith("SELECT") or _NOTHING.search(text):
            return self.rowcount
        if created := _CREATE.match(text):
            self._create(created[1], created[2])
            return 0
        if "%s" in text:
            return self._position(text, given)
        if written := _WRITE.match(text):
            names = [name.strip(" `") for name in written[3].split(",")]
            rows = [dict(zip(names, values, strict=True)) for values in values_of(written[4])]
            self._connection.change(lambda: self._store(written[1], written[2], rows, upsert=bool(written[5])))
            return len(rows)
        deleted = _DELETE.match(text)
        assert deleted, f"not a statement that the simulated server knows: {text[:200]}"
        table = self._server.tables[deleted[1]]
        names = [name.strip(" `") for name in deleted[2].split(",")]
        keys = [dict(zip(names, values, strict=True)) for values in values_of(deleted[3])]

        def remove() -> None:
            for key in keys:
                table.by_key.pop(tuple(key[name] for name in table.key), None)

        self._connection.change(remove)
        return len(keys)

    def _create(self, name: str, text: str) -> None:
        if name in self._server.tables:
            return
        columns, key = [], tuple[str, ...]()
        for part in _parts(text):
            if part.startswith("PRIMARY KEY"):
                key = tuple(each.strip(" `") for each in part[part.index("(") + 1 : -1].split(","))
            else:
                column, kind = part.split(None, 1)
                columns.append((column.strip("`"), _kind(kind), "NOT NULL" not in kind))
        self._server.tables[name] = _Table(columns, key)

    def _position(self, text: str, given: Row) -> int:
        connection, server = self._connection, self._server
        if text.startswith("INSERT IGNORE"):
            key, row = (given[0], given[1]), [*given[2:], *((0, 0) if len(given) == 4 else ())]
            connection.lock(key)
            if connection.position(key) is not None:
                return 0
            connection.move(key, row)
            return 1
        if text.startswith("DELETE"):
            keys = [key for key, row in server.positions.items() if key[0] == given[0]]
            if "last_offset = %s" in text:
                keys = [key for key in keys if server.positions[key][2] == given[1]]
            for key in keys:
                connection.lock(key)
                connection.move(key, None)
            return len(keys)
        assert text.startswith("UPDATE"), text
        key = (given[-2], given[-1]) if "SET queue" in text else (given[2], given[3])
        connection.lock(key)
        before = connection.position(key)
        if before is None:
            return 0
        if "SET queue" in text:
            connection.move(key, [before[0], given[0], before[2], 1 - before[3]])
            return 1
        if (before[2], before[3]) != (given[4], given[5]):
            return 0
        connection.move(key, [before[0], before[1], given[0], given[1]])
        return 1

    def _store(self, verb: str, name: str, rows: Sequence[dict[str, Any]], *, upsert: bool) -> None:
        table = self._server.tables[name]
        for row in rows:
            if not table.key:
                table.counted[shown(row)] += 1
                table.values[shown(row)] = row
                continue
            key = tuple(row[column] for column in table.key)
            if key in table.by_key and verb == "INSERT" and not upsert:
                self._server.faults.append(f"{name} has a row of key {key} already")
            table.by_key[key] = row


def values_of(text: str) -> list[list[Any]]:
    """Return the values of ``(1,'a'),(2,'b')``, row by row. Times are as UTC."""
    rows: list[list[Any]] = []
    at = 0
    while at < len(text):
        if text[at] == "(":
            rows.append([])
        elif text[at] not in "),":
            found = _VALUE.match(text, at)
            assert found is not None, f"not a value: {text[at : at + 40]}"
            rows[-1].append(_value(found))
            at = found.end()
            continue
        at += 1
    return rows


def _value(found: re.Match[str]) -> Any:
    text = found[1]
    if text is None:
        return None if found[0] == "NULL" else float(found[0]) if set(found[0]) & {"e", "."} else int(found[0])
    if _TIME.fullmatch(text):
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    return re.sub(r"\\(.)", lambda escaped: _ESCAPES.get(escaped[1], escaped[1]), text, flags=re.DOTALL)


def _kind(text: str) -> str:
    kind = (
        text.split(" NULL")[0]
        .split(" NOT NULL")[0]
        .split(" CHARACTER")[0]
        .split(" COLLATE")[0]
        .split(" COMMENT")[0]
        .lower()
        .strip()
    )
    return "tinyint(1)" if kind == "boolean" else kind


def _parts(text: str) -> list[str]:
    """Return the parts between commas that are in no brackets and no text."""
    found, depth, begin, quoted = [], 0, 0, False
    for at, letter in enumerate(text):
        quoted ^= letter == "'"
        depth += 0 if quoted else (letter == "(") - (letter == ")")
        if letter == "," and not depth and not quoted:
            found.append(text[begin:at].strip())
            begin = at + 1
    return [*found, text[begin:].strip()]
