"""The contract suite for the Kafka source, by both drivers, on a real server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from headrace_contract import GroupSourceContract, SourceContract
from headrace_contract.source_harness import SourceHarness
from headrace_kafka.settings import KafkaSourceSettings
from headrace_kafka.source import KafkaSource
from served_by_kafka import ServedByKafka

pytestmark = pytest.mark.servers


class KafkaSourceWorld(ServedByKafka, SourceHarness):
    """A topic per check, its partitions as queues."""

    plugin = "kafka"
    driver: ClassVar[str]
    odd_bodies = (*SourceContract.odd_bodies, b"", b"two\nlines\r\n")

    def begin(self, tmp_path: Any) -> None:
        super().begin(tmp_path)
        self.partitions = 0

    def make(self, **options: Any) -> KafkaSource:
        given = {"topic": self.unique_name, "servers": self.server.bootstrap, "driver": self.driver, **options}
        made = KafkaSource(KafkaSourceSettings.of(given, plugin="kafka"))
        made.header_fields = frozenset({"time"})  # as a job that wants the records' times sets it
        return made

    def make_source(self) -> KafkaSource:
        return self.make(connect_timeout="5 s")

    def add_queue(self) -> str:
        self.partitions += 1
        if self.partitions == 1:
            self.world.create_topic(self.unique_name)
        else:
            self.world.add_partitions(self.unique_name, self.partitions)
        return f"{self.unique_name}-{self.partitions - 1}"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        topic, _, partition = queue.rpartition("-")
        self.world.write(topic, bodies, partition=int(partition))

    def forget(self, queue: str, before: int) -> None:
        topic, _, partition = queue.rpartition("-")
        self.world.forget(topic, int(partition), before)

    def begin_outage(self) -> None:
        self.server.kill()

    def end_outage(self) -> None:
        self.server.start()

    def make_missing_source(self) -> KafkaSource:
        return self.make(topic="no_such_topic")

    def make_with_secret(self, secret: str) -> KafkaSource:
        sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "username": "u", "password": secret}
        return self.make(servers="127.0.0.1:1", connect_timeout=timedelta(milliseconds=300), **sasl)


class TestConfluentSource(KafkaSourceWorld, SourceContract):
    driver = "confluent"


class TestKafkaPythonSource(KafkaSourceWorld, SourceContract):
    driver = "kafka-python"


class KafkaGroupChecks(KafkaSourceWorld, GroupSourceContract):
    """Members that the broker misses after six seconds."""

    patience = timedelta(seconds=60)

    def make_source(self) -> KafkaSource:
        return self.make(connect_timeout="5 s", session_timeout="6 s")


class TestConfluentGroup(KafkaGroupChecks):
    driver = "confluent"


class TestKafkaPythonGroup(KafkaGroupChecks):
    driver = "kafka-python"
