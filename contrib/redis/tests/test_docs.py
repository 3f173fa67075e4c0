"""The page shows the options as they are declared."""

from __future__ import annotations

from headrace.interfaces.sink import SinkSettings
from headrace_redis import RedisSinkSettings, RedisSourceSettings

from tests.pages import DOCS, declared_options, tabled_options

PAGE = DOCS / "connectors" / "redis.md"


def test_options() -> None:
    source, sink = PAGE.read_text(encoding="utf-8").split("\n## Sink\n")
    assert tabled_options(source) == declared_options(RedisSourceSettings)
    assert tabled_options(sink) == declared_options(RedisSinkSettings, SinkSettings)
