"""The server of contracts that ask a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_world import KafkaWorld

from tests.servers.kafka import KafkaServer


class ServedByKafka:
    """Base of contracts: the shared server, and for checks of outages one that may be stopped."""

    server: KafkaServer
    world: KafkaWorld

    @pytest.fixture(autouse=True)
    def _server(self, request: pytest.FixtureRequest) -> Iterator[None]:
        if "outage" in request.node.name:
            self.server = request.getfixturevalue("start_kafka_server")()
            self.world = KafkaWorld(self.server.bootstrap)
            yield
            self.world.close()
        else:
            self.server = request.getfixturevalue("kafka_server")
            self.world = request.getfixturevalue("world")
            yield
