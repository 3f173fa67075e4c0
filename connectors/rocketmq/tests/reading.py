"""What tests against brokers share: reading until enough has come, and the server of a contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from headrace_rocketmq import Client, Consumer, Message, MessageBatch, MessageQueue, Reader
from headrace_rocketmq.errors import TopicNotFoundError

from tests.eventually import eventually
from tests.servers.rocketmq import RocketMQServer

PATIENCE_S = 30.0
"""How long a loaded machine may take for what should take a moment."""


def poll_until(
    source: Reader | Consumer, is_enough: Callable[[list[MessageBatch]], bool], max_messages: int = 1000
) -> list[MessageBatch]:
    """All batches, once they are enough."""
    batches: list[MessageBatch] = []

    def look() -> bool:
        if not is_enough(batches):
            batches.extend(source.poll(max_messages, timedelta(seconds=1)))
        return is_enough(batches)

    eventually(look, "enough has come", shown=lambda: batches)
    return batches


def poll_messages(source: Reader | Consumer, count: int, max_messages: int = 1000) -> list[MessageBatch]:
    """All batches, once they hold `count` messages."""
    batches = poll_until(source, lambda batches: sum(map(len, batches)) >= count, max_messages)
    assert sum(map(len, batches)) == count
    return batches


def bodies(batches: list[MessageBatch]) -> list[bytes]:
    """The bodies of batches, as they came."""
    return [body for batch in batches for body in batch.bodies]


def bodies_by_queue(batches: list[MessageBatch]) -> dict[MessageQueue, list[bytes]]:
    """The bodies of each queue, as they came."""
    found: dict[MessageQueue, list[bytes]] = {}
    for batch in batches:
        found.setdefault(batch.queue, []).extend(batch.bodies)
    return found


def settle(client: Client, topic: str = "settled") -> None:
    """Wait until everything that the only broker has acknowledged can be read, in all topics.

    A broker enters messages into queues a moment after it has acknowledged them; it does so in the order of their arrival,
    so that one more message of any topic tells when those before it are there.
    """
    try:
        sent = client.send(topic, Message(b"settled"))
    except TopicNotFoundError:
        client.create_topic(topic, 1)
        sent = client.send(topic, Message(b"settled"))
    eventually(lambda: client.latest_offsets([sent.queue])[sent.queue] > sent.offset, "the broker has caught up")


class ServedByRocketMQ:
    """Base of contracts: the shared server, and for checks of outages one that may be killed."""

    server: RocketMQServer
    client: Client

    @pytest.fixture(autouse=True)
    def _server(self, request: pytest.FixtureRequest) -> Iterator[None]:
        is_mortal = "outage" in request.node.name
        self.server = (
            request.getfixturevalue("start_rocketmq_server")()
            if is_mortal
            else request.getfixturevalue("rocketmq_server")
        )
        with Client(self.server.name_server, timeout=timedelta(seconds=60)) as self.client:
            yield

    def begin_outage(self) -> None:
        self.server.kill()

    def end_outage(self) -> None:
        self.server.start()
