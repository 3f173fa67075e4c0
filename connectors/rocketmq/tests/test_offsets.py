"""Offsets and commits, asked of a real broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from headrace_rocketmq import Client, Message, MessageQueue
from headrace_rocketmq.errors import ConfigurationError, GroupNotFoundError, TopicNotFoundError

from tests.eventually import eventually

from .reading import poll_messages


def test_the_ends_of_queues(client: Client, topic: str) -> None:
    queues = client.create_topic(topic, 3)
    client.send_many(topic, [Message(b"x")] * 7, queue=queues[1])
    assert client.earliest_offsets(queues) == dict.fromkeys(queues, 0)
    eventually(lambda: client.latest_offsets(queues)[queues[1]] == 7, "all seven in the queue")
    assert client.latest_offsets(queues) == {queues[0]: 0, queues[1]: 7, queues[2]: 0}
    assert client.latest_offsets([]) == {}


def test_committed_offsets(client: Client, topic: str, consumer_group: str) -> None:
    queues = client.create_topic(topic, 3)
    client.create_group(consumer_group)
    client.send_many(topic, [Message(b"x")] * 7, queue=queues[1])
    assert client.committed_offsets(consumer_group, queues) == dict.fromkeys(queues)
    client.commit_offsets(consumer_group, {queues[1]: 5, queues[2]: 0})
    assert client.committed_offsets(consumer_group, queues) == {queues[0]: None, queues[1]: 5, queues[2]: 0}
    client.commit_offsets(consumer_group, {queues[1]: 2})
    assert client.committed_offsets(consumer_group, [queues[1]]) == {queues[1]: 2}


def test_committing_for_a_group_that_nobody_made(client: Client, topic: str, consumer_group: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    with pytest.raises(GroupNotFoundError, match=consumer_group):
        client.commit_offsets(consumer_group, {queue: 1})


def test_offsets_at_a_moment(client: Client, topic: str) -> None:
    queues = client.create_topic(topic, 2)
    client.send_many(topic, [Message(b"early")] * 5, queue=queues[0])
    # The broker's clock decides, in milliseconds; so wait for the next one.
    stored_ms = poll_messages(client.reader({queues[0]: 0}), 5)[-1].store_timestamps_ms[-1]
    moment = datetime.fromtimestamp(stored_ms / 1000, UTC) + timedelta(milliseconds=1)
    eventually(lambda: datetime.now(UTC) > moment, "the next millisecond")
    client.send_many(topic, [Message(b"late")] * 5, queue=queues[0])
    eventually(lambda: client.latest_offsets(queues)[queues[0]] == 10, "both in the queue")
    assert client.offsets_at(queues, moment) == {queues[0]: 5, queues[1]: 0}
    assert client.offsets_at(queues, datetime(2000, 1, 1, tzinfo=UTC)) == {queues[0]: 0, queues[1]: 0}
    assert client.offsets_at(queues[:1], datetime.now(UTC) + timedelta(days=1)) == {queues[0]: 10}


def test_a_moment_without_a_time_zone_is_refused(client: Client, topic: str) -> None:
    queues = client.create_topic(topic, 1)
    with pytest.raises(ConfigurationError, match="time zone"):
        client.offsets_at(queues, datetime(2000, 1, 1))


def test_an_unknown_topic(client: Client, topic: str) -> None:
    with pytest.raises(TopicNotFoundError, match=topic):
        client.latest_offsets([MessageQueue(topic, "broker-0", 0)])
