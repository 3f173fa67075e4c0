"""What is refused before the start, what is lost with the log, and users who may do only what is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from changes_world import changes_in, changes_of, latest, opened
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import DataError, JobError, OptionError, RetriableError
from headrace.interfaces.source import EARLIEST, LATEST, Reader, StartAt
from headrace_mysql import MySQLChangesSettings
from mysql_world import Database

from tests.change_readers import SECOND, read_to_end
from tests.eventually import eventually
from tests.servers.fixtures import StartMySQLServer
from tests.servers.mysql import MySQLOptions, MySQLServer

POSITIONS = pytest.mark.parametrize("positions", ["gtid", "file"])


@contextlib.contextmanager
def variable(database: Database, name: str, value: str, usual: str) -> Iterator[None]:
    database.execute(f"SET GLOBAL {name} = {value}")
    database.connection = database.connect()
    try:
        yield
    finally:
        database.execute(f"SET GLOBAL {name} = {usual}")


@pytest.fixture
def table(logged: Database) -> Database:
    logged.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE = InnoDB")
    return logged


@POSITIONS
def test_a_log_that_was_purged_is_named(table: Database, positions: str) -> None:
    options = {"positions": positions}
    begin = latest(table, **options)
    table.execute("INSERT INTO t VALUES (1, 1)")
    table.execute("FLUSH BINARY LOGS")
    table.execute("INSERT INTO t VALUES (2, 2)")
    with opened(table, begin, **options) as reader:
        assert changes_in(read_to_end(reader)) == [(0, 1, 1), (0, 2, 2)]
    [(file, *_)] = table.execute("SHOW MASTER STATUS")

    def purged() -> bool:
        # A file that the engine has not noted as done yet stays, without a word.
        table.execute(f"PURGE BINARY LOGS TO '{file}'")
        return [name for name, *_ in table.execute("SHOW BINARY LOGS")] == [file]

    eventually(purged, "the old files of the log are gone")
    with opened(table, begin, **options) as reader, pytest.raises(DataError, match="purged") as refused:
        reader.poll(10, SECOND)
    assert "new checkpoint" in str(refused.value)
    assert str(begin.offset) in str(refused.value)


@POSITIONS
def test_an_idle_table_follows_the_log(table: Database, positions: str) -> None:
    """What others write moves the position: it does not stay where the log will be purged."""
    table.execute("CREATE TABLE other (id INT PRIMARY KEY) ENGINE = InnoDB")
    with opened(table, LATEST, positions=positions) as reader:
        begin = reader.position
        for number in range(20):
            table.execute("INSERT INTO other VALUES (%s)", (number,))
        table.execute("FLUSH BINARY LOGS")
        end = reader.latest
        moved = [reader.poll(10, SECOND) for _ in range(5)]
        assert any(raw is not None and not len(raw) for raw in moved), "an empty batch tells the position"
        assert reader.position.offset >= end > begin.offset
        position = reader.position
    with opened(table, position, positions=positions) as reader:
        table.execute("INSERT INTO t VALUES (1, 1)")
        assert changes_in(read_to_end(reader)) == [(0, 1, 1)]


def test_a_server_that_has_begun_its_log_anew(start_mysql_server: StartMySQLServer) -> None:
    server: MySQLServer = start_mysql_server(
        MySQLOptions(config={"log-bin": "b", "binlog-format": "ROW", "server-id": "1"})
    )
    database = Database(server, "mysql")
    database.execute("CREATE DATABASE shop")
    database = Database(server, "shop")
    database.execute("CREATE TABLE t (id INT PRIMARY KEY) ENGINE = InnoDB")
    database.execute("INSERT INTO t VALUES (1)")
    position = latest(database)
    database.execute("RESET MASTER")
    database.execute("INSERT INTO t VALUES (2)")
    with pytest.raises(DataError, match="behind the end of the log"):
        changes_of(database).open(Queue("t"), position)
    database.close()


def test_a_position_by_file_is_not_read_on_another_server(table: Database) -> None:
    """Its files have the same names. The server's id stands for another server; a running job meets it when it connects again."""
    begin = latest(table, positions="file")
    [(own,)] = table.execute("SELECT @@global.server_id")
    assert begin.hint["server"] == own
    with opened(table, begin, positions="file") as reader:
        table.execute("INSERT INTO t VALUES (1, 1)")
        assert changes_in(read_to_end(reader)) == [(0, 1, 1)]
        with variable(table, "server_id", str(own + 1), str(own)):
            with pytest.raises(
                DataError, match=f"of the server with the id {own}, and this one has the id {own + 1}"
            ) as refused:
                changes_of(table, positions="file").open(Queue("t"), begin)
            assert "new checkpoint" in str(refused.value)
            table.execute("INSERT INTO t VALUES (2, 2)")
            for (process,) in table.execute(
                "SELECT id FROM information_schema.processlist WHERE command = 'Binlog Dump'"
            ):
                table.kill(process)
            with pytest.raises(DataError, match="of the server with the id"):
                _poll_through_lost_connections(reader)
    # Positions of versions that did not know it are read on, and so are those by GTID.
    old = ReadPosition(begin.offset, {name: value for name, value in begin.hint.items() if name != "server"})
    with opened(table, old, positions="file") as reader:
        assert changes_in(read_to_end(reader)) == [(0, 1, 1), (0, 2, 2)]


def _poll_through_lost_connections(reader: Reader) -> None:
    for _ in range(20):
        with contextlib.suppress(RetriableError):
            reader.poll(10, SECOND)


def test_a_server_without_a_log(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with pytest.raises(JobError, match="no binary log") as refused:
        changes_of(database).queues()
    assert "log_bin" in str(refused.value)


@pytest.mark.parametrize(("name", "value"), [("binlog_format", "MIXED"), ("binlog_row_image", "MINIMAL")])
def test_a_log_that_lacks_something(table: Database, name: str, value: str) -> None:
    usual = {"binlog_format": "ROW", "binlog_row_image": "FULL"}[name]
    with variable(table, name, value, usual), pytest.raises(JobError, match=name):
        changes_of(table).queues()


def test_a_client_that_logs_less_is_noticed(table: Database) -> None:
    begin = latest(table)
    table.execute("INSERT INTO t VALUES (1, 1)")
    table.execute("SET SESSION binlog_row_image = 'MINIMAL'")
    table.execute("UPDATE t SET v = 2")
    with opened(table, begin) as reader, pytest.raises(JobError, match="binlog_row_image"):
        read_to_end(reader)
    table.execute("SET SESSION binlog_row_image = 'FULL', SESSION binlog_format = 'STATEMENT'")
    begin = latest(table)
    table.execute("UPDATE t SET v = 3")
    with opened(table, begin) as reader, pytest.raises(JobError, match="statement instead of rows"):
        read_to_end(reader)


def test_xa_transactions_are_refused(table: Database) -> None:
    begin = latest(table)
    for statement in ("XA START 'x'", "INSERT INTO t VALUES (1, 1)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"):
        table.execute(statement)
    with opened(table, begin) as reader, pytest.raises(JobError, match="XA transaction"):
        read_to_end(reader)


def test_cascades_are_refused(table: Database) -> None:
    table.execute("CREATE TABLE child (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE)")
    with pytest.raises(JobError, match="ON DELETE CASCADE"):
        changes_of(table, table="child").queues()
    assert changes_of(table, table="child", ignore_cascades=True).queues()
    table.execute("CREATE TABLE plain (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id))")
    assert changes_of(table, table="plain").queues()


def test_views_are_refused(table: Database) -> None:
    table.execute("CREATE VIEW w AS SELECT * FROM t")
    with pytest.raises(JobError, match="is a view"):
        changes_of(table, table="w").queues()


def test_a_user_with_the_rights_that_are_needed(table: Database) -> None:
    table.execute("INSERT INTO t VALUES (1, 1)")
    table.execute("CREATE OR REPLACE USER reader IDENTIFIED BY 'secret-of-reader'")
    table.execute("GRANT REPLICATION SLAVE ON *.* TO reader")
    table.execute(f"GRANT SELECT ON `{table.name}`.t TO reader")
    login: dict[str, Any] = {"user": "reader", "password": "secret-of-reader"}
    with opened(table, **login) as reader:
        table.execute("UPDATE t SET v = 2")
        assert changes_in(read_to_end(reader)) == [(0, 1, 1), (1, 1, 1), (2, 1, 2)]
    table.execute("REVOKE REPLICATION SLAVE ON *.* FROM reader")
    with opened(table, LATEST, **login) as reader, pytest.raises(JobError, match="REPLICATION SLAVE") as refused:
        reader.poll(1, SECOND)
    assert "secret-of-reader" not in str(refused.value)
    table.execute("DROP USER reader")


def test_two_clients_with_the_same_server_id(table: Database) -> None:
    with opened(table, LATEST, server_id="77") as one, opened(table, LATEST, server_id="77") as other:
        one.poll(1, SECOND / 10)
        other.poll(1, SECOND / 10)
        with pytest.raises((JobError, RetriableError), match=r"server id|was interrupted"):
            _poll_often(one)


def _poll_often(reader: Reader) -> None:
    for _ in range(20):
        reader.poll(1, SECOND)


@pytest.mark.parametrize("value", ["x", "0", "9-5", "5-", "4294967296", "-4"])
def test_server_ids_that_are_none(value: str) -> None:
    with pytest.raises(OptionError, match="neither a number nor a range"):
        MySQLChangesSettings.of({"table": "t", "database": "d", "server_id": value}, plugin="mysql_changes")


def test_starts_that_the_log_does_not_have(table: Database) -> None:
    source = changes_of(table)
    with pytest.raises(JobError, match="by time"):
        source.open(Queue("t"), StartAt(datetime.now(UTC)))
    with pytest.raises(JobError, match="cannot be set by hand"):
        source.open(Queue("t"), ReadPosition(5))
    for before, now in (("file", "gtid"), ("gtid", "file")):
        begin = latest(table, positions=before)
        with pytest.raises(JobError, match="to its previous value"):
            changes_of(table, positions=now).open(Queue("t"), begin)


def test_a_key_of_which_only_true_and_false_are_read_is_refused(logged: Database) -> None:
    logged.execute("CREATE TABLE t (kind TINYINT(1) PRIMARY KEY, name TEXT) ENGINE = InnoDB")
    logged.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    with pytest.raises(JobError, match=r"'kind' is TINYINT\(1\), which is read as true or false"):
        changes_of(logged).open(Queue("t"), EARLIEST)


def test_a_lost_connection_is_made_again(table: Database) -> None:
    table.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    with opened(table, EARLIEST, chunk_rows=1) as reader:
        rows: list[Any] = []
        for number in range(3, 8):
            table.execute("INSERT INTO t VALUES (%s, %s)", (number, number))
            for (process,) in table.execute(
                "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command IN ('Binlog Dump', 'Sleep')"
            ):
                table.kill(process)
            raw = None
            while raw is None or not len(raw):
                with contextlib.suppress(RetriableError):
                    raw = reader.poll(1, SECOND)
            rows += changes_in([raw])
        while len(rows) < 7:
            with contextlib.suppress(RetriableError):
                raw = reader.poll(1, SECOND)
                rows += [] if raw is None else changes_in([raw])
    assert rows == [(0, number, number) for number in range(1, 8)]


@pytest.mark.slow
def test_the_server_waits_for_a_job_whose_sink_is_slow(table: Database) -> None:
    """It would cut the stream after net_write_timeout, a minute by default."""
    table.execute("CREATE TABLE wide (id INT PRIMARY KEY, w TEXT) ENGINE = InnoDB")
    statement = (
        "SELECT time FROM information_schema.processlist WHERE command = 'Binlog Dump' AND state = 'Writing to net'"
    )
    with variable(table, "net_write_timeout", "1", "60"), opened(table, LATEST, table="wide") as reader:
        reader.poll(1, SECOND / 10)
        for first in range(0, 40_000, 5000):  # more than the connection takes on its way
            table.execute(f"INSERT INTO wide SELECT seq + {first}, REPEAT('x', 2000) FROM seq_1_to_5000")  # noqa: S608
        eventually(lambda: [seconds for (seconds,) in table.execute(statement) if seconds > 2], "the server waits")
        assert len(changes_in(read_to_end(reader))) == 40_000
