"""The contract suite for the source and both sinks, on a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest
from headrace_contract import SinkContract, SourceContract
from headrace_redis import RedisSink, RedisSource
from redis_world import add, make_sink, make_source, make_stream, rows_of

from tests.servers.redis import RedisServer

pytestmark = pytest.mark.servers


class RedisWorld:
    """A server and a client; checks of outages have a server of their own."""

    server: RedisServer
    client: Any

    @pytest.fixture(autouse=True)
    def _server(self, request: pytest.FixtureRequest) -> Iterator[None]:
        own = "outage" in request.node.name
        self.server = (
            request.getfixturevalue("start_redis_server")() if own else request.getfixturevalue("redis_server")
        )
        self.client = self.server.client()
        yield
        self.client.close()

    def begin_outage(self) -> None:
        self.server.kill()

    def end_outage(self) -> None:
        self.server.start()


class TestRedisSource(RedisWorld, SourceContract):
    """A pattern per check, its streams as queues."""

    plugin = "redis"
    odd_bodies = (*SourceContract.odd_bodies, b"", b"two\nlines\r\n")
    streams = 0

    def make_source(self) -> RedisSource:
        return make_source(self.server, f"{self.unique_name}:*")

    def make_missing_source(self) -> RedisSource:
        return make_source(self.server, "no_such_stream")

    def make_with_secret(self, secret: str) -> RedisSource:
        return make_source(self.server, "s", port=1, password=secret, connect_timeout="300 ms")

    def add_queue(self) -> str:
        self.streams += 1
        name = f"{self.unique_name}:{self.streams}"
        make_stream(self.client, name)
        return name

    def remove_queue(self, queue: str) -> None:
        self.client.delete(queue)

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        add(self.client, queue, bodies)

    def forget(self, queue: str, before: int) -> None:
        self.client.xtrim(queue, minid=f"{before >> 21}-{before % 2**21}", approximate=False)


class TestRedisStreamSink(RedisWorld, SinkContract):
    plugin = "redis"
    options: ClassVar[Mapping[str, Any]] = {}

    def make_sink(self) -> RedisSink:
        return make_sink(self.server, stream=self.unique_name, **self.options)

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        return rows_of(self.client, self.unique_name)

    def make_sink_without_target(self) -> RedisSink:
        self.client.set(self.unique_name, "no stream")
        return make_sink(self.server, stream=self.unique_name)

    def make_with_secret(self, secret: str) -> RedisSink:
        return make_sink(self.server, stream="s", port=1, password=secret, connect_timeout="300 ms")


class TestRedisJsonSink(RedisWorld, SinkContract):
    """The newest row of each key, as JSON."""

    plugin = "redis"
    key = ("id",)

    def make_sink(self) -> RedisSink:
        return make_sink(self.server, key="id", key_prefix=f"{self.unique_name}:", value="json")

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        return [json.loads(self.client.get(key)) for key in self.client.scan_iter(f"{self.unique_name}:*", count=1000)]

    def bad_row(self) -> dict[str, Any]:
        return {**self.make_row(0), "id": None}

    def make_with_secret(self, secret: str) -> RedisSink:
        return make_sink(self.server, key="id", port=1, password=secret, connect_timeout="300 ms")
