"""A broker that has just started says that its cluster has no brokers. librdkafka then forgets them all, for good."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import headrace as hr
import pytest
from fenced_broker import FencedBroker
from headrace.foundation.errors import RetriableError
from headrace.interfaces.metrics import SOURCE_RENEWALS
from headrace.interfaces.source import EARLIEST
from headrace.testing import MemorySink
from headrace_kafka.settings import KafkaSourceSettings
from headrace_kafka.source import KafkaSource
from kafka_world import KafkaWorld

from tests.eventually import eventually
from tests.servers.kafka import KafkaOptions, KafkaServer
from tests.servers.sharing import own_server

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def relay() -> Iterator[FencedBroker]:
    """What clients of a server of its own come through."""
    made = FencedBroker()
    advertised = {"advertised.listeners": f"PLAINTEXT://{made.address}"}
    with closing(made), own_server(KafkaServer, KafkaOptions(config=advertised)) as server:
        host, _, port = server.bootstrap.partition(":")
        made.target = (host, int(port))
        yield made


def write(relay: FencedBroker, topic: str, first: int) -> None:
    """Append ten numbers to each of two partitions, with a client that has seen all brokers."""
    with closing(KafkaWorld(relay.address)) as world:
        if first == 0:
            world.create_topic(topic, 2)
        for partition in range(2):
            numbers = range(first + 10 * partition, first + 10 * partition + 10)
            world.write(topic, [json.dumps({"n": number}).encode() for number in numbers], partition=partition)


@contextmanager
def no_brokers(relay: FencedBroker, driver: str) -> Iterator[Callable[[], bool]]:
    """Say that there are no brokers, until the body ends. Yields whether the client has forgotten all of them.

    With the first answer librdkafka forgets those that it has learned of, and asks those of its options: then it forgets these.
    """
    relay.told = 0
    relay.has_no_brokers = True
    try:
        yield lambda: relay.is_forgotten if driver == "confluent" else relay.told > 3
    finally:
        relay.has_no_brokers = False


def options(relay: FencedBroker, topic: str, driver: str) -> dict[str, str]:
    return {
        "topic": topic, "servers": relay.address, "driver": driver, "session_timeout": "6 s", "metadata_interval": "1 s",
    }  # fmt: skip


def test_a_member_that_has_forgotten_all_brokers_is_replaced(relay: FencedBroker, topic: str, driver: str) -> None:
    write(relay, topic, 0)
    sink = MemorySink(hr.SinkSettings(flush_interval=timedelta(milliseconds=50)))
    stream = hr.stream("fenced", topic).from_kafka(
        format="json", schema={"n": "int64"}, **options(relay, topic, driver)
    )
    with stream.to(sink).start("light", checkpoint_interval="200 ms", metrics=True) as handle:
        eventually(lambda: len(sink.rows) == 20, "all is read")
        with no_brokers(relay, driver) as forgotten:
            eventually(forgotten, "the client forgets the brokers")
        write(relay, topic, 20)
        eventually(lambda: len({row["n"] for row in sink.rows}) == 40, "what came afterwards is read")
        assert handle.metrics().value(SOURCE_RENEWALS, "kafka") == (1 if driver == "confluent" else 0)
    assert sorted(row["n"] for row in sink.rows) == list(range(40))


def test_readers_whose_consumer_has_forgotten_all_brokers_go_on(relay: FencedBroker, topic: str, driver: str) -> None:
    write(relay, topic, 0)
    with closing(KafkaSource(KafkaSourceSettings.of(options(relay, topic, driver), plugin="kafka"))) as source:
        readers = [source.open(queue, EARLIEST) for queue in source.queues()]
        found: list[int] = []

        def read(count: int) -> bool:
            for reader in readers:
                try:
                    batch = reader.poll(3, timedelta(milliseconds=50))
                except RetriableError:  # as long as it is not replaced
                    continue
                if batch is not None and batch.bodies is not None:
                    found.extend(json.loads(bytes(body))["n"] for body in batch.bodies)
            return len(found) >= count

        eventually(lambda: read(20), "all is read")
        with no_brokers(relay, driver) as forgotten:
            eventually(lambda: read(21) or forgotten(), "the client forgets the brokers")
        write(relay, topic, 20)
        eventually(lambda: read(40), "what came afterwards is read")
        assert sorted(found) == list(range(40))
