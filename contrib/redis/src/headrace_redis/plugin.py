"""What headrace-redis offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {"redis": "headrace_redis.source:RedisSource"}


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {"redis": "headrace_redis.sink:RedisSink"}
