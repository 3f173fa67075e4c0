"""State in topics of Kafka: the contract of state stores, by both drivers, on a real server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

import pytest
from headrace.interfaces.state_store import StateStore
from headrace_contract import StateStoreContract, StorePerShuffle
from headrace_kafka.settings import KafkaSourceSettings
from headrace_kafka.source import KafkaSource
from headrace_light.shared.topic_state import TopicStateStore

from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.servers


class StateChecks(StateStoreContract):
    driver: ClassVar[str]
    patience = timedelta(seconds=120)

    @pytest.fixture(autouse=True)
    def _server(self, kafka_server: KafkaServer) -> None:
        self.servers = kafka_server.bootstrap

    def make_store(self) -> StateStore:
        given: dict[str, Any] = {"topic": "input", "servers": self.servers, "driver": self.driver}
        topics = KafkaSource(KafkaSourceSettings.of(given, plugin="kafka")).topics()
        name = self.unique_name
        return StorePerShuffle(lambda shuffle: TopicStateStore(topics, f"{name}_{shuffle}", 12), topics.close)


class TestConfluentTopicState(StateChecks):
    driver = "confluent"


class TestKafkaPythonTopicState(StateChecks):
    driver = "kafka-python"
