"""The contract suite for source and sink, with a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import headrace as hr
import pytest
from headrace_contract import SinkContract, SourceContract
from headrace_mqtt import MqttSink, MqttSource
from mqtt_world import Sender, Subscriber, Taking, make_sink, make_source

from tests.eventually import eventually
from tests.servers.mosquitto import MosquittoServer

pytestmark = pytest.mark.servers


class TestMqttSource(SourceContract):
    """A topic per check. Records are written by a job that listens for a moment."""

    plugin = "mqtt"
    several_queues = False
    odd_bodies = (*SourceContract.odd_bodies, b"", b"two\nlines\r\n")
    many_writes = 8

    @pytest.fixture(autouse=True)
    def _server(self, mosquitto_server: MosquittoServer) -> None:
        self.server = mosquitto_server

    def make_source(self) -> MqttSource:
        return make_source(self.server, self.tmp_path, self.unique_name)

    def make_with_secret(self, secret: str) -> MqttSource:
        return make_source(self.server, self.tmp_path, self.unique_name, password=secret)

    def add_queue(self) -> str:
        return "buffer"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        ready = f"{self.unique_name}/ready"
        listening = Taking(make_source(self.server, self.tmp_path, self.unique_name))
        sender = Sender(self.server)
        try:
            before = listening.log.latest
            codes = sender.send(self.unique_name, [bodies[0]])
            while codes[0] == 0x10:  # nobody has subscribed yet
                codes = sender.send(self.unique_name, [bodies[0]])
            sender.send(self.unique_name, bodies[1:])
            eventually(lambda: listening.log.latest == before + len(bodies), f"they are stored {ready}")
        finally:
            sender.close()
            listening.close()

    def forget(self, queue: str, before: int) -> None:
        source = self.make_source()
        source.open(hr.Queue(queue), hr.EARLIEST)
        source.stored({hr.Queue(queue): hr.ReadPosition(before)})
        source.close()


class TestMqttSink(SinkContract):
    plugin = "mqtt"

    @pytest.fixture(autouse=True)
    def _server(self, request: pytest.FixtureRequest) -> Iterator[None]:
        own = "outage" in request.node.name
        self.server: MosquittoServer = request.getfixturevalue("start_mosquitto_server" if own else "mosquitto_server")
        if own:
            self.server = self.server()
        self.subscriber = Subscriber(self.server, self.unique_name)
        yield
        self.subscriber.close()

    def make_sink(self) -> MqttSink:
        return make_sink(self.server, topic=self.unique_name)

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        """Return what came before a message that is sent now."""
        sender, mark = Sender(self.server), b"end"
        seen = self.subscriber.payloads().count(mark)
        sender.send(self.unique_name, [mark])
        eventually(lambda: self.subscriber.payloads().count(mark) > seen, "the last message comes")
        sender.close()
        return [json.loads(payload) for payload in self.subscriber.payloads() if payload != mark]

    def begin_outage(self) -> None:
        self.server.stop()

    def end_outage(self) -> None:
        self.server.start()
        self.subscriber.wait_for_subscription()

    def make_with_secret(self, secret: str) -> MqttSink:
        return make_sink(self.server, topic=self.unique_name, password=secret)
