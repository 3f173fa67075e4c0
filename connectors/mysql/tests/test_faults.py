"""Processes that are killed, connections that are cut, servers that go away: every row is there exactly once."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace as hr
import headrace_mysql.connection
import pytest
from headrace.flow.messages import Position, Queue
from headrace.foundation.errors import RetriableError
from headrace.interfaces.sink import StaleWriterError
from headrace.runtime.sink_writer import SinkWriter
from headrace.testing import MemorySink, MemorySource
from headrace_mysql import MySQLSink
from mysql_world import Database, Relay

from tests.eventually import eventually
from tests.killed_jobs import KilledJobs
from tests.servers.fixtures import StartMySQLServer
from tests.servers.mysql import MySQLOptions, MySQLServer
from tests.sink_tests import insert, numbers

HERE = Path(__file__).parent
ID = {"id": "int64"}
QUICK: dict[str, Any] = {"retry_backoff": "5 ms", "retry_backoff_max": "50 ms", "retry_timeout": "60 s"}


def writer_of(sink: MySQLSink) -> SinkWriter:
    refused: list[Any] = []
    return SinkWriter(sink, "to_mysql", on_dead_letters=refused.append, auto_flush=False)


@pytest.fixture
def table(database: Database) -> Database:
    """A table without a key: it would show every row that comes twice."""
    database.execute("CREATE TABLE t (id BIGINT, `text` TEXT)")
    return database


class TestKills(KilledJobs):
    RECORDS = 6000

    def job(self, directory: Path, table: Database, faults: str = "") -> subprocess.Popen[bytes]:
        return self.start_job(directory, "mysql", table.options(), faults)

    def test_every_row_is_there_once(self, table: Database, tmp_path: Path) -> None:
        """A job is killed at chosen places and at random moments, and started again; at last it comes to its end."""
        seed = random.randrange(10**6)
        chance = random.Random(seed)
        self.write_input(tmp_path, self.RECORDS)
        progress = []
        places = ("sink.before_insert", "sink.after_insert", "checkpoint.after_flush", "checkpoint.after_save")
        for place in places:
            process = self.job(tmp_path, table, f"{place}:{chance.randrange(3, 8)}:kill")
            assert process.wait(120) == -signal.SIGKILL, f"seed {seed}, {place}"
            progress.append(len(table.ids()))
        for _ in range(2):
            process = self.job(tmp_path, table)
            before = len(table.ids())
            eventually(lambda: len(table.ids()) > before or process.poll() is not None, "the job writes")  # noqa: B023
            threading.Event().wait(chance.uniform(0, 0.1))
            process.kill()
            process.wait()
            progress.append(len(table.ids()))
        process = self.job(tmp_path, table)
        assert process.wait(120) == 0, (tmp_path / "log.txt").read_text()[-3000:]
        print(f"rows after each kill: {progress}, seed {seed}")
        assert 0 < progress[0] < self.RECORDS
        assert table.ids() == [n for n in range(self.RECORDS) if n % 10 != 3]
        assert not list((tmp_path / "dead").glob("*.json"))


class TestAmbiguousCommit:
    @pytest.fixture
    def relay(self, mysql_server: MySQLServer) -> Iterator[Relay]:
        made = Relay(mysql_server)
        yield made
        made.cut()

    @pytest.mark.parametrize("first", [True, False])
    def test_the_answer_to_a_commit_is_lost(self, table: Database, relay: Relay, first: bool) -> None:
        """The rows are stored, but the sink does not know: they are neither written again nor given up."""
        sink = table.sink(ID, port=relay.port, **QUICK)
        writer = writer_of(sink)
        if not first:
            writer.write(numbers("q", 0, 10))
            writer.flush()
        relay.lose_answer_to = b"\x03COMMIT"
        writer.write(numbers("q", 10, 10))
        writer.flush()
        assert relay.lose_answer_to is None
        assert writer.counts.duplicates_dropped == 10
        writer.write(numbers("q", 20, 10))
        writer.close()
        assert table.ids() == list(range(10 if first else 0, 30))

    def test_a_statement_is_lost(self, table: Database, relay: Relay) -> None:
        sink = table.sink(ID, port=relay.port, **QUICK)
        writer = writer_of(sink)
        relay.lose_answer_to = b"INSERT INTO `t`"
        writer.write(numbers("q", 0, 10))
        writer.close()
        assert writer.counts.duplicates_dropped == 0
        assert writer.counts.retries > 0
        assert table.ids() == list(range(10))

    def test_connections_are_killed_at_random(self, table: Database) -> None:
        seed = random.randrange(10**6)
        chance = random.Random(seed)
        stop = threading.Event()
        killer = Database(table.server, table.name)
        kills = 0

        def kill() -> None:
            nonlocal kills
            while not stop.wait(chance.uniform(0.0, 0.03)):
                found = killer.execute(
                    "SELECT id FROM information_schema.processlist WHERE db = %s AND id NOT IN (%s, %s)",
                    (table.name, killer.connection.thread_id(), table.connection.thread_id()),
                )
                for (number,) in found:
                    kills += killer.kill(number)

        sink = table.sink(ID, **QUICK, batch_size=25)
        writer = writer_of(sink)
        thread = threading.Thread(target=kill)
        thread.start()
        try:
            for first in range(0, 2000, 50):
                for queue in range(3):
                    writer.write(numbers(f"q{queue}", first, 50))
                    writer.flush()
        finally:
            stop.set()
            thread.join()
            killer.close()
        writer.close()
        print(f"{kills} connections killed, {writer.counts.retries} retries, seed {seed}")
        assert kills > 3
        assert writer.counts.dead_letters == 0
        assert table.ids() == sorted(list(range(2000)) * 3), f"seed {seed}"


class TestOtherWriters:
    def test_a_zombie_is_refused_and_its_rows_are_not_stored(self, table: Database) -> None:
        zombie, heir = table.sink(ID), table.sink(ID)
        insert(zombie, numbers("q", 0, 5))
        insert(heir, numbers("q", 5, 5), Position(4))
        with pytest.raises(StaleWriterError, match="another writer has written rows of the queue"):
            insert(zombie, numbers("q", 5, 9), Position(4))
        with pytest.raises(StaleWriterError):
            insert(zombie, numbers("q", 0, 5))
        assert zombie.last_offset(Queue("q")) == heir.last_offset(Queue("q")) == Position(9)
        insert(heir, numbers("q", 10, 1), Position(9))
        zombie.close()
        heir.close()
        assert table.ids() == list(range(11))

    def test_a_process_that_stands_still_inside_a_transaction_does_not_hold_the_queue(
        self, table: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It holds the lock of the position's row; the server ends its transaction and lets the heir go on."""
        monkeypatch.setattr(headrace_mysql.connection, "IDLE_TRANSACTION_SECONDS", 1)
        frozen = headrace_mysql.connection.connect(table.sink(ID).settings)
        heir = table.sink(ID)
        insert(heir, numbers("q", 0, 5))
        with frozen.cursor() as cursor:
            cursor.execute("UPDATE headrace_offsets SET last_offset = 9")
            cursor.execute("INSERT INTO t (id) VALUES (9)")
            insert(heir, numbers("q", 5, 5), Position(4))
            with pytest.raises(Exception, match=r"Idle write transaction|Lost connection|gone away|timed out"):
                cursor.execute("COMMIT")
        if frozen.open:
            frozen.close()
        heir.close()
        assert table.ids() == list(range(10))


class TestLocks:
    def test_a_deadlock_is_retried(self, table: Database) -> None:
        table.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
        table.execute("CREATE TABLE ballast (n INT)")
        insert_one = table.sink(ID, mode="upsert")
        insert(insert_one, numbers("q", 0, 3))
        insert_one.close()
        sink = table.sink(ID, mode="upsert", **QUICK)
        writer = writer_of(sink)
        other = table.connect()
        other.begin()
        with other.cursor() as cursor:
            # The server gives up the transaction that has changed less: this one has changed more.
            cursor.execute("INSERT INTO ballast SELECT seq FROM seq_1_to_2000")
            cursor.execute("INSERT INTO t VALUES (5, 'other')")
            writer.write(numbers("q", 3, 3))
            thread = threading.Thread(target=writer.flush, daemon=True)
            thread.start()
            waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
            # The server shows its transactions as they were 0.1 s ago, and only anew if nobody has looked meanwhile.
            eventually(lambda: table.execute(waiting) != [(0,)], "the sink waits for row 5", pause_seconds=0.25)
            cursor.execute("INSERT INTO t VALUES (3, 'other') ON DUPLICATE KEY UPDATE text = 'other'")
            other.commit()
        other.close()
        thread.join()
        writer.close()
        assert writer.counts.retries >= 1
        assert table.ids() == [0, 1, 2, 3, 4, 5]

    def test_a_wait_that_is_too_long_is_retried(self, start_mysql_server: StartMySQLServer) -> None:
        server = start_mysql_server(MySQLOptions(config={"innodb-lock-wait-timeout": "1"}))
        table = _own(server)
        sink = table.sink(ID, **QUICK)
        insert(sink, numbers("q", 0, 1))
        other = table.connect()
        other.begin()
        with other.cursor() as cursor:
            cursor.execute("SELECT * FROM headrace_offsets FOR UPDATE")
        with pytest.raises(RetriableError, match="Lock wait timeout exceeded"):
            insert(sink, numbers("q", 1, 1), Position(0))
        other.close()
        insert(sink, numbers("q", 1, 1), Position(0))
        sink.close()
        assert table.ids() == [0, 1]
        table.close()


def _own(server: MySQLServer) -> Database:
    """Return a database on a server of the test's own, with the table."""
    Database(server, "mysql").close()
    first = Database(server, "mysql")
    first.execute("CREATE DATABASE own")
    first.close()
    made = Database(server, "own")
    made.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, `text` TEXT)")
    return made


def test_a_server_that_restarts_costs_time_only(start_mysql_server: StartMySQLServer) -> None:
    """One job writes to a server that is stopped and killed meanwhile, another polls the table."""
    server = start_mysql_server(MySQLOptions())
    table = _own(server)
    source = MemorySource({"q": []})
    read = MemorySink()
    writing = (
        hr.stream("test", "writing")
        .from_(source, format="json", schema=ID)
        .to_mysql(**table.options(), **QUICK, flush_interval="10 ms")
        .start("light")
    )
    reading = (
        hr.stream("test", "reading")
        .from_mysql(**table.options(mode="poll", settle="50 ms"))
        .select("id")
        .to(read)
        .start("light")
    )
    table.close()
    done = 0
    ways_to_go: tuple[Callable[[], object], ...] = (server.stop, server.kill)
    for number, away in enumerate(ways_to_go):
        for half in range(2):
            source.append("q", *(b'{"id": %d}' % n for n in range(done, done + 200)))
            done += 200
            if half == 0:
                eventually(lambda: len(read.rows) == done, f"turn {number}: rows come through")  # noqa: B023
                away()
        server.start()
        eventually(lambda: len(read.rows) == done, f"turn {number}: rows come through again")  # noqa: B023
    writing.stop()
    reading.stop()
    writing.wait()
    reading.wait()
    assert [row["id"] for row in read.rows] == list(range(done))
    table = Database(server, "own")
    assert table.ids() == list(range(done))
    table.close()
