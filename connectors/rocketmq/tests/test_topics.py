"""Topics and groups, made on real brokers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from headrace_rocketmq import Client, Message, MessageQueue
from headrace_rocketmq.errors import (
    ConfigurationError,
    ConnectionFailedError,
    GroupNotFoundError,
    NotAMemberError,
    TopicNotFoundError,
)

from tests.servers.fixtures import StartRocketMQServer
from tests.servers.rocketmq import RocketMQOptions

from .reading import bodies, poll_messages

SHORT, PATIENT = timedelta(seconds=2), timedelta(seconds=20)


def test_a_topic_is_usable_at_once(client: Client, topic: str) -> None:
    queues = client.create_topic(topic, 5)
    assert queues == [MessageQueue(topic, "broker-0", number) for number in range(5)]
    assert client.queues(topic) == queues
    assert client.send(topic, Message(b"x"), queue=queues[4]).offset == 0


def test_a_topic_can_grow(client: Client, topic: str) -> None:
    client.create_topic(topic, 1)
    assert len(client.create_topic(topic, 3)) == 3
    assert len(client.queues(topic)) == 3


def test_a_topic_can_be_removed(client: Client, topic: str) -> None:
    client.create_topic(topic, 1)
    client.delete_topic(topic)
    with pytest.raises(TopicNotFoundError):
        client.queues(topic)
    client.delete_topic(topic)


@pytest.mark.parametrize("queues", [0, -1])
def test_a_topic_without_queues_is_refused(client: Client, topic: str, queues: int) -> None:
    with pytest.raises(ConfigurationError, match="at least one queue"):
        client.create_topic(topic, queues)


def test_brokers_and_clusters_that_do_not_exist(client: Client, topic: str) -> None:
    with pytest.raises(ConfigurationError, match="broker-9; there are broker-0"):
        client.create_topic(topic, 1, brokers=["broker-9"])
    with pytest.raises(ConfigurationError, match="'mars'; there are test"):
        client.create_topic(topic, 1, cluster="mars")


def test_a_topic_on_several_brokers(start_rocketmq_server: StartRocketMQServer, topic: str) -> None:
    server = start_rocketmq_server(RocketMQOptions(brokers=2))
    with Client(server.name_server) as client:
        assert client.brokers() == server.brokers
        assert client.brokers("test") == server.brokers
        queues = client.create_topic(topic, 2, cluster="test")
        assert queues == [MessageQueue(topic, f"broker-{index}", number) for index in range(2) for number in range(2)]
        results = client.send_many(topic, [Message(b"%d" % number, queue_key=str(number)) for number in range(100)])
        assert {result.queue for result in results} == set(queues)
        received = bodies(poll_messages(client.reader(dict.fromkeys(queues, 0)), 100))
        assert sorted(map(int, received)) == list(range(100))
        only_one = client.create_topic(topic + "-1", 3, brokers=["broker-1"])
        assert {queue.broker_name for queue in only_one} == {"broker-1"}


def test_groups_that_brokers_do_not_make_by_themselves(
    start_rocketmq_server: StartRocketMQServer, topic: str, consumer_group: str
) -> None:
    server = start_rocketmq_server(RocketMQOptions(config={"autoCreateSubscriptionGroup": "false"}))
    with Client(server.name_server) as client:
        (queue,) = client.create_topic(topic, 1)
        client.send(topic, Message(b"x"))
        with (
            Client(server.name_server, timeout=SHORT) as impatient,
            pytest.raises(NotAMemberError, match="create_group"),
        ):
            impatient.consumer(consumer_group, topic)
        with pytest.raises(GroupNotFoundError, match=consumer_group):
            client.reader({queue: 0}, group=consumer_group).poll(1, PATIENT)
        client.create_group(consumer_group)
        assert bodies(poll_messages(client.reader({queue: 0}, group=consumer_group), 1)) == [b"x"]
        with client.consumer(consumer_group, topic) as consumer:
            assert bodies(poll_messages(consumer, 1)) == [b"x"]


def test_no_broker_is_running(start_rocketmq_server: StartRocketMQServer, topic: str) -> None:
    server = start_rocketmq_server()
    server.kill("broker-0")
    with Client(server.name_server, timeout=SHORT) as client, pytest.raises(ConnectionFailedError):
        client.create_topic(topic, 1)
