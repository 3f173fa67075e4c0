"""Makes ``kafka_world`` importable, here and in the processes that tests start; fixtures for both drivers."""

from __future__ import annotations

import gc
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from collections.abc import Callable, Iterator

import pytest
from instances import CountInto, Numbers
from kafka_world import KafkaWorld

from tests.servers.kafka import KafkaServer

DRIVERS = ("confluent", "kafka-python")
_UNCLOSED = r"unclosed <socket.*laddr=\('(0\.0\.0\.0|127\.0\.0\.1)'"


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python reads its schemas in a way that Python 3.11 calls out of date.
    config.addinivalue_line("filterwarnings", "ignore:.* is deprecated. Use files:DeprecationWarning")
    # It leaves it to the garbage collector to close sockets that could not connect, or that were just connecting when it was closed.
    config.addinivalue_line("filterwarnings", f"ignore:{_UNCLOSED}:ResourceWarning")


def pytest_sessionfinish() -> None:
    """Free such sockets now: pytest frees the last ones after all tests, when none of the filters of tests hold any more."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _UNCLOSED, ResourceWarning)
        gc.collect()


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    """Each of the client libraries."""
    return str(request.param)


@pytest.fixture(scope="session")
def world(kafka_server: KafkaServer) -> Iterator[KafkaWorld]:
    """What happens outside, on the server that all tests share."""
    made = KafkaWorld(kafka_server.bootstrap)
    yield made
    made.close()


@pytest.fixture
def target(fresh_name: Callable[[str], str]) -> str:
    return fresh_name("target")


@pytest.fixture
def count_into(world: KafkaWorld, topic: str) -> Iterator[CountInto]:
    """Write growing numbers into ``topic`` until told to stop, at the latest at the end of the test."""
    made: list[Numbers] = []

    def count_into(partitions: int, *, per_second: int) -> Numbers:
        made.append(Numbers(world, topic, partitions, per_second=per_second))
        made[-1].start()
        return made[-1]

    yield count_into
    for numbers in made:
        numbers.stop()
