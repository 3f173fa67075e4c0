"""The contract suite for topics on RocketMQ, on a real broker; and what RocketMQ alone has."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from headrace.foundation.errors import JobError, RetriableError
from headrace_contract import TopicsContract
from headrace_contract.group_member import Member, RunningMember
from headrace_rocketmq import Client
from headrace_rocketmq.job_topics import RocketMQTopics
from headrace_rocketmq.settings import RocketMQSourceSettings
from headrace_rocketmq.source import RocketMQSource

from tests.eventually import eventually
from tests.servers.fixtures import StartRocketMQServer
from tests.servers.login import Login
from tests.servers.rocketmq import RocketMQOptions, RocketMQServer

pytestmark = pytest.mark.servers


def topics_at(name_server: str, **options: Any) -> RocketMQTopics:
    given = {"topic": "input", "name_servers": name_server, "request_timeout": "3 s", **options}
    made = RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq")).topics()
    assert isinstance(made, RocketMQTopics)
    return made


class TestRocketMQTopics(TopicsContract):
    """Topics on the only broker."""

    plugin = "rocketmq"
    patience = timedelta(seconds=120)

    @pytest.fixture(autouse=True)
    def _server(self, request: pytest.FixtureRequest) -> None:
        name = "start_rocketmq_server" if "outage" in request.node.name else "rocketmq_server"
        found = request.getfixturevalue(name)
        self.server: RocketMQServer = found() if "outage" in request.node.name else found
        self.name_server = self.server.name_server

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "server": None}

    def make_topics(self) -> RocketMQTopics:
        return topics_at(self.name_server)

    def begin_outage(self) -> None:
        self.server.kill()

    def end_outage(self) -> None:
        self.server.start()


def test_a_topic_is_on_one_broker(start_rocketmq_server: StartRocketMQServer, topic: str) -> None:
    """Which one has to be said where there are several: it must not depend on who is up when the job starts."""
    server = start_rocketmq_server(RocketMQOptions(brokers=2))
    topics = topics_at(server.name_server)
    with pytest.raises(JobError, match="the cluster has several") as caught:
        topics.create(topic, 3)
    topics.close()
    assert caught.value.option == "topics_broker"
    assert "broker-0, broker-1" in str(caught.value.hint)
    topics = topics_at(server.name_server, topics_broker="broker-1")
    topics.create(topic, 3)
    topics.append(topic, 2, [b"x"])
    topics.flush()
    with Client(server.name_server) as client:
        assert [(one.broker_name, one.queue_id) for one in client.queues(topic)] == [
            ("broker-1", number) for number in range(3)
        ]
        client.create_topic(f"{topic}-both", 3)
    with pytest.raises(JobError, match="has 6 queues on broker-0, broker-1, not 3 on one"):
        topics.create(f"{topic}-both", 3)
    topics.close()
    topics = topics_at(server.name_server, topics_broker="broker-7")
    with pytest.raises(RetriableError, match="'broker-7'"):
        topics.create(f"{topic}-other", 3)
    topics.close()


def test_an_object_that_did_not_create_the_topic_can_append(rocketmq_server: RocketMQServer, topic: str) -> None:
    with Client(rocketmq_server.name_server) as client:
        queues = client.create_topic(topic, 2)
        topics = topics_at(rocketmq_server.name_server)
        topics.append(topic, 1, [b"x"])
        topics.close()
        reader = client.reader({queues[1]: 0})
        assert [body for batch in reader.poll(1, timedelta(seconds=20)) for body in batch.bodies] == [b"x"]
        reader.close()


def test_brokers_that_make_no_groups_by_themselves(start_rocketmq_server: StartRocketMQServer, topic: str) -> None:
    server = start_rocketmq_server(RocketMQOptions(config={"autoCreateSubscriptionGroup": "false"}))
    topics = topics_at(server.name_server)
    topics.create(topic, 1)
    topics.append(topic, 0, [b"x"])
    topics.flush()
    with closing(topics.source(topic, f"{topic}-group")) as source:
        running = RunningMember(Member(source))
        eventually(lambda: list(running.member.records.values()) == [[b"x"]], "the record is read")
        running.stop(timedelta(seconds=120))
    topics.close()


def test_the_native_driver_makes_no_topics(rocketmq_server: RocketMQServer) -> None:
    given = {"topic": "input", "name_servers": rocketmq_server.name_server, "driver": "native"}
    assert RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq")).topics() is None


def test_a_login_and_its_rights(secure_rocketmq_server: RocketMQServer, topic: str) -> None:
    """The source's login is used for everything; who may not make topics reads so, and no secret."""
    security = secure_rocketmq_server.security
    assert security is not None

    def topics_of(login: Login) -> RocketMQTopics:
        more = {"access_key": login.name, "secret_key": login.password}
        return topics_at(secure_rocketmq_server.name_server, **more)

    topics = topics_of(security.user)
    topics.create(topic, 2)
    topics.append(topic, 1, [b"x"])
    topics.close()
    topics = topics_of(security.outsider)
    with pytest.raises(JobError, match="no permission") as caught:
        topics.create(f"{topic}-other", 2)
    topics.append(topic, 1, [b"x"])
    with pytest.raises(JobError, match="no permission"):
        topics.flush()
    topics.close()
    assert security.outsider.password not in f"{caught.value} {topics!r} {topics.__dict__}"
