"""The test servers themselves: each starts, answers a real client, and comes back on its ports with its data."""

from __future__ import annotations

import json
import time

import pytest

from tests.servers.errors import ExternalServerError
from tests.servers.fixtures import StartRocketMQServer
from tests.servers.rocketmq import RocketMQOptions, RocketMQServer
from tests.servers.rocketmq_remoting import GET_ROUTE, request

SUCCESS = 0


def create_topic(broker: str, topic: str) -> None:
    """Request UPDATE_AND_CREATE_TOPIC with one queue."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    reply = request(broker, 17, fields)
    assert reply.code == SUCCESS, reply


def send(broker: str, topic: str, body: bytes) -> None:
    """Request SEND_MESSAGE_V2 to queue 0."""
    born = str(int(time.time() * 1000))
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": born, "h": "0", "i": "", "j": "0"}
    reply = request(broker, 310, fields, body)
    assert reply.code == SUCCESS, reply


def pull(broker: str, topic: str) -> bytes:
    """Request PULL_MESSAGE: the encoded messages of queue 0 from offset 0."""
    fields = {
        "consumerGroup": "test",
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    reply = request(broker, 11, fields)
    assert reply.code == SUCCESS, reply
    return reply.body


def route(server: RocketMQServer, topic: str) -> set[str]:
    """The names of the brokers that hold the topic."""
    reply = request(server.name_server, GET_ROUTE, {"topic": topic})
    assert reply.code == SUCCESS, reply
    return {data["brokerName"] for data in json.loads(reply.body)["brokerDatas"]}


class TestRocketMQ:
    """The RocketMQ server, spoken to in its remoting protocol."""

    def test_shared_server_answers(self, rocketmq_server: RocketMQServer, topic: str) -> None:
        """A message sent is a message pulled."""
        broker = rocketmq_server.brokers["broker-0"]
        create_topic(broker, topic)
        send(broker, topic, b"hello")
        assert b"hello" in pull(broker, topic)

    @pytest.mark.parametrize("how", ["stop", "kill"])
    def test_comes_back_with_its_data(self, start_rocketmq_server: StartRocketMQServer, topic: str, how: str) -> None:
        """Ports, topics and messages outlive a clean stop and a crash."""
        server = start_rocketmq_server()
        broker = server.brokers["broker-0"]
        create_topic(broker, topic)
        send(broker, topic, b"kept")
        if how == "stop":
            assert server.stop(), "had to be killed"
        else:
            server.kill()
        assert not server.is_running()
        with pytest.raises(OSError):
            request(broker, GET_ROUTE)
        server.start()
        assert b"kept" in pull(broker, topic)

    def test_brokers_stop_one_by_one(self, start_rocketmq_server: StartRocketMQServer, topic: str) -> None:
        """With two brokers, clients see the one that is left, then both again."""
        server = start_rocketmq_server(RocketMQOptions(brokers=2))
        for broker in server.brokers.values():
            create_topic(broker, topic)
        server.kill("broker-1")
        assert server.is_running("namesrv", "broker-0")
        assert not server.is_running("broker-1")
        send(server.brokers["broker-0"], topic, b"still here")
        server.start()
        assert route(server, topic) == {"broker-0", "broker-1"}

    def test_external_server_is_left_alone(self, rocketmq_server: RocketMQServer, topic: str) -> None:
        """A server that an environment variable names can be used but not stopped."""
        external = RocketMQServer.from_variable(rocketmq_server.to_variable())
        assert external.brokers == rocketmq_server.brokers
        with pytest.raises(ExternalServerError, match="HEADRACE_TEST_ROCKETMQ"):
            external.kill()
        create_topic(rocketmq_server.brokers["broker-0"], topic)
