"""The contract suite for both Kafka sinks, by both drivers, on a real server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from headrace_contract import Moment, SinkContract
from headrace_kafka.settings import KafkaSinkSettings
from headrace_kafka.sink import KafkaSink
from served_by_kafka import ServedByKafka

pytestmark = pytest.mark.servers


class KafkaSinkChecks(ServedByKafka, SinkContract):
    """A topic of two partitions per check; rows as JSON."""

    plugin = "kafka"
    driver: ClassVar[str]
    delivery: ClassVar[str] = "at_least_once"
    longest_text = 500_000  # a server takes records of 1 MB by default
    # Starting a process costs a second: three moments inside an insert, not five.
    crash_moments = (
        Moment(1, "after"),
        Moment(3, "before"),
        *(Moment(3, "inside", fraction) for fraction in (0.3, 0.6, 0.9)),
        Moment(3, "after"),
    )

    def make(self, **options: Any) -> KafkaSink:
        given = {
            "topic": self.unique_name,
            "servers": self.server.bootstrap,
            "driver": self.driver,
            "delivery": self.delivery,
            "delivery_timeout": "3 s",
            **options,
        }
        return KafkaSink(KafkaSinkSettings.of(given, plugin="kafka"))

    def make_sink(self) -> KafkaSink:
        return self.make(create_topic=True, partitions=2)

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        found = self.world.read(self.unique_name)
        return [json.loads(record.value) for record in found if record.value is not None]

    def bad_row(self) -> dict[str, Any]:
        return {**self.make_row(0), "text": "x" * 2_000_000}

    def begin_outage(self) -> None:
        if self.delivery == "exactly_once":
            # Kafka 4.3 on one node, killed right after a commit, may forget to mark the transaction as committed.
            self.server.stop()
        else:
            self.server.kill()

    def end_outage(self) -> None:
        self.server.start()

    def make_sink_without_target(self) -> KafkaSink:
        return self.make(topic="no_such_topic")

    def make_with_secret(self, secret: str) -> KafkaSink:
        sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "username": "u", "password": secret}
        return self.make(servers="127.0.0.1:1", connect_timeout=timedelta(milliseconds=300), **sasl)


class TestConfluentSink(KafkaSinkChecks):
    driver = "confluent"


class TestKafkaPythonSink(KafkaSinkChecks):
    driver = "kafka-python"


class TestConfluentTransactionalSink(KafkaSinkChecks):
    driver = "confluent"
    delivery = "exactly_once"


class TestKafkaPythonTransactionalSink(KafkaSinkChecks):
    driver = "kafka-python"
    delivery = "exactly_once"
