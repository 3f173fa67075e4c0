"""The contract suite for the RocketMQ source, on a real broker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from headrace_contract import GroupSourceContract, SourceContract
from headrace_contract.source_harness import SourceHarness
from headrace_rocketmq import Message, MessageQueue
from headrace_rocketmq.settings import RocketMQSourceSettings
from headrace_rocketmq.source import RocketMQSource

from tests.eventually import eventually

from .reading import ServedByRocketMQ

pytestmark = pytest.mark.servers


class RocketMQWorld(ServedByRocketMQ, SourceHarness):
    """A topic per check, its message queues as queues."""

    plugin = "rocketmq"

    def begin(self, tmp_path: Any) -> None:
        super().begin(tmp_path)
        self.count = 0

    def make(self, **options: Any) -> RocketMQSource:
        given = {
            "topic": self.unique_name,
            "name_servers": self.server.name_server,
            "request_timeout": "3 s",
            **options,
        }
        return RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq"))

    def make_source(self) -> RocketMQSource:
        return self.make()

    def add_queue(self) -> str:
        self.count += 1
        return str(self.client.create_topic(self.unique_name, self.count)[-1])

    def remove_queue(self, queue: str) -> None:
        assert queue.endswith(f"/{self.count - 1}"), "only the last one can go"
        self.count -= 1
        self.client.create_topic(self.unique_name, self.count)

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        if not bodies:
            return
        topic, broker, number = queue.split("/")
        target = MessageQueue(topic, broker, int(number))
        results = self.client.send_many(topic, [Message(body) for body in bodies], queue=target)
        eventually(lambda: self.client.latest_offsets([target])[target] > results[-1].offset, "what was sent is there")

    def make_missing_source(self) -> RocketMQSource:
        return self.make(topic="no_such_topic")

    def make_with_secret(self, secret: str) -> RocketMQSource:
        return self.make(name_servers="127.0.0.1:1", request_timeout="300 ms", access_key="u", secret_key=secret)


class TestRocketMQSource(RocketMQWorld, SourceContract):
    """Each queue by itself."""

    odd_bodies = (*SourceContract.odd_bodies, b"two\nlines\r\n")  # RocketMQ knows no empty bodies


class TestRocketMQGroup(RocketMQWorld, GroupSourceContract):
    """Instances that share queues."""

    patience = timedelta(seconds=60)
    #: Each instance shares out the queues by itself, from the list of instances that the broker gives.
    hands_over_in_turn = False


class TestDeduplicatingSource(TestRocketMQSource):
    """Messages that no sink of ours wrote are left alone."""

    def make_source(self) -> RocketMQSource:
        return self.make(deduplicate=True)
