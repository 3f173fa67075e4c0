"""The snapshot is the table as it was at one position, whatever is written while it is read; the log goes on from there."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from changes_world import applied, changes_in, changes_of, opened, table_of
from headrace.flow.messages import ChangeKind, Queue, RawBatch, ReadPosition
from headrace.foundation.errors import JobError
from headrace.interfaces.source import EARLIEST
from mysql_world import Database

from tests.change_readers import read_to_end

NOW = timedelta(0)

#: (columns of the key, how a number becomes the SQL of a key).
KEYS: dict[str, tuple[str, str, Callable[[int], str]]] = {
    "integer": ("id BIGINT", "id", str),
    "negative": ("id INT", "id", lambda n: str(n - 150)),
    "unsigned": ("id BIGINT UNSIGNED", "id", lambda n: str(2**64 - 1 - n * 7919 % 10007)),
    "decimal": ("id DECIMAL(12,3)", "id", lambda n: f"{(n * 7919 % 10007) / 1000 - 5:.3f}"),
    "text": ("id VARCHAR(20)", "id", lambda n: "'" + ["a", "B", "ä", "ß", "z\\t", "Ø", "_"][n % 7] + f"{n * 7919 % 10007}'"),
    "exact text": ("id VARCHAR(20) COLLATE utf8mb4_bin", "id", lambda n: "'" + "aAäÄ🙂é"[n % 6] + f"{n * 31 % 1009}'"),
    "fixed text": ("id CHAR(12) CHARACTER SET latin1", "id", lambda n: "'" + "aBäÖz"[n % 5] + f"{n}'"),
    "bytes": ("id BINARY(8)", "id", lambda n: f"x'{n * 7919 % 65521:04x}00'"),
    "date": ("id DATE", "id", lambda n: f"'2024-01-01' + INTERVAL {n * 31 % 1009} DAY"),
    "timestamp": ("id TIMESTAMP(6)", "id", lambda n: f"'2024-01-01 00:00:00.000001' + INTERVAL {n * 31 % 1009} SECOND"),
    "two parts": ("a INT, b VARCHAR(10)", "a, b", lambda n: f"{n % 7}, '{'xYz'[n % 3]}{n}'"),
    "three parts": ("a DATE, b INT, c BINARY(2)", "a, b, c", lambda n: f"'2024-01-0{n % 3 + 1}', {n % 5 - 2}, x'{n:04x}'"),
}  # fmt: skip


def filled(database: Database, kind: str, count: int) -> Callable[[int], str]:
    """Create and fill a table; return what makes the SQL of keys."""
    columns, key, literal = KEYS[kind]
    database.execute(f"CREATE TABLE t ({columns}, v VARCHAR(50), PRIMARY KEY ({key})) ENGINE = InnoDB")
    values = ", ".join(f"({literal(n)}, 'v{n}')" for n in range(count))
    database.execute(f"INSERT INTO t VALUES {values}")  # noqa: S608
    return literal


def disturb(database: Database, kind: str, literal: Callable[[int], str], chance: random.Random, keys: int) -> None:
    """Change some rows: new, changed, deleted, deleted and there again, with another key, rolled back."""
    _, key, _ = KEYS[kind]
    with database.connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for _ in range(chance.randint(1, 5)):
            number, other = chance.randrange(keys), chance.randrange(keys)
            which = f"({key}) = ({literal(number)})"
            match chance.randrange(4):
                case 0:
                    cursor.execute(f"DELETE FROM t WHERE {which}")  # noqa: S608
                case 1:
                    cursor.execute(f"REPLACE INTO t VALUES ({literal(number)}, 'r{chance.random()}')")  # noqa: S608
                case 2:
                    cursor.execute(f"UPDATE t SET v = 'u{chance.random()}' WHERE {which}")  # noqa: S608
                case _:
                    cursor.execute(f"DELETE FROM t WHERE ({key}) = ({literal(other)})")  # noqa: S608
                    names = [name.strip() for name in key.split(",")]
                    parts = _split(literal(other))
                    sets = ", ".join(f"{name} = {part}" for name, part in zip(names, parts, strict=True))
                    cursor.execute(f"UPDATE t SET {sets} WHERE {which}")  # noqa: S608
        cursor.execute("ROLLBACK" if chance.random() < 0.2 else "COMMIT")


def _split(literal: str) -> list[str]:
    return [part.strip() for part in literal.split(",")]


@pytest.mark.parametrize("kind", KEYS)
def test_the_snapshot_is_the_table_at_its_position(logged: Database, kind: str) -> None:
    """While chunks are read, rows are changed before, in and behind them: the result is the table of the beginning."""
    literal = filled(logged, kind, 200)
    before = table_of(logged)
    chance = random.Random(kind)
    with opened(logged, chunk_rows=17) as reader:
        batches: list[RawBatch] = []
        positions: list[tuple[int, ReadPosition]] = []
        while "room" in reader.position.hint:
            for _ in range(3):
                disturb(logged, kind, literal, chance, 300)
            positions.append((sum(map(len, batches)), reader.position))
            raw = reader.poll(chance.choice([5, 17, 40]), NOW)
            if raw is not None and len(raw):
                batches.append(raw)
        snapshot = changes_in(batches)
        assert {change for change, *_ in snapshot} == {ChangeKind.INSERT}
        assert applied(snapshot) == before
        offsets = [offset for raw in batches for offset in raw.offsets.tolist()]
        assert offsets == list(range(offsets[0], offsets[0] + len(before)))
        since = changes_in(read_to_end(reader))
    assert applied(since, before) == table_of(logged)
    for count, position in chance.sample(positions, 4):
        with opened(logged, position) as reader:
            rest: list[RawBatch] = []
            while "room" in reader.position.hint:
                raw = reader.poll(1000, NOW)
                if raw is not None and len(raw):
                    rest.append(raw)
            again = changes_in(rest)
            assert again == snapshot[count:], "the same rows in the same order, although the table is another one now"
            assert [offset for raw in rest for offset in raw.offsets.tolist()] == offsets[count:]
            assert changes_in(read_to_end(reader)) == since


def test_writers_are_not_locked_out_and_nothing_is_missed(logged: Database) -> None:
    """Two clients write all the time from before the snapshot begins: the table that the changes make is theirs in the end."""
    logged.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, v VARCHAR(20)) ENGINE = InnoDB")
    logged.execute(f"INSERT INTO t VALUES {', '.join(f'({n}, 0, {n})' for n in range(3000))}")  # noqa: S608
    stop, written = threading.Event(), [0, 0]

    def write(who: int) -> None:
        chance, mine = random.Random(who), Database(logged.server, logged.name)
        while not stop.is_set() or written[who] < 300:
            number = 2 * chance.randrange(2000) + who
            mine.execute("INSERT INTO t VALUES (%s, 1, 'new') ON DUPLICATE KEY UPDATE a = a + 1", (number,))
            if chance.random() < 0.3:
                mine.execute("DELETE FROM t WHERE id = %s", (2 * chance.randrange(2000) + who,))
            written[who] += 1
        mine.close()

    threads = [threading.Thread(target=write, args=(who,)) for who in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        with opened(logged, chunk_rows=100) as reader:
            rows = changes_in(read_to_end(reader, per_poll=100))
            stop.set()
            for thread in threads:
                thread.join()
            rows += changes_in(read_to_end(reader))
    finally:
        stop.set()
    assert min(written) >= 300
    assert applied(rows) == table_of(logged)


def test_a_transaction_that_is_open_when_the_snapshot_begins(logged: Database) -> None:
    logged.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE = InnoDB")
    logged.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    other = Database(logged.server, logged.name)
    other.execute("BEGIN")
    other.execute("INSERT INTO t VALUES (3, 3)")
    other.execute("DELETE FROM t WHERE id = 1")
    with opened(logged) as reader:
        first = reader.poll(1, NOW)
        other.execute("COMMIT")
        rows = changes_in([first] if first is not None else []) + changes_in(read_to_end(reader))
    other.close()
    assert rows == [(0, 1, 1), (0, 2, 2), (0, 3, 3), (3, 1, 1)]


def test_an_empty_table_has_no_snapshot(logged: Database) -> None:
    logged.execute("CREATE TABLE t (id DOUBLE, v INT) ENGINE = InnoDB")
    with opened(logged) as reader:
        logged.execute("INSERT INTO t VALUES (1, 1), (1, 1)")
        assert changes_in(read_to_end(reader)) == [(0, 1.0, 1), (0, 1.0, 1)]


@pytest.mark.parametrize(
    "columns", ["id INT", "id DOUBLE PRIMARY KEY", "id ENUM('a', 'b') PRIMARY KEY", "id INT UNIQUE"]
)
def test_a_table_whose_rows_cannot_be_read_in_an_order_is_refused(logged: Database, columns: str) -> None:
    logged.execute(f"CREATE TABLE t ({columns}, v INT) ENGINE = InnoDB")
    logged.execute("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(JobError, match="start='latest'"):
        changes_of(logged).open(Queue("t"), EARLIEST)


def test_a_unique_key_that_is_not_null_is_a_key(logged: Database) -> None:
    logged.execute("CREATE TABLE t (id INT NOT NULL, v INT, UNIQUE (id)) ENGINE = InnoDB")
    logged.execute("INSERT INTO t VALUES (2, 1), (1, 1)")
    changes: Any = changes_of(logged).changes()
    assert changes.key == ("id",)
    assert changes_of(logged, columns=["v"]).changes().key is None
    with opened(logged, columns=["v"]) as reader:
        assert changes_in(read_to_end(reader)) == [(0, 1), (0, 1)]


def test_too_many_changes_during_a_snapshot_stop_it(logged: Database) -> None:
    logged.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(4000)) ENGINE = InnoDB")
    logged.execute(f"INSERT INTO t VALUES {', '.join(f'({n}, REPEAT(9, 4000))' for n in range(600))}")  # noqa: S608
    with opened(logged, chunk_rows=5, snapshot_memory_max_bytes=2**20) as reader:
        reader.poll(5, NOW)
        logged.execute("UPDATE t SET v = 'x'")
        with pytest.raises(JobError, match="snapshot_memory_max_bytes"):
            reader.poll(5, NOW)
