"""Reads until enough has come; for tests against brokers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from headrace_rocketmq import Client, Consumer, Message, MessageBatch, MessageQueue, Reader
from headrace_rocketmq.errors import TopicNotFoundError

from tests.eventually import eventually

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
