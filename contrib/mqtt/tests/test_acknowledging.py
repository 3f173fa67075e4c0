"""When messages are acknowledged, without a broker: never by another connection than the one that brought them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from headrace_mqtt.listener import MqttListener, _Waiting
from headrace_mqtt.settings import MqttSourceSettings
from paho.mqtt.client import ConnectFlags, MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

LOST = ReasonCode(PacketTypes.DISCONNECT, "Unspecified error")
GOOD = ReasonCode(PacketTypes.CONNACK, "Success")


class Client:
    """Notes what is acknowledged, and lets something happen before that."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.before: Callable[[], None] = lambda: None

    def ack(self, mid: int, qos: int) -> None:
        self.before()
        self.acknowledged.append(mid)

    def subscribe(self, topics: Any) -> None:
        """The broker sends again what it has."""


@pytest.fixture
def listener(tmp_path: Any) -> MqttListener:
    made = MqttListener.__new__(MqttListener)
    made._settings = MqttSourceSettings.of({"topic": "a", "buffer": str(tmp_path)}, plugin="mqtt")
    made._changed, made._waiting, made._connection = threading.Condition(), deque(), 0
    made._client = Client()  # type: ignore[assignment]
    return made


def connect(listener: MqttListener, *, session: bool = True) -> None:
    listener._connected(listener._client, None, ConnectFlags(session), GOOD, None)


def message(listener: MqttListener, mid: int) -> _Waiting:
    made = MQTTMessage(mid=mid, topic=b"a")
    made.qos = 1
    return _Waiting(made, listener._connection, {}, 1)


def test_nothing_is_acknowledged_after_its_connection(listener: MqttListener) -> None:
    client: Any = listener._client
    connect(listener)
    first = message(listener, 1)
    listener._acknowledge([first])
    assert client.acknowledged == [1]
    second = message(listener, 2)
    listener._disconnected(client, None, None, LOST, None)
    listener._acknowledge([second])  # before the next connection, whose first packets these would be
    connect(listener)
    listener._acknowledge([second])
    assert client.acknowledged == [1]
    again = message(listener, 2)
    listener._acknowledge([again])
    assert client.acknowledged == [1, 2]


def test_no_connection_ends_while_a_group_is_acknowledged(listener: MqttListener) -> None:
    client: Any = listener._client
    connect(listener)
    group = [message(listener, mid) for mid in (1, 2)]
    ended = threading.Event()

    def end() -> None:
        listener._disconnected(client, None, None, LOST, None)
        ended.set()

    ending = threading.Thread(target=end)
    client.before = lambda: None if ending.ident else ending.start()
    listener._acknowledge(group)
    ending.join()
    assert ended.is_set()
    assert client.acknowledged == [1, 2]
    listener._acknowledge(group)
    assert client.acknowledged == [1, 2]
