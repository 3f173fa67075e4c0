"""Histories of a table, made from a seed, and a reader of its changes that is led through them.

Several clients have transactions open at once, each on rows of its own: inserts, updates (of keys too), deletes, savepoints that are rolled
back, whole transactions that are; columns come and go. Between their steps the reader polls, stores positions, plans ranges as Spark does,
and is begun anew at a position that it had, as after a crash. Two things must hold: the same offset always has the same rows, and all
rows together make the table.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from headrace.flow.messages import CHANGE, ChangeKind, Queue, ReadPosition
from headrace.foundation.errors import RetriableError
from headrace.interfaces.source import EARLIEST, Reader, Source

from tests.eventually import eventually

_SECOND = timedelta(seconds=1)
_CLIENTS = 3
Row = tuple[Any, ...]


class Client(Protocol):
    """A connection of its own."""

    def execute(self, statement: str, parameters: Any = None) -> list[Row]: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Shape:
    """What the key of the table is: columns of SQL, and the values of a number."""

    columns: str
    key: tuple[str, ...]
    values: Callable[[int], Row]


#: Texts whose order is not that of their bytes.
_TEXTS = ("a", "B", "ä", "_", "Z z", "é", "b", "A")


def _text(number: int) -> str:
    return f"{_TEXTS[number % 8]}{number}"


SHAPES = {
    "number": Shape("id BIGINT NOT NULL, PRIMARY KEY (id)", ("id",), lambda number: (number * 7 - 100,)),
    "text": Shape("id VARCHAR(20) NOT NULL, PRIMARY KEY (id)", ("id",), lambda number: (_text(number),)),
    "two": Shape(
        "a INT NOT NULL, b VARCHAR(20) NOT NULL, PRIMARY KEY (b, a)", ("b", "a"), lambda number: (_text(number % 9), number)
    ),
}  # fmt: skip


class History:
    """A table ``t`` with a history that goes on with ``step``."""

    def __init__(
        self, connect: Callable[[], Client], shape: Shape, chance: random.Random, conflicts: tuple[type[Exception], ...]
    ) -> None:
        """``conflicts``: what a server raises when a client waits for a lock of another one."""
        self._chance, self._shape, self._conflicts = chance, shape, conflicts
        self._clients = [connect() for _ in range(_CLIENTS)]
        self._open = [False] * _CLIENTS
        self._added = False
        self._where = " AND ".join(f"{name} = %s" for name in shape.key)
        columns = ", ".join(shape.key)
        self._insert = f"INSERT INTO t ({columns}, v, w) VALUES ({', '.join(['%s'] * len(shape.key))}, %s, %s)"
        self._rows: list[set[int]] = [set() for _ in range(_CLIENTS)]
        self._before: list[set[int]] = [set() for _ in range(_CLIENTS)]

    def make(self, *more: str) -> None:
        self._clients[0].execute(f"CREATE TABLE t (v INT, w TEXT, {self._shape.columns})")
        for statement in more:
            self._clients[0].execute(statement)
        for client in range(_CLIENTS):
            for _ in range(self._chance.randrange(30)):
                self._change(client)
            self._before[client] = set(self._rows[client])

    def step(self) -> None:
        client, chance = self._chance.randrange(_CLIENTS), self._chance.random()
        if not self._open[client]:
            if chance < 0.05:
                self._alter()
                return
            self._run(client, "BEGIN")
            self._open[client] = True
        try:
            self._go_on(client, chance)
        except self._conflicts:
            self._end(client, "ROLLBACK")

    def _go_on(self, client: int, chance: float) -> None:
        if chance < 0.15:
            self._end(client, "ROLLBACK" if self._chance.random() < 0.3 else "COMMIT")
        elif chance < 0.25:
            kept = set(self._rows[client])
            self._run(client, "SAVEPOINT s")
            for _ in range(self._chance.randrange(4)):
                self._change(client)
            self._run(client, "ROLLBACK TO SAVEPOINT s")
            self._rows[client] = kept
        else:
            for _ in range(self._chance.choice([1, 1, 2, 20])):
                self._change(client)

    def end(self) -> None:
        """Commit what is open."""
        for client in range(_CLIENTS):
            if self._open[client]:
                self._end(client, "COMMIT")

    def table(self) -> Counter[Row]:
        columns = ", ".join([*self._shape.key, "v", "w"])
        return Counter(self._clients[0].execute(f"SELECT {columns} FROM t"))

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def _end(self, client: int, statement: str) -> None:
        self._run(client, statement)
        self._open[client] = False
        if statement == "ROLLBACK":
            self._rows[client] = set(self._before[client])
        self._before[client] = set(self._rows[client])

    def _alter(self) -> None:
        """Add a column that nobody reads, or drop it. It waits for transactions, so there are none."""
        self.end()
        self._run(0, "ALTER TABLE t DROP COLUMN more" if self._added else "ALTER TABLE t ADD COLUMN more INT")
        self._added = not self._added

    def _change(self, client: int) -> None:
        chance, mine = self._chance, self._rows[client]
        number = chance.randrange(40) * _CLIENTS + client
        value = chance.choice([None, *range(5)])
        text = chance.choice([None, "", "x" * chance.randrange(60), "ü\\'\n\t"])
        if number not in mine:
            self._run(client, self._insert, (*self._shape.values(number), value, text))
            mine.add(number)
        elif chance.random() < 0.3:
            self._run(client, f"DELETE FROM t WHERE {self._where}", self._shape.values(number))
            mine.discard(number)
        elif chance.random() < 0.3:
            other = chance.randrange(40) * _CLIENTS + client
            if other in mine:
                return
            names = ", ".join(f"{name} = %s" for name in self._shape.key)
            keys = (*self._shape.values(other), value, *self._shape.values(number))
            self._run(client, f"UPDATE t SET {names}, v = %s WHERE {self._where}", keys)
            mine.symmetric_difference_update({number, other})
        else:
            name, new = chance.choice([("v", value), ("w", text)])
            self._run(client, f"UPDATE t SET {name} = %s WHERE {self._where}", (new, *self._shape.values(number)))

    def _run(self, client: int, statement: str, parameters: Sequence[Any] | None = None) -> None:
        self._clients[client].execute(statement, parameters)


class Reading:
    """A reader of the changes of ``t``, and what it has given."""

    def __init__(self, source: Source, columns: Sequence[str], chance: random.Random) -> None:
        self._source, self._columns, self._chance = source, list(columns), chance
        self._queue = Queue("t")
        self._reader: Reader = source.open(self._queue, EARLIEST)
        #: Rows by offset, and positions from which reading can begin anew.
        self._given: dict[int, list[Row]] = {}
        self._positions: list[ReadPosition] = [self._reader.position]

    def step(self) -> None:
        way = self._chance.random()
        if way < 0.6:
            self._poll(self._chance.choice([1, 3, 10, 1000]))
        elif way < 0.75:
            self._store()
        elif way < 0.9:
            self._begin_anew()
        else:
            self._planned()

    def finish(self) -> None:
        """Read to the end of the log, and all of it once more from the last position that was stored."""
        for again in (False, True):
            if again:
                self._begin_anew(0)
            end = self._reader.latest
            while self._reader.position.offset < end:
                eventually(lambda: self._poll(1000), "rows come", shown=lambda: self._reader.position)

    def table(self, *, full: bool, key: int) -> Counter[Row]:
        """Return the table that the rows make. ``full``: each old row must be there. ``key``: how many columns the key has."""
        table: dict[Row, Row] = {}
        for offset in sorted(self._given):
            for kind, *values in self._given[offset]:
                row = tuple(values)
                if kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER):
                    assert not full or row[:key] not in table, f"{offset}: {row} comes, but {table[row[:key]]} is there"
                    table[row[:key]] = row
                else:
                    assert not full or table.get(row[:key]) == row, (
                        f"{offset}: {row} goes, but {table.get(row[:key])} is there"
                    )
                    table.pop(row[:key], None)
        return Counter(table.values())

    def close(self) -> None:
        self._reader.close()
        self._source.close()

    def _poll(self, count: int) -> bool:
        before = self._reader.position
        try:
            raw = self._reader.poll(count, timedelta(milliseconds=20))
        except RetriableError:  # the server has not noticed yet that an earlier reader has gone
            return False
        position = self._reader.position
        assert position.offset >= before.offset
        if raw is not None and raw.frame is not None and len(raw):
            assert before.offset <= int(raw.offsets[0]) <= int(raw.offsets[-1]) < position.offset
            found: dict[int, list[Row]] = {}
            rows = raw.frame.select(CHANGE, *self._columns).rows()
            for offset, row in zip(raw.offsets.tolist(), rows, strict=True):
                found.setdefault(offset, []).append(row)
            for offset, some in found.items():
                assert self._given.setdefault(offset, some) == some, (
                    f"{offset}: {self._given[offset]}, and again {some}"
                )
        if position != self._positions[-1]:
            self._positions.append(position)
        return position.offset > before.offset

    def _store(self) -> None:
        """Let a checkpoint be stored at a position: reading never begins before it."""
        place = self._chance.randrange(len(self._positions))
        self._positions = self._positions[place:]
        self._source.stored({self._queue: self._positions[0]})

    def _begin_anew(self, place: int | None = None) -> None:
        place = self._chance.randrange(len(self._positions)) if place is None else place
        self._positions = self._positions[: place + 1]
        self._reader.close()
        self._reader = self._source.open(self._queue, self._positions[-1])

    def _planned(self) -> None:
        """Read a planned range, up to its end and no further."""
        try:
            end = self._reader.position_after(self._chance.choice([1, 5, 50]))
        except RetriableError:
            return
        self._reader.limit(end)
        while self._reader.position.offset < end.offset:
            count = self._chance.choice([2, 30])
            eventually(lambda: self._poll(count), "rows come")  # noqa: B023
        assert self._reader.position == end
