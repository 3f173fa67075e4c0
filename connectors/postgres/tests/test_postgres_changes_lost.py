"""What a log does not say: a table or a publication that goes while it is followed, and a slot that is another one."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from headrace.flow.messages import ChangeKind, Queue, RawBatch, ReadPosition
from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import DataError, HeadraceError, JobError, RetriableError
from headrace.interfaces.source import LATEST, Reader
from headrace_postgres import PostgresChangesSettings, PostgresChangesSource
from headrace_postgres.change_reader import PostgresChangesReader
from postgres_changes_world import changes_in, changes_of, opened, read_until_stopped
from postgres_world import PostgresDatabase

from tests.change_readers import SECOND, read_to_end
from tests.eventually import eventually
from tests.servers.fixtures import StartPostgreSQLServer
from tests.servers.postgresql import PostgreSQLOptions

INS, A = ChangeKind.INSERT, ChangeKind.UPDATE_AFTER
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"


class LaterClock(SystemClock):
    """The machine's clock, which can be set forward."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_seconds


def followed_with(database: PostgresDatabase, clock: LaterClock, **more: Any) -> Reader:
    settings = PostgresChangesSettings.of(database.options(**more), plugin="postgres_changes")
    return PostgresChangesSource(settings, clock).open(Queue("t"), LATEST)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP TABLE t", "is not there any more"),
        (f"DROP TABLE t; {TABLE}; INSERT INTO t VALUES (9, 9)", "was dropped and made anew"),  # noqa: S608
        ("ALTER TABLE t RENAME TO old", "is not there any more"),
        ("ALTER PUBLICATION headrace_t DROP TABLE t; INSERT INTO t VALUES (9, 9)", r"does not have the table public\.t"),
        (
            "ALTER PUBLICATION headrace_t DROP TABLE t; INSERT INTO t VALUES (9, 9); ALTER PUBLICATION headrace_t ADD TABLE t",
            "was taken out of the publication 'headrace_t' and put back",
        ),
        ("ALTER PUBLICATION headrace_t SET (publish = 'insert')", "leaves out inserts, updates, deletes or truncates"),
        ("DROP PUBLICATION headrace_t", "does not exist any more"),
    ],
)  # fmt: skip
def test_what_takes_the_table_out_of_the_log_stops_a_job_that_runs(
    followed: PostgresDatabase, statement: str, message: str
) -> None:
    """Rows from before are given first; without the look at the catalog nothing would ever come again, and nobody would know."""
    followed.execute(TABLE)
    clock, batches = LaterClock(), list[RawBatch]()
    with closing(followed_with(followed, clock)) as reader:
        reader.poll(10, SECOND)
        followed.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
        followed.execute(statement)
        clock.ahead_seconds = 60
        with pytest.raises(JobError, match=message) as stopped:
            read_until_stopped(reader, batches)
        assert changes_in(batches) == [(INS, 1, 1), (INS, 2, 2)]
        assert "new checkpoint" in str(stopped.value) or "ALTER PUBLICATION" in str(stopped.value)


def test_a_publication_that_goes_is_no_lost_connection(followed: PostgresDatabase) -> None:
    followed.execute(TABLE)
    with opened(followed, LATEST) as reader:
        reader.poll(10, SECOND)
        followed.execute("DROP PUBLICATION headrace_t; INSERT INTO t VALUES (1, 1)")
        with pytest.raises(JobError, match='publication "headrace_t" does not exist') as stopped:
            read_to_end(reader)
        assert "new checkpoint" in str(stopped.value)


def test_a_table_that_was_made_anew_is_followed_by_a_job_that_begins_anew(followed: PostgresDatabase) -> None:
    followed.execute(TABLE)
    with opened(followed) as reader:
        read_to_end(reader)
    followed.execute(f"DROP TABLE t; {TABLE}; INSERT INTO t VALUES (1, 1)")  # noqa: S608
    with opened(followed) as reader:
        assert changes_in(read_to_end(reader)) == [(INS, 1, 1)]
        followed.execute("UPDATE t SET v = 2")
        assert changes_in(read_to_end(reader)) == [(A, 1, 2)]
    followed.execute("CREATE PUBLICATION mine; DROP TABLE t; CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    with (
        pytest.raises(JobError, match=r"'mine' does not have the table public\.t"),
        opened(followed, publication="mine"),
    ):
        pass


def test_a_table_that_was_made_anew_and_published_again_is_not_read_on(followed: PostgresDatabase) -> None:
    """Its old rows would stay in the target: the log does not contain the removed rows."""
    followed.execute(f"{TABLE}; INSERT INTO t VALUES (1, 1)")  # noqa: S608
    with opened(followed) as reader:
        read_to_end(reader)
        position = reader.position
    followed.execute(f"DROP TABLE t; {TABLE}; ALTER PUBLICATION headrace_t ADD TABLE t; INSERT INTO t VALUES (2, 2)")  # noqa: S608
    with pytest.raises(JobError, match="was dropped and made anew, or another") as refused, opened(followed, position):
        pass
    assert "new checkpoint" in str(refused.value)


def test_a_publication_that_was_made_anew_is_not_read_on(followed: PostgresDatabase) -> None:
    followed.execute(TABLE)
    with opened(followed) as reader:
        read_to_end(reader)
        position = reader.position
    followed.execute(
        "DROP PUBLICATION headrace_t; INSERT INTO t VALUES (1, 1); CREATE PUBLICATION headrace_t FOR TABLE t"
    )
    with pytest.raises(JobError, match="and put back: the log lacks its changes"), opened(followed, position):
        pass
    # Of a publication of all tables no entry tells that.
    followed.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    with opened(followed, publication="everything", slot="other") as reader:
        read_to_end(reader)
        position = reader.position
    assert "entry" not in position.hint
    with opened(followed, position, publication="everything", slot="other") as reader:
        followed.execute("INSERT INTO t VALUES (2, 2)")
        assert changes_in(read_to_end(reader)) == [(INS, 2, 2)]


def test_a_table_that_was_renamed_before_its_first_change(followed: PostgresDatabase) -> None:
    """The stream has not seen it under its own name."""
    followed.execute(TABLE)
    with opened(followed, LATEST) as reader:
        followed.execute("ALTER TABLE t RENAME TO old; INSERT INTO old VALUES (1, 1)")
        with pytest.raises(JobError, match=r"public\.t was renamed to public\.old"):
            read_to_end(reader)


@pytest.mark.parametrize("made_again", [False, True], ids=["dropped", "made again"])
def test_a_slot_that_is_lost_while_the_job_runs(followed: PostgresDatabase, made_again: bool) -> None:
    """As on a fail-over: the connection is lost, and the server that answers has no slot, or one that begins later."""
    followed.execute(TABLE)
    with opened(followed, LATEST, slot="mine") as reader:
        followed.execute("INSERT INTO t VALUES (1, 1)")
        assert changes_in(read_to_end(reader)) == [(INS, 1, 1)]
        followed.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'mine' AND active"
        )
        active = "SELECT active FROM pg_replication_slots WHERE slot_name = 'mine'"
        eventually(lambda: followed.execute(active) == [(False,)], "the slot is free")
        followed.execute("SELECT pg_drop_replication_slot('mine')")
        followed.execute("INSERT INTO t VALUES (2, 2)")
        if made_again:
            followed.execute("SELECT pg_create_logical_replication_slot('mine', 'pgoutput')")
        followed.execute("INSERT INTO t VALUES (3, 3)")
        with pytest.raises(DataError, match="the checkpoint needs it from" if made_again else "does not exist") as lost:
            _poll_through_lost_connections(reader)
    assert "are lost for this job" in str(lost.value)
    assert "new checkpoint" in str(lost.value)


def _poll_through_lost_connections(reader: Reader) -> None:
    """Poll as a job does. Rows that come are wrong: others before them are lost."""
    for _ in range(20):
        try:
            raw = reader.poll(10, SECOND)
        except RetriableError:
            continue
        assert raw is None or not len(raw), changes_in([raw])


def test_a_position_of_another_server(followed: PostgresDatabase) -> None:
    followed.execute(TABLE)
    with opened(followed) as reader:
        read_to_end(reader)
        position = reader.position
    assert position.hint["server"]
    other = ReadPosition(position.offset, {**position.hint, "server": "1234567890"})
    with pytest.raises(DataError, match="this is another server") as refused, opened(followed, other):
        pass
    assert "1234567890" in str(refused.value)
    # Positions of versions that did not know it are read on.
    hint = {name: value for name, value in position.hint.items() if name not in ("server", "table", "entry")}
    with opened(followed, ReadPosition(position.offset, hint)) as reader:
        followed.execute("INSERT INTO t VALUES (1, 1)")
        assert changes_in(read_to_end(reader)) == [(INS, 1, 1)]


def test_the_server_hears_of_the_client_while_rows_are_given(followed: PostgresDatabase) -> None:
    """A sink that is slow does not cost the connection (wal_sender_timeout)."""
    followed.execute(f"{TABLE}; CREATE TABLE other (id INT)")
    clock = LaterClock()
    heard = "SELECT reply_time FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid WHERE slot_name = 'mine'"
    with closing(followed_with(followed, clock, slot="mine")) as reader:
        followed.execute("INSERT INTO t SELECT n, n FROM generate_series(1, 100) n")
        assert isinstance(reader, PostgresChangesReader)
        while reader._rows is None:  # until more were read than one poll gives
            reader.poll(1, SECOND)
        before = followed.execute(heard)
        clock.ahead_seconds += 10
        raw = reader.poll(1, SECOND)
        assert raw is not None
        assert len(raw) == 1
        eventually(lambda: followed.execute(heard) != before, "the server has heard of the client")


@pytest.mark.slow
def test_a_slot_that_the_server_has_given_up(start_postgresql_server: StartPostgreSQLServer) -> None:
    server = start_postgresql_server(
        PostgreSQLOptions(config={"wal_level": "logical", "max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB"})
    )
    database = PostgresDatabase(server, "postgres")
    database.execute(f"{TABLE}; CREATE TABLE other (id INT)")
    with opened(database, LATEST, slot="mine") as reader:
        read_to_end(reader)
        position = reader.position
        for _ in range(4):
            database.execute("INSERT INTO other VALUES (1); SELECT pg_switch_wal()")
        database.execute("CHECKPOINT")
        status = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'mine'"
        eventually(lambda: database.execute(status) == [("lost",)], "the slot is given up")
        with pytest.raises(DataError, match="max_slot_wal_keep_size"):
            _poll_through_lost_connections(reader)
    with pytest.raises(DataError, match="max_slot_wal_keep_size") as refused, opened(database, position, slot="mine"):
        pass
    assert "new checkpoint" in str(refused.value)
    database.close()


def test_a_large_value_names_its_column_and_what_to_run(followed: PostgresDatabase) -> None:
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT, w TEXT)")
    large = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 500) n)"
    with opened(followed) as reader:
        read_to_end(reader)
        followed.execute(f"INSERT INTO t VALUES (1, 1, {large}); UPDATE t SET v = 2")  # noqa: S608
        refused: list[HeadraceError] = []
        with pytest.raises(DataError, match=r"its unchanged column 'w'") as stopped:
            read_to_end(reader)
        refused.append(stopped.value)
    with pytest.raises(JobError, match="stored separately") as before:
        changes_of(followed).schema()
    refused.append(before.value)
    for error in refused:
        assert 'ALTER TABLE "public"."t" REPLICA IDENTITY FULL' in str(error)
