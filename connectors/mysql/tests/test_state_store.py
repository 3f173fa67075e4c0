"""The state store: the contract on a real server, owners that come and go, crashes, and a job that keeps its state there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import headrace as hr
import pymysql
import pytest
from headrace.foundation.errors import CheckpointError, JobError, OptionError, RetriableError
from headrace.interfaces.sink import StaleWriterError
from headrace.interfaces.state_store import StateStore
from headrace.testing import MemorySink, MemorySource
from headrace_contract import KeyedStateStoreContract, MemoryBroker, MemoryTopicSource, ReadableStateStoreContract
from headrace_contract.memory_topics import MemoryTopicSettings
from headrace_mysql import MySQLStateSettings, MySQLStateStore
from mysql_world import Database, Relay

from tests.eventually import eventually
from tests.servers.fixtures import StartMySQLServer
from tests.servers.mysql import MySQLOptions, MySQLServer

pytestmark = pytest.mark.servers
Make = Callable[..., MySQLStateStore]


def state_options(database: Database, **more: Any) -> dict[str, Any]:
    given = {**database.options(), "job": "test.job", **more}
    return {name: value for name, value in given.items() if name != "table" or "table" in more}


class TestMySQLStateStore(KeyedStateStoreContract, ReadableStateStoreContract):
    """Two tables of a database."""

    patience = timedelta(seconds=120)

    database: Database | None

    @pytest.fixture(autouse=True)
    def _server(self, mysql_server: MySQLServer, mysql_database: str) -> Iterator[None]:
        self.database = Database(mysql_server, mysql_database)
        self.given = state_options(self.database)
        yield
        self.database.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "database": None}

    def make_store(self) -> MySQLStateStore:
        return MySQLStateStore(MySQLStateSettings.of(self.given, plugin="mysql"))


@pytest.fixture
def make(database: Database) -> Iterator[Make]:
    made: list[MySQLStateStore] = []

    def make(**more: Any) -> MySQLStateStore:
        made.append(MySQLStateStore(MySQLStateSettings.of(state_options(database, **more), plugin="mysql")))
        return made[-1]

    yield make
    for store in made:
        store.close()


def numbers(store: StateStore, shard: str = "a/0") -> list[int]:
    return [number for number, _, _ in store.load(shard)]


def test_deltas_of_who_lost_the_shard_are_refused(make: Make) -> None:
    first, second = make(), make()
    first.save("a/0", 1, b"1", snapshot=True)
    first.save("a/0", 2, b"2")
    assert numbers(second) == [1, 2]
    with pytest.raises(StaleWriterError, match="belongs to another instance") as caught:
        first.save("a/0", 3, b"3")
    assert caught.value.queue == "a/0"
    second.save("a/0", 4, b"4")
    with pytest.raises(StaleWriterError):
        first.save("a/0", 5, b"5")
    assert numbers(make()) == [1, 2, 4]


def test_who_loads_a_shard_again_has_it_again(make: Make) -> None:
    first, second = make(), make()
    first.save("a/0", 1, b"1", snapshot=True)
    assert numbers(second) == [1]
    assert numbers(first) == [1]
    first.save("a/0", 2, b"2")
    with pytest.raises(StaleWriterError):
        second.save("a/0", 3, b"3")


def test_a_snapshot_begins_anew_unless_it_is_behind(make: Make) -> None:
    """The deltas behind a snapshot are of one owner: those of two could not be put together."""
    first, second = make(), make()
    first.save("a/0", 1, b"1", snapshot=True)
    assert numbers(second) == [1]
    second.save("a/0", 5, b"5")
    with pytest.raises(StaleWriterError, match="the newest is 5"):
        first.save("a/0", 4, b"4", snapshot=True)
    first.save("a/0", 6, b"6", snapshot=True)
    with pytest.raises(StaleWriterError):
        second.save("a/0", 7, b"7")
    first.save("a/0", 7, b"of the first")
    assert [(number, content) for number, content, _ in make().load("a/0")] == [(6, b"6"), (7, b"of the first")]


def test_jobs_are_kept_apart(make: Make) -> None:
    one, other = make(job="one"), make(job="other")
    one.save("a/0", 1, b"one", snapshot=True)
    other.save("a/0", 1, b"other", snapshot=True)
    one.save("a/0", 2, b"one")
    assert [content for _, content, _ in make(job="other").load("a/0")] == [b"other"]


def test_names_of_any_kind(make: Make) -> None:
    shard, job, table = "s" * 2000, "J" * 900, "we%ird `state`"
    store = make(job=job, table=table)
    store.save(shard, 1, b"x", snapshot=True)
    store.save(shard.upper(), 1, b"y", snapshot=True)
    assert [content for _, content, _ in make(job=job, table=table).load(shard)] == [b"x"]
    assert list(make(job=job.lower(), table=table).load(shard)) == []


def test_a_version_without_its_end_is_not_there(database: Database, make: Make) -> None:
    """The process dies, or the connection, in the middle of a large version."""
    relay = Relay(database.server)
    try:
        store = make(port=relay.port)
        store.save("a/0", 1, b"1", snapshot=True)
        relay.lose_answer_to = b"UNHEX('0"
        with pytest.raises(RetriableError):
            store.save("a/0", 2, os.urandom(7_000_000), snapshot=True)
        assert numbers(make()) == [1]
    finally:
        store.close()
        relay.cut()


def test_a_lost_answer_to_the_commit_is_no_harm(database: Database, make: Make) -> None:
    relay = Relay(database.server)
    try:
        store = make(port=relay.port)
        store.save("a/0", 1, b"1", snapshot=True)
        relay.lose_answer_to = b"COMMIT"
        with pytest.raises(RetriableError):
            store.save("a/0", 2, b"2")
        store.save("a/0", 2, b"2 again", snapshot=True)
        assert list(make().load("a/0")) == [(2, b"2 again", True)]
    finally:
        store.close()
        relay.cut()


def test_an_outage_is_an_outage(database: Database, make: Make) -> None:
    relay = Relay(database.server)
    store = make(port=relay.port)
    store.save("a/0", 1, b"1", snapshot=True)
    relay.cut()
    for call in (lambda: store.save("a/0", 2, b"2"), lambda: numbers(store), lambda: store.remove("a/0", before=1)):
        with pytest.raises(RetriableError):
            call()
    relay.open()
    store.save_parts("a/0", 2, [b"2", b"two"])
    assert numbers(store) == [1, 2]
    relay.cut()
    with pytest.raises(RetriableError):
        list(store.load_parts("a/0", {2: [range(1, 2)]}))
    relay.open()
    assert list(store.load_parts("a/0", {2: [range(1, 2)]})) == [(2, 1, b"two")]
    store.close()
    relay.cut()


def test_parts_fit_into_packets(start_mysql_server: StartMySQLServer) -> None:
    server = start_mysql_server(MySQLOptions(config={"max-allowed-packet": "65536"}))
    login = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with pymysql.connect(**login, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE small")
        store = MySQLStateStore(MySQLStateSettings.of({**login, "database": "small", "job": "j"}, plugin="mysql"))
        content = os.urandom(500_000)
        store.save("a/0", 1, content, snapshot=True)
        assert list(store.load("a/0")) == [(1, content, True)]
        parts = [content[:100_000], *(os.urandom(30) for _ in range(1000)), b"", content[100_000:]]
        store.save_parts("a/0", 2, parts, snapshot=True)
        store.versions("a/0")
        found = list(store.load_parts("a/0", {2: [range(2), range(900, 1003)]}))
        assert found == [(2, number, parts[number]) for number in (0, 1, *range(900, 1003))]
        store.close()
        cursor.execute("SELECT MAX(LENGTH(content)) FROM small.headrace_state")
        assert cursor.fetchone()[0] < 32768


def test_what_is_stored_is_compressed(database: Database, make: Make) -> None:
    make().save("a/0", 1, b"again and " * 100_000, snapshot=True)
    [(size,)] = database.execute("SELECT SUM(LENGTH(content)) FROM headrace_state")
    assert size < 100_000


def test_damaged_state_is_named(database: Database, make: Make) -> None:
    make().save("a/0", 1, b"again and " * 1000, snapshot=True)
    for content, text in ((b"\x01nonsense", "damaged"), (b"\x07future", "does not know")):
        database.execute("UPDATE headrace_state SET content = %s", (content,))
        with pytest.raises(CheckpointError, match=text):
            numbers(make())


def test_a_damaged_part_is_named(database: Database, make: Make) -> None:
    store = make()
    store.save_parts("a/0", 1, [b"first", b"again and " * 100, b"third"], snapshot=True)
    database.execute("UPDATE headrace_state SET content = %s WHERE part = 1024", (b"\x01nonsense",))
    assert [each.first for each in store.versions("a/0")] == [b"first"]
    assert list(store.load_parts("a/0", {1: [range(2, 3)]})) == [(1, 2, b"third")]
    with pytest.raises(CheckpointError, match="damaged"):
        list(store.load_parts("a/0", {1: [range(1, 3)]}))


def test_another_table_of_that_name_is_refused(database: Database, make: Make) -> None:
    database.execute("CREATE TABLE taken (id INT)")
    with pytest.raises(JobError, match="is not a table of state"):
        numbers(make(table="taken"))


def test_a_user_who_may_not_create_tables(database: Database, make: Make) -> None:
    make().save("a/0", 1, b"1", snapshot=True)
    server = database.server
    user = f"u{database.name[-12:]}"
    database.execute(f"CREATE USER '{user}'@'%%' IDENTIFIED BY 'Secret-1'", ())
    try:
        grant = f"GRANT SELECT, INSERT, UPDATE, DELETE ON `{database.name}`.* TO '{user}'@'%%'"
        database.execute(grant, ())
        login = {"user": user, "password": "Secret-1", "host": server.host, "port": server.port}
        assert numbers(make(**login)) == [1]
        with pytest.raises(JobError, match="may not create the table"):
            numbers(make(table="other", **login))
    finally:
        database.execute(f"DROP USER '{user}'@'%%'", ())


def test_instances_without_a_directory_share_state(database: Database) -> None:
    """One instance stops, another on another machine goes on with what it has counted."""
    broker = MemoryBroker()
    broker.add_queue("events")
    options = {name: value for name, value in state_options(database).items() if name != "job"}
    for expected in (3, 5):
        source = MemoryTopicSource(MemoryTopicSettings(broker=broker.name, topic="events", group="g"))
        sink = MemorySink()
        stream = hr.stream("test", "shared").from_(source, format="json", schema={"k": "string"})
        job = stream.key_by("k").agg(n="count(*)").to(sink)
        handle = job.start(
            "light",
            until=None,
            reliability="high",
            state_store="mysql",
            state_options=options,
            checkpoint_interval="50 ms",
        )
        broker.append("events", 0, [b'{"k": "a"}'] * (3 if expected == 3 else 2))
        eventually(
            lambda: bool(sink.rows) and sink.rows[-1]["n"] == expected,  # noqa: B023
            f"a count of {expected}",
            shown=lambda: (sink.rows, handle.status()),  # noqa: B023
        )
        handle.stop(timedelta(seconds=100))
        handle.wait()
    assert [job for (job,) in database.execute("SELECT DISTINCT job FROM headrace_state_shards")] == ["test.shared"]


def test_a_table_needs_a_name() -> None:
    with pytest.raises(OptionError):
        MySQLStateStore(MySQLStateSettings.of({"database": "d", "job": "j", "table": "x" * 70}, plugin="mysql"))


def test_a_job_keeps_its_state_there(database: Database, tmp_path: Any) -> None:
    source = MemorySource({"q": [b'{"k": "a"}'] * 3})
    options = {name: value for name, value in state_options(database).items() if name != "job"}
    first, second = MemorySink(), MemorySink()
    for sink in (first, second):
        stream = hr.stream("test", "mysql_state").from_(source, format="json", schema={"k": "string"})
        stream.key_by("k").agg(n="count(*)").to(sink).run(
            "light", checkpoint=tmp_path / "state", state_store="mysql", state_options=options, show_progress=False
        )
        source.append("q", b'{"k": "a"}')
    assert database.execute("SELECT job FROM headrace_state_shards") == [("test.mysql_state",)]
    assert second.rows[-1] == {"k": "a", "n": 4}
