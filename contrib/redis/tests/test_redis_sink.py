"""Rows in streams and under keys, on a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Position
from headrace.foundation.errors import JobError
from headrace.interfaces.sink import SinkBatch
from headrace.testing import MemorySink, MemorySource
from redis_world import login, make_sink, rows_of

from tests.servers.redis import RedisServer

pytestmark = pytest.mark.servers
SCHEMA = {"user": "string", "n": "int64", "tags": "list<string>"}
ROWS: list[dict[str, Any]] = [
    {"user": "ann", "n": 1, "tags": ["a"]},
    {"user": "bob", "n": 2, "tags": None},
    {"user": "ann", "n": None, "tags": ["b"]},
]


@pytest.fixture
def name(fresh_name: Callable[[str], str]) -> str:
    return fresh_name("out")


def stream_of(rows: list[dict[str, Any]] = ROWS, *, job: str = "job") -> Any:
    source = MemorySource({"a": [json.dumps(row).encode() for row in rows]})
    return hr.stream("tests", job).from_(source, format="json", schema=SCHEMA)


def test_entries_of_columns(redis_server: RedisServer, client: Any, name: str) -> None:
    stream_of().to_redis(name, **login(redis_server), entry="columns").run("light", show_progress=False)
    assert [fields for _, fields in client.xrange(name)] == [
        {b"user": b"ann", b"n": b"1", b"tags": b'["a"]'},
        {b"user": b"bob", b"n": b"2"},
        {b"user": b"ann", b"tags": b'["b"]'},
    ]


def test_a_stream_keeps_about_so_many_entries(redis_server: RedisServer, client: Any, name: str) -> None:
    rows = [{"user": "ann", "n": number} for number in range(2_000)]
    stream_of(rows).to_redis(name, **login(redis_server), max_length=100).run("light", show_progress=False)
    assert 100 <= client.xlen(name) < 400
    assert rows_of(client, name)[-1]["n"] == 1_999


def test_hashes_have_the_newest_row_of_each_key(redis_server: RedisServer, client: Any, name: str) -> None:
    client.hset(f"{name}:bob", "old", "1")
    given: dict[str, Any] = {"key": "user", "key_prefix": f"{name}:", "ttl": "1 h", **login(redis_server)}
    stream_of().to_redis(**given).run("light", show_progress=False)
    assert client.hgetall(f"{name}:ann") == {b"user": b"ann", b"tags": b'["b"]'}
    assert client.hgetall(f"{name}:bob") == {b"user": b"bob", b"n": b"2"}
    assert 0 < client.pttl(f"{name}:bob") <= 3_600_000


def test_json_under_a_key_of_several_columns(redis_server: RedisServer, client: Any, name: str) -> None:
    rows = [{"user": "a:b%", "n": 1}, {"user": "é x", "n": 2}]
    given: dict[str, Any] = {"key": ["user", "n"], "key_prefix": f"{name}:", "value": "json", **login(redis_server)}
    stream_of(rows).to_redis(**given).run("light", show_progress=False)
    assert sorted(key.decode().removeprefix(f"{name}:") for key in client.scan_iter(f"{name}:*")) == [
        "%C3%A9 x:2",
        "a%3Ab%25:1",
    ]
    assert json.loads(client.get(f"{name}:a%3Ab%25:1")) == {"user": "a:b%", "n": 1, "tags": None}


def test_results_that_change_are_kept_by_key(redis_server: RedisServer, client: Any, name: str) -> None:
    totals = stream_of().key_by("user").agg(rows="count(*)")
    totals.to_redis(key="user", key_prefix=f"{name}:", **login(redis_server)).run("light", show_progress=False)
    assert client.hgetall(f"{name}:ann") == {b"user": b"ann", b"rows": b"2"}


def test_rows_without_key_are_dead_letters(redis_server: RedisServer, client: Any, name: str) -> None:
    letters = MemorySink()
    rows: list[dict[str, Any]] = [*ROWS, {"user": None, "n": 7}]
    stream = stream_of(rows).dead_letters(lambda bad: bad.to(letters))
    stream.to_redis(key="user", key_prefix=f"{name}:", **login(redis_server)).run("light", show_progress=False)
    assert len(letters.rows) == 1
    assert "a row whose key is NULL" in str(letters.rows[0])
    assert client.exists(f"{name}:ann", f"{name}:bob") == 2


def test_sql(redis_server: RedisServer, client: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", redis_server.password)
    stream_of().to_redis(name, **login(redis_server)).run("light", show_progress=False)
    place = f"""'connector' = 'redis', 'host' = '127.0.0.1', 'port' = '{redis_server.port}', 'user' = '{redis_server.user}',
                'password' = '${{REDIS_PASSWORD}}'"""
    hr.sql(
        f"""
        CREATE TABLE entries (`user` STRING, n BIGINT) WITH ({place}, 'stream' = '{name}');
        CREATE TABLE newest (`user` STRING, n BIGINT, PRIMARY KEY (`user`) NOT ENFORCED)
          WITH ({place}, 'key-prefix' = '{name}:', 'value' = 'json');
        INSERT INTO newest SELECT `user`, n FROM entries WHERE n IS NOT NULL;
        """  # noqa: S608
    ).run("light", show_progress=False)
    assert json.loads(client.get(f"{name}:ann")) == {"user": "ann", "n": 1}


def test_a_job_that_was_edited_is_refused_the_stream(redis_server: RedisServer, client: Any, name: str) -> None:
    stream_of().to_redis(name, **login(redis_server)).run("light", show_progress=False)
    edited = stream_of().where("n = 1").to_redis(name, **login(redis_server))
    with pytest.raises(JobError, match="the output of another job with the same name"):
        edited.run("light", show_progress=False)
    assert len(rows_of(client, name)) == 3


def test_a_server_that_has_lost_rows_is_noticed(redis_server: RedisServer, client: Any, name: str) -> None:
    sink = make_sink(redis_server, stream=name)
    sink.writer_name = name
    sink.check(None)
    frame = pl.DataFrame({OFFSET: [4], INDEX: [0], "n": [1]}, schema={OFFSET: pl.Int64, INDEX: pl.Int32, "n": pl.Int64})
    with pytest.raises(JobError, match="rows up to none are stored, not up to 3:0: the server has lost rows"):
        sink.batch_insert(SinkBatch(hr.Queue("a"), frame, Position(3, 0)))
    assert not client.exists(name)
    sink.close()


def test_a_user_who_may_not_write_is_told_at_the_start(redis_server: RedisServer, name: str) -> None:
    outsider = redis_server.outsider
    assert outsider is not None
    place = {**login(redis_server), "user": outsider.name, "password": outsider.password}
    for options in ({"stream": name}, {"key": "user"}):
        with pytest.raises(JobError, match="ACL SETUSER"):
            stream_of().to_redis(**options, **place).run("light", show_progress=False)
