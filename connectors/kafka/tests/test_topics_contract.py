"""The contract suite for topics on Kafka, by both drivers, on a real server; and what Kafka alone has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from headrace.foundation.errors import JobError
from headrace.interfaces.source import EARLIEST
from headrace_contract import TopicsContract
from headrace_kafka.settings import KafkaSourceSettings
from headrace_kafka.source import KafkaSource
from headrace_kafka.topics import KafkaTopics
from kafka_world import KafkaWorld

from tests.servers.kafka import KafkaServer
from tests.servers.login import Login

pytestmark = pytest.mark.servers


def topics_at(servers: str, driver: str, **options: Any) -> KafkaTopics:
    given = {"topic": "input", "servers": servers, "driver": driver, "connect_timeout": "5 s", **options}
    made = KafkaSource(KafkaSourceSettings.of(given, plugin="kafka")).topics()
    assert isinstance(made, KafkaTopics)
    return made


class KafkaTopicsChecks(TopicsContract):
    plugin = "kafka"
    patience = timedelta(seconds=120)
    driver: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _server(self, request: pytest.FixtureRequest) -> None:
        name = "start_kafka_server" if "outage" in request.node.name else "kafka_server"
        found = request.getfixturevalue(name)
        self.server: KafkaServer = found() if "outage" in request.node.name else found
        self.servers = self.server.bootstrap

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "server": None}

    def make_topics(self) -> KafkaTopics:
        return topics_at(self.servers, self.driver)

    def begin_outage(self) -> None:
        self.server.kill()

    def end_outage(self) -> None:
        self.server.start()


class TestConfluentTopics(KafkaTopicsChecks):
    driver = "confluent"


class TestKafkaPythonTopics(KafkaTopicsChecks):
    driver = "kafka-python"
    many_records = 4000


def test_what_a_topic_is_made_with(world: KafkaWorld, driver: str, fresh_name: Callable[[str], str]) -> None:
    name = fresh_name("shuffle")
    topics = topics_at(world.servers, driver, replication_factor=1)
    topics.create(name, 3)
    topics.close()
    found = world.config(name)
    assert (found["cleanup.policy"], found["retention.ms"], found["retention.bytes"]) == ("delete", "-1", "-1")
    assert int(found["max.message.bytes"]) > KafkaTopics.max_record_bytes


def test_more_replicas_than_brokers_are_an_error(
    world: KafkaWorld, driver: str, fresh_name: Callable[[str], str]
) -> None:
    topics = topics_at(world.servers, driver, replication_factor=7)
    with pytest.raises(JobError, match=r"(?i)replication.factor"):
        topics.create(fresh_name("shuffle"), 3)
    topics.close()


def test_trim_removes_records(world: KafkaWorld, driver: str, fresh_name: Callable[[str], str]) -> None:
    name = fresh_name("state")
    topics = topics_at(world.servers, driver)
    topics.create(name, 2)
    topics.append(name, 1, [b"a", b"b", b"c"])
    topics.flush()
    topics.trim(name, 1, 2)
    topics.close()
    assert [(one.partition, one.offset, one.value) for one in world.read(name)] == [(1, 2, b"c")]


def test_a_topic_that_takes_small_records_only_is_an_error(
    world: KafkaWorld, driver: str, fresh_name: Callable[[str], str]
) -> None:
    name = fresh_name("small")
    world.create_topic(name, 1, **{"max.message.bytes": "1000"})
    topics = topics_at(world.servers, driver)
    topics.create(name, 1)
    topics.append(name, 0, [bytes(500_000), b"".join(b"%d" % number for number in range(20_000))])
    with pytest.raises(JobError, match="refuse a record") as caught:
        topics.flush()
    topics.close()
    assert caught.value.hint is not None
    assert "max.message.bytes" in caught.value.hint


def test_properties_of_a_consumer_are_no_trouble(
    world: KafkaWorld, driver: str, fresh_name: Callable[[str], str]
) -> None:
    """``conf`` of a source is for its consumer; a producer is given what it knows of it."""
    name = fresh_name("shuffle")
    own = {"confluent": {"fetch.min.bytes": 2, "socket.keepalive.enable": True}, "kafka-python": {"fetch_min_bytes": 2}}
    topics = topics_at(world.servers, driver, conf=own[driver])
    topics.create(name, 1)
    topics.append(name, 0, [b"a"])
    topics.flush()
    topics.close()
    assert [one.value for one in world.read(name)] == [b"a"]


def test_a_login_and_its_rights(
    secure_kafka_server: KafkaServer, driver: str, fresh_name: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """The source's login is used for everything; who may not make topics reads so, and no password."""
    security = secure_kafka_server.security
    assert security is not None
    sasl = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "ssl_ca": security.certificates.authority,
    }

    def topics_of(login: Login) -> KafkaTopics:
        more = {name: str(value) for name, value in sasl.items()}
        return topics_at(security.sasl_ssl, driver, username=login.name, password=login.password, **more)

    name = fresh_name("shuffle")
    topics = topics_of(security.user)
    topics.create(name, 2)
    topics.append(name, 1, [b"x"])
    topics.flush()
    with closing(topics.source(name, name)) as source:
        [queue] = [queue for queue in source.queues() if topics.number_of(queue) == 1]
        reader = source.open(queue, EARLIEST)
        assert reader.latest == 1
        reader.close()
    topics.trim(name, 1, 1)
    topics.close()
    topics = topics_of(security.outsider)
    with pytest.raises(JobError, match="has no permission for") as caught:
        topics.create(name, 2)
    topics.close()
    for login in (security.user, security.outsider):
        assert login.password not in f"{caught.value} {caplog.text} {topics!r} {topics.__dict__}"
