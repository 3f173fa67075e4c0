"""Sources and sinks of a test broker, and other clients of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.flow.messages import Bodies
from headrace_buffer import RecordLog
from headrace_mqtt import MqttSink, MqttSinkSettings, MqttSource, MqttSourceSettings
from headrace_mqtt.publisher import Publisher
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.eventually import eventually
from tests.servers.mosquitto import MosquittoServer

#: What a broker says of a message that nobody has subscribed to.
_NO_SUBSCRIBERS = 0x10


def login(server: MosquittoServer) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}


def make_source(server: MosquittoServer, directory: Path, topic: str, **options: Any) -> MqttSource:
    given = {
        "topic": topic,
        "buffer": str(directory / "buffer"),
        "client_id": f"reads-{topic}",
        **login(server),
        **options,
    }
    return MqttSource(MqttSourceSettings.of(given, plugin="mqtt"))


def make_sink(server: MosquittoServer, **options: Any) -> MqttSink:
    return MqttSink(MqttSinkSettings.of({**login(server), **options}, plugin="mqtt"))


class Sender:
    """Publishes messages, and knows which the broker has acknowledged."""

    def __init__(self, server: MosquittoServer, **options: Any) -> None:
        given = {"topic": "unused", **login(server), **options}
        self._publisher = Publisher(MqttSinkSettings.of(given, plugin="mqtt"))

    def send(self, topic: str, payloads: Sequence[bytes]) -> list[int]:
        """Return what the broker says of each message."""
        outcomes = dict(self._publisher.publish([(topic, payload) for payload in payloads]))
        return [outcomes[at].value for at in range(len(payloads))]

    def wait_for_subscriber(self, topic: str) -> None:
        """Publish empty messages to a topic of their own until somebody gets them."""
        eventually(lambda: self.send(topic, [b""])[0] != _NO_SUBSCRIBERS, f"somebody subscribes to {topic}")

    def close(self) -> None:
        self._publisher.close()


class Taking:
    """A source that is open, with its log."""

    def __init__(self, source: MqttSource) -> None:
        self.source = source
        self.reader = source.open(hr.Queue("buffer"), hr.EARLIEST)
        assert source._shared is not None
        self.log: RecordLog = source._shared.log

    def stored(self) -> list[bytes]:
        found = self.log.read(self.log.earliest, 1_000_000)
        return [] if found is None else list(Bodies.__iter__(found.bodies))

    def headers(self) -> list[dict[str, bytes]]:
        found = self.log.read(self.log.earliest, 1_000_000)
        return [] if found is None or found.headers is None else [dict(each) for each in found.headers]

    def close(self) -> None:
        self.source.close()


class Subscriber:
    """Gets the messages of a topic filter, from when it is made."""

    def __init__(self, server: MosquittoServer, topic: str) -> None:
        self.messages: list[MQTTMessage] = []
        self._subscribed = subscribed = threading.Event()
        self._client = client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        client.username_pw_set(server.user, server.password)
        client.on_message = lambda client, _, message: self.messages.append(message)
        client.on_connect = lambda client, *_: client.subscribe(topic, qos=1) and None
        client.on_disconnect = lambda *_: subscribed.clear()
        client.reconnect_delay_set(1, 1)
        client.on_subscribe = lambda *_: subscribed.set()
        client.connect(server.host, server.port)
        client.loop_start()
        self.wait_for_subscription()

    def wait_for_subscription(self) -> None:
        assert self._subscribed.wait(60)

    def payloads(self) -> list[bytes]:
        return [bytes(message.payload) for message in self.messages]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@contextmanager
def closing_all() -> Iterator[Callable[[Any], Any]]:
    """Give a function that takes what is to be closed at the end, and returns it."""
    made: list[Any] = []

    def take(each: Any) -> Any:
        made.append(each)
        return each

    try:
        yield take
    finally:
        for each in reversed(made):
            each.close()
