"""Streams as they change under a reader: trimmed, removed, made anew; patterns, entries of columns, logins. On a real server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import DataError, JobError, RetriableError
from headrace.interfaces.source import Reader
from headrace.testing import MemorySink
from headrace_redis import RedisSource
from redis_world import add, make_source, make_stream

from tests.eventually import eventually
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.servers
_ZERO = timedelta(0)


@pytest.fixture
def name(fresh_name: Callable[[str], str]) -> str:
    return fresh_name("stream")


@pytest.fixture
def source(redis_server: RedisServer, name: str) -> Iterator[RedisSource]:
    made = make_source(redis_server, name)
    yield made
    made.close()


def read(reader: Reader, count: int = 1000) -> list[bytes]:
    raw = reader.poll(count, _ZERO)
    return [] if raw is None or raw.bodies is None else list(raw.bodies)


def test_a_trim_up_to_what_was_read_loses_nothing_also_with_entries_behind_it(
    client: Any, name: str, source: RedisSource
) -> None:
    ids = add(client, name, [b"1", b"2", b"3"])
    reader = source.open(hr.Queue(name), hr.EARLIEST)
    assert read(reader, 2) == [b"1", b"2"]
    client.xtrim(name, minid=ids[2], approximate=False)
    assert read(reader) == [b"3"]
    position = reader.position
    client.xtrim(name, maxlen=0, approximate=False)
    assert read(reader) == []
    add(client, name, [b"4"])
    assert read(source.open(hr.Queue(name), position)) == [b"4"]


def test_entries_that_were_trimmed_unread_are_an_error_that_names_stream_and_entry(
    client: Any, name: str, source: RedisSource
) -> None:
    ids = add(client, name, [b"%d" % number for number in range(10)])
    reader = source.open(hr.Queue(name), hr.EARLIEST)
    read(reader, 3)
    client.xtrim(name, minid=ids[5], approximate=False)
    with pytest.raises(DataError, match="2 entries from there on were removed") as raised:
        read(reader)
    assert f"stream {name!r} was read up to entry {ids[2]}" in str(raised.value)
    with pytest.raises(DataError, match=f"holds {ids[5]}"):
        source.open(hr.Queue(name), reader.position)


def test_a_stream_that_was_made_anew_is_noticed(client: Any, name: str, source: RedisSource) -> None:
    add(client, name, [b"1", b"2", b"3"])
    reader = source.open(hr.Queue(name), hr.EARLIEST)
    read(reader)
    client.delete(name)
    assert read(reader) == []  # until the next call of queues
    with pytest.raises(JobError, match="there is no stream"):
        source.queues()
    add(client, name, [b"other"])
    with pytest.raises(DataError, match="deleted and made anew"):
        read(reader)


def test_entries_that_were_removed_one_by_one_are_passed_over(client: Any, name: str, source: RedisSource) -> None:
    ids = add(client, name, [b"1", b"2", b"3", b"4"])
    reader = source.open(hr.Queue(name), hr.EARLIEST)
    read(reader, 1)
    client.xdel(name, ids[2], ids[3])
    assert read(reader) == [b"2"]
    assert read(reader) == []
    assert reader.position.offset == reader.latest


def test_a_waiting_reader_wakes_up(client: Any, name: str, source: RedisSource) -> None:
    make_stream(client, name)
    reader = source.open(hr.Queue(name), hr.EARLIEST)
    writer = threading.Thread(
        target=lambda: (eventually(lambda: _waits(client), "it waits"), add(client, name, [b"1"]))
    )
    writer.start()
    raw = eventually(lambda: reader.poll(10, timedelta(seconds=10)), "the entry comes")
    writer.join()
    assert raw is not None
    assert list(raw.bodies or ()) == [b"1"]


def _waits(client: Any) -> bool:
    return bool(client.info("clients")["blocked_clients"])


def test_a_job_reads_streams_that_come_while_it_runs(client: Any, redis_server: RedisServer, name: str) -> None:
    sink = MemorySink()
    add(client, f"{name}:a", [b'{"n": 1}'])
    stream = hr.stream("tests", "streams").from_(
        make_source(redis_server, f"{name}:*", trim=True), format="json", schema={"n": "int64"}
    )
    handle = stream.to(sink).start("light", show_progress=False)
    try:
        eventually(lambda: len(sink.rows) == 1, "the first entry comes")
        add(client, f"{name}:b", [b'{"n": 2}', b'{"n": 3}'])
        eventually(lambda: len(sink.rows) == 3, "those of the new stream come")
    finally:
        handle.stop()
    assert sorted(row["n"] for row in sink.rows) == [1, 2, 3]


def test_trim_removes_what_a_checkpoint_covers_but_the_last(client: Any, redis_server: RedisServer, name: str) -> None:
    ids = add(client, name, [b"1", b"2", b"3"])
    source = make_source(redis_server, name, trim=True)
    reader = source.open(hr.Queue(name), hr.EARLIEST)
    read(reader, 2)
    source.stored({hr.Queue(name): reader.position})
    assert [entry_id.decode() for entry_id, _ in client.xrange(name)] == ids[1:]
    assert read(reader) == [b"3"]
    source.close()


def test_entries_of_columns(client: Any, redis_server: RedisServer, name: str) -> None:
    client.xadd(name, {"n": "5", "f": "0.5", "flag": "true", "at": "2026-01-02T03:04:05Z", "list": "[1, 2]", "s": "12"})
    client.xadd(name, {"n": "five"})
    client.xadd(name, {"s": b"\xff"})
    client.xadd(name, {"n": '1,"s":"x"'})
    sink, letters = MemorySink(), MemorySink()
    schema = {"n": "int64", "f": "float64", "flag": "boolean", "at": "timestamp", "list": "list<int64>", "s": "string"}
    stream = hr.stream("tests", "columns").from_(
        make_source(redis_server, name, entry="columns"), format="json", schema=schema
    )
    stream.dead_letters(lambda bad: bad.to(letters)).to(sink).run("light", show_progress=False)
    [row] = sink.rows
    assert (row["n"], row["f"], row["flag"], row["list"], row["s"]) == (5, 0.5, True, [1, 2], "12")
    assert row["at"].isoformat().startswith("2026-01-02T03:04:05")
    assert len(letters.rows) == 3
    with pytest.raises(JobError, match="format='json'"):
        hr.stream("tests", "csv").from_(make_source(redis_server, name, entry="columns"), format="csv", schema=schema)


def test_other_fields_are_headers(client: Any, redis_server: RedisServer, name: str) -> None:
    client.xadd(name, {"data": b"1", "kind": b"order"})
    source = make_source(redis_server, name)
    source.header_fields = frozenset({"headers"})
    raw = source.open(hr.Queue(name), hr.EARLIEST).poll(10, _ZERO)
    assert raw is not None
    assert raw.headers == [{"kind": b"order"}]
    source.close()


@pytest.mark.parametrize(
    ("options", "kind", "reason"),
    [
        ({"password": "wrong"}, JobError, "check user and password"),
        ({"user": "outsider"}, JobError, "ACL SETUSER"),
        ({"port": 1}, RetriableError, "refused"),
        ({"database": 99}, JobError, "option 'database'"),
    ],
)
def test_what_keeps_a_source_from_reading(
    redis_server: RedisServer, name: str, options: dict[str, Any], kind: type[Exception], reason: str
) -> None:
    if "user" in options:
        assert redis_server.outsider is not None
        options = {"user": redis_server.outsider.name, "password": redis_server.outsider.password}
    source = make_source(redis_server, name, **options)
    with pytest.raises(kind, match=reason) as raised:
        source.queues()
    assert redis_server.password not in str(raised.value)
    source.close()


def test_a_key_of_another_type_is_refused(client: Any, name: str, source: RedisSource) -> None:
    client.set(name, "text")
    with pytest.raises(JobError, match="is of type string, not a stream"):
        source.queues()


def test_tls(secure_redis_server: RedisServer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = secure_redis_server
    assert server.security is not None
    client = server.client()
    add(client, name, [b"1"])
    client.close()
    monkeypatch.setenv("REDIS_PASSWORD", server.password)
    files = server.security.certificates
    secured = {"port": server.security.port, "host": "localhost", "password": "${REDIS_PASSWORD}"}
    trusted = make_source(
        server,
        name,
        **secured,
        ssl_ca=str(files.authority),
        ssl_certificate=str(files.client),
        ssl_key=str(files.client_key),
    )
    assert [queue.name for queue in trusted.queues()] == [name]
    trusted.close()
    stranger = make_source(server, name, **secured, ssl_ca=str(files.stranger_authority))
    with pytest.raises(JobError, match="option 'ssl_ca'"):
        stranger.queues()
    stranger.close()
