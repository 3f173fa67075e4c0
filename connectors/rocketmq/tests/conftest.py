"""Settings and fixtures of this package's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from headrace_rocketmq import Client

from tests.servers.rocketmq import RocketMQServer


@pytest.fixture
def client(rocketmq_server: RocketMQServer) -> Iterator[Client]:
    """A client of the shared broker."""
    with Client(rocketmq_server.name_server) as client:
        yield client
