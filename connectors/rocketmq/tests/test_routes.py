"""Routes, as name servers describe them."""

from __future__ import annotations

import pytest
from headrace_rocketmq import MessageQueue
from headrace_rocketmq.errors import ConfigurationError, ProtocolError
from headrace_rocketmq.remoting import parse_name_servers
from headrace_rocketmq.routes import Route

BODY = b"""{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.2:10911",1:"10.0.0.3:10911"},"brokerName":"b"},
{"brokerAddrs":{1:"10.0.0.9:10911"},"brokerName":"slave-only"},
{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"a"}],"filterServerTable":{},"queueDatas":[
{"brokerName":"b","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":1},
{"brokerName":"slave-only","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1},
{"brokerName":"vanished","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1},
{"brokerName":"a","perm":4,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}]}"""


def test_queues_for_reading_and_for_writing() -> None:
    route = Route.parse("t", BODY)
    assert route.readable_queues == (
        MessageQueue("t", "a", 0),
        MessageQueue("t", "b", 0),
        MessageQueue("t", "b", 1),
        MessageQueue("t", "slave-only", 0),
    )
    # "a" may only be read, "slave-only" has no master
    assert route.writable_queues == (MessageQueue("t", "b", 0),)


def test_addresses() -> None:
    route = Route.parse("t", BODY)
    assert route.addresses["b"] == {0: "10.0.0.2:10911", 1: "10.0.0.3:10911"}
    assert route.masters() == ["10.0.0.1:10911", "10.0.0.2:10911"]
    assert route.all_addresses() == ["10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911", "10.0.0.9:10911"]


def test_equal_routes_are_equal() -> None:
    assert Route.parse("t", BODY) == Route.parse("t", BODY)
    assert Route.parse("t", BODY) != Route.parse("t", BODY.replace(b'"readQueueNums":2', b'"readQueueNums":3'))


@pytest.mark.parametrize("body", [b"[]", b'"x"', b'{"queueDatas":[{}]}', b'{"brokerDatas":[{"brokerName":"a"}]}'])
def test_what_is_no_route(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        Route.parse("t", body)


def test_a_queue_names_itself() -> None:
    assert str(MessageQueue("topic", "broker-0", 3)) == "topic/broker-0/3"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a:1", ["a:1"]),
        ("a:1;b:2", ["a:1", "b:2"]),
        (" a:1 , [::1]:2 ;", ["a:1", "[::1]:2"]),
        (["a:1", "b:2"], ["a:1", "b:2"]),
    ],
)
def test_name_servers(given: str | list[str], expected: list[str]) -> None:
    assert parse_name_servers(given) == expected


@pytest.mark.parametrize("given", ["", ";", "host", "host:", ":1", "host:port", "host:0", "host:65536", []])
def test_name_servers_that_are_none(given: str | list[str]) -> None:
    with pytest.raises(ConfigurationError):
        parse_name_servers(given)
