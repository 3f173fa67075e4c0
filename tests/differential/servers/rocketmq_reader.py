"""Reads all messages of a topic from a RocketMQ broker, by the requests of its protocol alone: nothing of the connector's.

A message is as ``MessageDecoder`` of apache/rocketmq describes it.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.servers.rocketmq_remoting import GET_ROUTE, SUCCESS, request

_PULL_MESSAGE = 11
_SUBSCRIPTION = 4


@dataclass(frozen=True)
class Read:
    """A message: its queue and place, body and properties."""

    queue: int
    offset: int
    body: bytes
    properties: dict[str, str]


def messages_of(name_server: str, topic: str, least: int, *, patience_seconds: float = 10) -> list[Read]:
    """Return all messages. A broker shows them a moment after it has acknowledged them: ``least`` are waited for."""
    route = json.loads(request(name_server, GET_ROUTE, {"topic": topic}).body)
    brokers = {each["brokerName"]: each["brokerAddrs"]["0"] for each in route["brokerDatas"]}
    deadline = time.monotonic() + patience_seconds
    while True:
        found = [
            message
            for each in route["queueDatas"]
            for queue in range(each["writeQueueNums"])
            for message in _in_queue(brokers[each["brokerName"]], topic, queue)
        ]
        if len({each.properties.get("KEYS") for each in found}) >= least or time.monotonic() > deadline:
            return found
        time.sleep(0.05)  # there is no clock of the broker's to move


def _in_queue(broker: str, topic: str, queue: int) -> Iterator[Read]:
    offset = 0
    while True:
        fields = {
            "consumerGroup": "differential", "topic": topic, "queueId": str(queue), "queueOffset": str(offset), "maxMsgNums": "1000",
            "sysFlag": str(_SUBSCRIPTION), "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            "expressionType": "TAG",
        }  # fmt: skip
        reply = request(broker, _PULL_MESSAGE, fields)
        if reply.code != SUCCESS:
            return
        for message in _decoded(reply.body):
            yield message
            offset = message.offset + 1


def _decoded(body: bytes) -> Iterator[Read]:
    at = 0
    while at < len(body):
        (size,) = struct.unpack_from(">i", body, at)
        yield _message(body[at : at + size])
        at += size


def _message(data: bytes) -> Read:
    _, magic, _, queue, _, offset, _, flag, _ = struct.unpack_from(">iIiiiqqiq", data)
    at = struct.calcsize(">iIiiiqqiq") + (20 if flag & 16 else 8) + 8 + (20 if flag & 32 else 8) + 4 + 8
    (length,) = struct.unpack_from(">i", data, at)
    body, at = data[at + 4 : at + 4 + length], at + 4 + length
    wide = magic == 0xDAA320A7 + 4  # a topic's length of two bytes
    (length,) = struct.unpack_from(">H" if wide else ">B", data, at)
    at += (2 if wide else 1) + length
    (length,) = struct.unpack_from(">H", data, at)
    text = data[at + 2 : at + 2 + length].decode()
    properties = dict(each.split("\x01", 1) for each in text.split("\x02") if each)
    assert not flag & 1, "a packed body"
    return Read(queue, offset, body, properties)
