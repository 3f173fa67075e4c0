"""Changes of a table: snapshot and log fit together, whatever is written meanwhile and wherever reading begins again."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from headrace.flow.messages import ChangeKind, Queue, RawBatch
from headrace.foundation.errors import DataError, JobError, RetriableError
from headrace.interfaces.source import EARLIEST, LATEST
from postgres_changes_world import applied, changes_in, changes_of, opened, read_until_stopped, table_of
from postgres_world import PostgresDatabase

from tests.change_readers import SECOND, read_to_end
from tests.eventually import eventually

INS, B, A, D = ChangeKind.INSERT, ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER, ChangeKind.DELETE


def made(database: PostgresDatabase, *, full: bool, kind: str = "int") -> None:
    database.execute(f"CREATE TABLE t (id {kind} PRIMARY KEY, v INT, w TEXT)")
    if full:
        database.execute("ALTER TABLE t REPLICA IDENTITY FULL")


def rows_of_changes(followed: PostgresDatabase) -> list[tuple[Any, ...]]:
    """Insert two rows, change a value and a key, delete a row, and return what the log says of it."""
    with opened(followed) as reader:
        read_to_end(reader)
        followed.execute("INSERT INTO t VALUES (1, 1, 'a'), (2, 2, NULL)")
        followed.execute("UPDATE t SET v = 3 WHERE id = 1")
        followed.execute("UPDATE t SET id = 9 WHERE id = 2")
        followed.execute("DELETE FROM t WHERE id = 1")
        return changes_in(read_to_end(reader))


def test_changes_with_old_rows(followed: PostgresDatabase) -> None:
    made(followed, full=True)
    assert changes_of(followed).changes().before_images
    assert rows_of_changes(followed) == [
        (INS, 1, 1, "a"), (INS, 2, 2, None), (B, 1, 1, "a"), (A, 1, 3, "a"), (B, 2, 2, None), (A, 9, 2, None), (D, 1, 3, "a"),
    ]  # fmt: skip


def test_changes_by_key(followed: PostgresDatabase) -> None:
    made(followed, full=False)
    source = changes_of(followed)
    assert (source.changes().key, source.changes().before_images) == (("id",), False)
    assert rows_of_changes(followed) == [
        (INS, 1, 1, "a"), (INS, 2, 2, None), (A, 1, 3, "a"), (D, 2, None, None), (INS, 9, 2, None), (D, 1, None, None),
    ]  # fmt: skip


def test_changes_by_the_key_of_an_index(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id INT, code TEXT NOT NULL UNIQUE)")
    followed.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key")
    assert changes_of(followed).changes().key == ("code",)
    with opened(followed) as reader:
        read_to_end(reader)
        followed.execute("INSERT INTO t VALUES (1, 'x'); UPDATE t SET id = 2; DELETE FROM t")
        assert changes_in(read_to_end(reader)) == [(INS, 1, "x"), (A, 2, "x"), (D, None, "x")]


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("kind", ["int", 'text COLLATE "en-x-icu"', "numeric", "uuid"])
@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_while_rows_change_from_any_position(
    followed: PostgresDatabase, full: bool, kind: str, seed: int
) -> None:
    """Reading goes on at random positions in new readers; between all polls rows change, also by transactions that stay open."""
    chance = random.Random(seed)
    made(followed, full=full, kind=kind)

    def key() -> Any:
        number = chance.randrange(60)
        texts = {"int": str(number), "numeric": f"{number}.5", "uuid": f"{number:08x}-0000-0000-0000-000000000000"}
        return texts.get(kind, f"{'aAbBäÄ-_'[number % 8]}{number}")

    def change(connection: Any) -> None:
        one, other, value = key(), key(), chance.randrange(1000)
        what = chance.random()
        if what < 0.3:
            connection.execute(f"DELETE FROM t WHERE id = %s::{kind}", (one,))  # noqa: S608
        elif what < 0.8:
            connection.execute(
                f"INSERT INTO t VALUES (%s::{kind}, %s, 'x') ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v",  # noqa: S608
                (one, value),
            )
        else:
            connection.execute(
                f"UPDATE t SET id = %s::{kind} WHERE id = %s::{kind}"  # noqa: S608
                f" AND NOT EXISTS (SELECT 1 FROM t WHERE id = %s::{kind})",
                (other, one, other),
            )

    for _ in range(40):
        change(followed.connection)
    open_one = followed.connect()
    open_one.autocommit = False
    source = changes_of(followed, chunk_rows=4)
    reader = source.open(Queue("t"), EARLIEST)
    batches = []
    for step in range(60):
        for _ in range(chance.randrange(4)):
            # The rows of the open transaction must not be waited for.
            followed.execute("SET lock_timeout = '20ms'")
            with suppress(psycopg.errors.LockNotAvailable):
                change(followed.connection)
        if step % 7 == 0:
            open_one.rollback() if chance.random() < 0.3 else open_one.commit()
        if step % 7 == 2:
            open_one.execute("SET lock_timeout = '20ms'")
            try:
                change(open_one)
            except psycopg.errors.LockNotAvailable:
                open_one.rollback()
        if (raw := reader.poll(chance.randrange(1, 6), timedelta(0))) is not None and len(raw):
            batches.append(raw)
        if chance.random() < 0.2:
            position = reader.position
            reader.close()
            reader = source.open(Queue("t"), position)
    open_one.commit()
    open_one.close()
    batches += read_to_end(reader, per_poll=3)
    reader.close()
    columns = "id, v, w" if kind == "int" else "id::text, v, w"
    assert applied(changes_in(batches), full=full) == table_of(followed, columns)
    offsets = [offset for raw in batches for offset in raw.offsets.tolist()]
    assert offsets == sorted(offsets)


def test_the_same_position_gives_the_same_rows(followed: PostgresDatabase) -> None:
    made(followed, full=True)
    followed.execute("INSERT INTO t SELECT n, n, 'w' FROM generate_series(1, 20) n")
    source = changes_of(followed, chunk_rows=6)
    reader = source.open(Queue("t"), EARLIEST)
    seen = []
    for _ in range(12):
        position, raw = reader.position, reader.poll(5, SECOND)
        followed.execute("UPDATE t SET v = v + 1 WHERE id % 3 = 0")
        if raw is not None and len(raw):
            seen.append((position, raw))
    reader.close()
    for position, raw in reversed(seen):
        again = source.open(Queue("t"), position)
        found: list[RawBatch] = []
        while sum(map(len, found)) < len(raw):  # a poll may give more or less than the first time
            found += [part for part in [again.poll(5, SECOND)] if part is not None and len(part)]
        again.close()
        offsets = [offset for part in found for offset in part.offsets.tolist()]
        assert offsets[: len(raw)] == raw.offsets.tolist()
        assert changes_in(found)[: len(raw)] == changes_in([raw])


def test_latest_leaves_out_what_is_there(followed: PostgresDatabase) -> None:
    made(followed, full=False)
    followed.execute("INSERT INTO t VALUES (1, 1, 'old')")
    with opened(followed, LATEST) as reader:
        followed.execute("INSERT INTO t VALUES (2, 2, 'new')")
        assert changes_in(read_to_end(reader)) == [(INS, 2, 2, "new")]


def test_the_slot_moves_only_with_what_is_stored(followed: PostgresDatabase) -> None:
    made(followed, full=False)
    followed.execute("INSERT INTO t SELECT n, n, 'w' FROM generate_series(1, 20) n")
    source = changes_of(followed, chunk_rows=6, slot="mine")

    def confirmed() -> Any:
        return followed.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'mine'")

    reader = source.open(Queue("t"), EARLIEST)
    begin, first = reader.position, confirmed()
    followed.execute("INSERT INTO t VALUES (30, 30, 'later')")
    read_to_end(reader)
    reader.poll(10, timedelta(0))
    assert confirmed() == first, "nothing was stored"
    assert followed.execute("SELECT count(*) FROM headrace_chunks WHERE content IS NOT NULL") == [(4,)]
    source.stored({Queue("t"): reader.position})
    assert followed.execute("SELECT count(*) FROM headrace_chunks") == [(0,)]
    reader.close()
    eventually(lambda: confirmed() > first, "the slot moves")  # the server reads what it was told at the end
    with pytest.raises(DataError, match="the checkpoint needs it from"):
        source.open(Queue("t"), begin)
    # And by a process that does not read it.
    followed.execute("INSERT INTO t VALUES (31, 31, 'later')")
    reader = source.open(Queue("t"), reader.position)
    read_to_end(reader)
    position, before = reader.position, confirmed()
    reader.close()
    changes_of(followed, slot="mine").stored({Queue("t"): position})
    assert confirmed() > before


def test_a_slot_that_was_dropped_is_refused(followed: PostgresDatabase) -> None:
    made(followed, full=False)
    with opened(followed, slot="mine") as reader:
        read_to_end(reader)
        position = reader.position
    active = "SELECT active FROM pg_replication_slots WHERE slot_name = 'mine'"
    eventually(lambda: followed.execute(active) == [(False,)], "the slot is free")
    followed.execute("SELECT pg_drop_replication_slot('mine')")
    with pytest.raises(DataError, match="it does not exist"), opened(followed, position, slot="mine"):
        pass


def test_large_values(followed: PostgresDatabase) -> None:
    """A value that is stored separately is not in the log when others change: it is taken from the old row, or refused."""
    made(followed, full=True)
    big = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 500) n)"
    with opened(followed) as reader:
        read_to_end(reader)
        followed.execute(f"INSERT INTO t VALUES (1, 1, {big})")  # noqa: S608
        followed.execute("UPDATE t SET v = 2")
        rows = changes_in(read_to_end(reader))
        assert len(rows[0][3]) == 16_000
        assert rows == [(INS, 1, 1, rows[0][3]), (B, 1, 1, rows[0][3]), (A, 1, 2, rows[0][3])]
    followed.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
    with pytest.raises(JobError, match="stored separately"):
        changes_of(followed).schema()
    with opened(followed, LATEST, columns=["id", "v"], slot="other") as reader:
        followed.execute("UPDATE t SET v = 3")
        assert changes_in(read_to_end(reader)) == [(A, 1, 3)]


def test_a_large_value_that_comes_later_stops_a_job_without_old_rows(followed: PostgresDatabase) -> None:
    made(followed, full=False)
    with opened(followed) as reader:
        read_to_end(reader)
        followed.execute(
            "INSERT INTO t VALUES (1, 1, (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 500) n))"
        )
        followed.execute("UPDATE t SET v = 2")
        with pytest.raises(DataError, match=r"its unchanged column 'w'.*TOAST"):
            read_to_end(reader)


def test_truncate(followed: PostgresDatabase) -> None:
    made(followed, full=False)
    with opened(followed) as reader:
        read_to_end(reader)
        followed.execute("INSERT INTO t VALUES (1, 1, 'a'); TRUNCATE t; INSERT INTO t VALUES (2, 2, 'b')")
        batches: list[RawBatch] = []
        with pytest.raises(JobError, match="TRUNCATE has removed"):
            read_until_stopped(reader, batches)
        assert changes_in(batches) == [(INS, 1, 1, "a")]
        position = reader.position
    with opened(followed, position, ignore_truncate=True) as reader:
        assert changes_in(read_to_end(reader)) == [(INS, 2, 2, "b")]


def test_columns_that_come_and_go(followed: PostgresDatabase) -> None:
    made(followed, full=False)
    with opened(followed) as reader:
        read_to_end(reader)
        followed.execute("INSERT INTO t VALUES (1, 1, 'a')")
        followed.execute("ALTER TABLE t ADD x INT; INSERT INTO t VALUES (2, 2, 'b', 5)")
        followed.execute("ALTER TABLE t DROP w; INSERT INTO t VALUES (3, 3, 5)")
        assert changes_in(read_to_end(reader)) == [(INS, 1, 1, "a"), (INS, 2, 2, "b"), (INS, 3, 3, None)]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER TABLE t RENAME w TO x", "column 'w' was renamed to 'x'"),
        ("ALTER TABLE t ALTER v TYPE bigint", "the type of column 'v' was changed"),
    ],
)
def test_other_changes_of_the_table_stop_the_job(followed: PostgresDatabase, statement: str, message: str) -> None:
    made(followed, full=False)
    with opened(followed) as reader:
        read_to_end(reader)
        followed.execute("INSERT INTO t VALUES (1, 1, 'a')")
        followed.execute(f"{statement}; INSERT INTO t VALUES (2, 2, 'b')")  # noqa: S608
        batches: list[RawBatch] = []
        with pytest.raises(JobError, match=message):
            read_until_stopped(reader, batches)
        assert changes_in(batches) == [(INS, 1, 1, "a")]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE t (id INT)", "REPLICA IDENTITY DEFAULT and no primary key"),
        ("CREATE UNLOGGED TABLE t (id INT PRIMARY KEY)", "is UNLOGGED"),
        ("CREATE VIEW t AS SELECT 1 AS id", "is a view"),
    ],
)
def test_tables_that_cannot_be_followed(followed: PostgresDatabase, statement: str, message: str) -> None:
    followed.execute(statement)
    with pytest.raises(JobError, match=message):
        changes_of(followed).schema()


def test_a_server_without_the_log(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    if postgres.execute("SHOW wal_level") == [("logical",)]:
        pytest.skip("this server has the log")
    with pytest.raises(JobError, match="has wal_level=replica"):
        changes_of(postgres).schema()


def test_partitions_are_one_table(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id)")
    followed.execute(
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10); CREATE TABLE high PARTITION OF t DEFAULT"
    )
    followed.execute("INSERT INTO t VALUES (1, 1), (20, 2)")
    with opened(followed) as reader:
        followed.execute("UPDATE t SET v = v + 1; UPDATE t SET id = 30 WHERE id = 1; DELETE FROM t WHERE id = 20")
        assert applied(changes_in(read_to_end(reader)), full=False) == table_of(followed)


def test_a_transaction_larger_than_its_offsets(followed: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace_postgres.log import places

    monkeypatch.setattr(places, "OFFSETS_PER_BYTE", 1)
    made(followed, full=False)
    source = changes_of(followed)
    reader = source.open(Queue("t"), EARLIEST)
    read_to_end(reader)
    followed.execute("INSERT INTO t SELECT n, n, 'w' FROM generate_series(1, 500) n")
    followed.execute("INSERT INTO t VALUES (1000, 0, 'last')")
    batches, seen = [], 0
    while seen < 501:
        position = reader.position
        reader.close()
        reader = source.open(Queue("t"), position)
        if (raw := reader.poll(70, SECOND)) is not None and len(raw):
            batches.append(raw)
            seen += len(raw)
    reader.close()
    offsets = [offset for raw in batches for offset in raw.offsets.tolist()]
    assert offsets == sorted(set(offsets))
    assert len(offsets) == 501


def test_two_readers_of_a_slot_wait_for_each_other(followed: PostgresDatabase) -> None:
    made(followed, full=False)
    with opened(followed, slot="mine") as reader:
        read_to_end(reader)
        reader.poll(1, timedelta(0))  # it has the slot, also when there was nothing to read
        followed.execute("INSERT INTO t VALUES (1, 1, 'a')")
        with opened(followed, reader.position, slot="mine") as other:
            with pytest.raises(RetriableError, match="is active for"):
                other.poll(1, SECOND)
            reader.close()
            assert changes_in(read_to_end(other)) == [(INS, 1, 1, "a")]
