"""Pytest fixtures for real servers; the root conftest names this module in `pytest_plugins`.

`NAME_server` is shared by the whole run (also by pytest-xdist workers), started when the first test asks for it.
`start_NAME_server` gives a test servers of its own, which it may stop, kill and configure.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Protocol, TypeVar

import pytest

from tests.servers.kafka import KafkaOptions, KafkaServer
from tests.servers.rocketmq import RocketMQOptions, RocketMQServer
from tests.servers.server import Server
from tests.servers.sharing import own_server, shared_server

ServerT = TypeVar("ServerT", bound=Server[Any])


def _running(kind: type[ServerT]) -> Iterator[ServerT]:
    """The server that the kind's variable names, else the one that this run shares."""
    address = os.environ.get(kind.variable)
    if address:
        yield kind.from_variable(address)
    else:
        with shared_server(kind, kind.kind) as server:
            yield server


def _refuse_external(kind: type[Server[Any]]) -> None:
    if os.environ.get(kind.variable):
        pytest.skip(f"needs a {kind.kind} server of its own, but {kind.variable} is set to one that is not ours")


@pytest.fixture(scope="session")
def rocketmq_server() -> Iterator[RocketMQServer]:
    """RocketMQ with one broker, or the one that HEADRACE_TEST_ROCKETMQ=host:port (its name server) names."""
    yield from _running(RocketMQServer)


class StartRocketMQServer(Protocol):
    """What the fixture `start_rocketmq_server` is."""

    def __call__(self, options: RocketMQOptions | None = None) -> RocketMQServer:
        """Start a RocketMQ server for this test alone."""


@pytest.fixture
def start_rocketmq_server() -> Iterator[StartRocketMQServer]:
    """Start RocketMQ servers that this test may stop, kill and configure; they are removed after the test."""
    _refuse_external(RocketMQServer)
    with ExitStack() as stack:
        yield lambda options=None: stack.enter_context(own_server(RocketMQServer, options))


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    """Kafka on one node, or the one that HEADRACE_TEST_KAFKA=host:port names."""
    yield from _running(KafkaServer)


@pytest.fixture(scope="session")
def secure_kafka_server() -> Iterator[KafkaServer]:
    """Kafka with SASL, TLS and an authorizer: see KafkaSecurity, in `.security`."""
    with shared_server(KafkaServer, "secure-kafka", KafkaOptions(secure=True)) as server:
        yield server


class StartKafkaServer(Protocol):
    """What the fixture `start_kafka_server` is."""

    def __call__(self, options: KafkaOptions | None = None) -> KafkaServer:
        """Start a Kafka server for this test alone."""


@pytest.fixture
def start_kafka_server() -> Iterator[StartKafkaServer]:
    """Start Kafka servers that this test may stop, kill and configure; they are removed after the test."""
    _refuse_external(KafkaServer)
    with ExitStack() as stack:
        yield lambda options=None: stack.enter_context(own_server(KafkaServer, options))


@pytest.fixture
def fresh_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Make names that no test has used: the given prefix, the test's name and random digits.

    Lower-case letters, digits and underscores, at most 60 characters: valid for a topic, a group, a table, a database
    and an index on every server here.
    """
    test = re.sub(r"\W+", "_", request.node.name.lower())

    def make(prefix: str) -> str:
        return f"{prefix}_{test}"[:51].rstrip("_") + f"_{secrets.token_hex(4)}"

    return make


@pytest.fixture
def topic(fresh_name: Callable[[str], str]) -> str:
    """The name of a topic that does not exist yet."""
    return fresh_name("topic")


@pytest.fixture
def consumer_group(fresh_name: Callable[[str], str]) -> str:
    """The name of a consumer group that nobody has joined yet."""
    return fresh_name("group")
