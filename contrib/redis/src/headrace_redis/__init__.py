"""Redis for headrace: a source and a sink of streams, and a sink of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_redis.settings import RedisSinkSettings, RedisSourceSettings
    from headrace_redis.sink import RedisSink
    from headrace_redis.source import RedisSource

__all__ = ["RedisSink", "RedisSinkSettings", "RedisSource", "RedisSourceSettings"]
_PLACES = {
    "RedisSink": "headrace_redis.sink",
    "RedisSinkSettings": "headrace_redis.settings",
    "RedisSource": "headrace_redis.source",
    "RedisSourceSettings": "headrace_redis.settings",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module is in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
