"""Sources and sinks of a test server, and the server as another program sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headrace_redis import RedisSink, RedisSinkSettings, RedisSource, RedisSourceSettings

from tests.servers.redis import RedisServer


def login(server: RedisServer) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}


def make_source(server: RedisServer, stream: str, **options: Any) -> RedisSource:
    given = {"stream": stream, "discovery_interval": 0, **login(server), **options}
    return RedisSource(RedisSourceSettings.of(given, plugin="redis"))


def make_sink(server: RedisServer, **options: Any) -> RedisSink:
    return RedisSink(RedisSinkSettings.of({**login(server), **options}, plugin="redis"))


def make_stream(client: Any, name: str) -> None:
    """Make an empty stream."""
    client.xgroup_create(name, "made", mkstream=True)
    client.xgroup_destroy(name, "made")


def add(client: Any, name: str, bodies: Sequence[bytes]) -> list[str]:
    """Add entries; return their ids."""
    pipeline = client.pipeline(transaction=False)
    for body in bodies:
        pipeline.xadd(name, {b"data": body})
    return [found.decode() for found in pipeline.execute()]


def rows_of(client: Any, name: str) -> list[Mapping[str, Any]]:
    return [json.loads(fields[b"data"]) for _, fields in client.xrange(name)]
