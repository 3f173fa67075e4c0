"""Name servers and brokers that are not what they seem: what they can get from a client, and what their answers may take."""

from __future__ import annotations

import base64
import json
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from headrace.foundation.errors import HeadraceError
from headrace_rocketmq.frame import Frame
from headrace_rocketmq.settings import RocketMQSourceSettings
from headrace_rocketmq.source import RocketMQSource

from tests.raw_server import RawServer

from .wire_server import Peer, serving

SECRET = "s3same-0pen-wide"
ROUTE_OF_TOPIC = 105


def source(address: str, **options: object) -> RocketMQSource:
    given = {
        "topic": "t",
        "group": "g",
        "name_servers": address,
        "request_timeout": "2 s",
        "connect_timeout": "2 s",
        "access_key": "reader",
        "secret_key": SECRET,
        **options,
    }
    return RocketMQSource(RocketMQSourceSettings.of(given))


def refused(made: RocketMQSource) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        made.queues()
    made.close()
    assert SECRET not in str(caught.value)
    return caught.value


@pytest.fixture
def listeners() -> Iterator[list[RawServer]]:
    made: list[RawServer] = []
    yield made
    for listener in made:
        listener.close()


def test_a_name_server_that_sends_to_a_broker_of_its_own_gets_signatures_and_never_the_key(
    listeners: list[RawServer],
) -> None:
    """A signature is of one request: whoever has it can repeat that request, and make no other."""
    listeners.append(RawServer(lambda connected: None))
    trap = listeners[0].address
    asked: list[Frame] = []

    def answer(peer: Peer, frame: Frame) -> None:
        asked.append(frame)
        route = {
            "brokerDatas": [{"brokerName": "trap", "cluster": "c", "brokerAddrs": {"0": trap}}],
            "queueDatas": [
                {"brokerName": "trap", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicSysFlag": 0}
            ],
        }
        peer.answer(frame, json.dumps(route).encode())

    with serving(answer) as server:
        made = source(server.address)
        try:
            queues = list(made.queues())
            reader = made.open(queues[0], made.start)
            reader.close()
        except HeadraceError as error:
            assert SECRET not in str(error)  # noqa: PT017
        made.close()
        sent = b"".join(repr(frame).encode() for frame in asked) + listeners[0].received
    assert any(frame.code == ROUTE_OF_TOPIC for frame in asked)
    assert listeners[0].received, "the client has asked the broker that it was sent to"
    assert b"Signature" in listeners[0].received
    for form in (SECRET.encode(), base64.b64encode(SECRET.encode()), SECRET.encode().hex().encode()):
        assert form not in sent


def huge(connected: socket.socket) -> None:
    connected.sendall(struct.pack(">i", 0x7FFFFFF0) + bytes(1024))
    connected.recv(1)


def header_longer_than_frame(connected: socket.socket) -> None:
    connected.sendall(struct.pack(">ii", 100, 0x00FFFFFF) + bytes(200))
    connected.recv(1)


def endless(connected: socket.socket) -> None:
    while True:
        connected.sendall(bytes(65536))


def cut(connected: socket.socket) -> None:
    connected.sendall(struct.pack(">ii", 100, 50) + bytes(10))


@pytest.mark.parametrize("answer", [huge, header_longer_than_frame, endless, cut], ids=lambda each: each.__name__)
def test_an_answer_that_is_none_is_given_up(
    answer: Callable[[socket.socket], None], listeners: list[RawServer]
) -> None:
    listeners.append(RawServer(answer))
    refused(source(listeners[0].address))
    assert listeners[0].received
    assert SECRET.encode() not in listeners[0].received


@pytest.mark.parametrize(
    "body",
    [
        b"", b"no json", b"[]", b'{"brokerDatas": 5}',
        b'{"brokerDatas": [{"brokerName": "x", "brokerAddrs": {"0": "127.0.0.1:1"}}], "queueDatas":'
        b' [{"brokerName": "x", "perm": 6, "readQueueNums": 2000000000, "writeQueueNums": 1}]}',
        b'{"brokerDatas": [{"brokerName": "x", "brokerAddrs": {"0": "no address"}}],'
        b' "queueDatas": [{"brokerName": "x", "perm": 6, "readQueueNums": 1}]}',
        b"[" * 100_000,
        b'{"' + b'\\"' * 1_000_000,
    ],
    ids=["empty", "no json", "a list", "a number", "many queues", "no address", "deep", "a string without end"],
)  # fmt: skip
def test_a_route_that_is_none_is_an_error_of_headrace(body: bytes) -> None:
    with serving(lambda peer, frame: peer.answer(frame, body)) as server:
        refused(source(server.address))
