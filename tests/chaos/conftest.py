"""What several of the fault tests use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.elastic_world import ElasticWorld, MakeWorld, OnKafka, OnRocketMQ
from tests.servers.mysql import MySQLServer


@pytest.fixture(params=["kafka", "rocketmq"])
def make_world(
    request: pytest.FixtureRequest, mysql_server: MySQLServer, fresh_name: Callable[[str], str], tmp_path: Path
) -> Iterator[MakeWorld]:
    """Make the world of a test on the broker of its parameter; it ends with the test."""
    kind = request.param
    server = request.getfixturevalue(f"{kind}_server")
    made: list[ElasticWorld] = []

    def make(**run: Any) -> ElasticWorld:
        name = fresh_name("elastic")
        broker = OnKafka(server, name) if kind == "kafka" else OnRocketMQ(server, name)
        made.append(ElasticWorld(broker, mysql_server, tmp_path, **run))
        return made[-1]

    yield make
    for world in made:
        world.close()


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python reads its schemas in a way that Python 3.11 calls out of date, and leaves sockets to the garbage collector.
    config.addinivalue_line("filterwarnings", "ignore:.* is deprecated. Use files:DeprecationWarning")
    config.addinivalue_line("filterwarnings", r"ignore:unclosed <socket.*laddr=\('0\.0\.0\.0':ResourceWarning")
