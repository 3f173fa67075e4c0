"""Sending to a real broker."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from headrace_rocketmq import Client, Compression, Message, MessageQueue, SendStatus
from headrace_rocketmq.errors import (
    BrokerError,
    InvalidMessageError,
    MessageRejectedError,
    TopicNotFoundError,
)
from headrace_rocketmq.filters import java_string_hash

from tests.servers.rocketmq import RocketMQServer

from .reading import bodies, bodies_by_queue, poll_messages


def test_one_message_with_all_its_parts(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    before_ms = time.time() * 1000
    message = Message(b"body", tag="red", keys=["k1", "k2"], properties={"name": "wörth", "n": "5"}, flag=42)
    result = client.send(topic, message)
    assert (result.queue, result.offset, result.status) == (queue, 0, SendStatus.STORED)
    (batch,) = poll_messages(client.reader({queue: 0}), 1)
    properties = batch.properties(0)
    assert batch.bodies == [b"body"]
    assert batch.tags() == ["red"]
    assert batch.keys() == ["k1 k2"]
    assert (properties["name"], properties["n"]) == ("wörth", "5")
    assert properties["UNIQ_KEY"] == result.unique_id
    assert batch.flags.tolist() == [42]
    assert batch.offsets.tolist() == [0]
    assert batch.reconsume_times.tolist() == [0]
    after_ms = time.time() * 1000
    assert before_ms - 1 <= batch.born_timestamps_ms[0] <= after_ms
    assert before_ms - 1 <= batch.store_timestamps_ms[0] <= after_ms
    assert (batch.next_offset, batch.earliest_offset, batch.latest_offset) == (1, 0, 1)


def test_a_chosen_queue(client: Client, topic: str) -> None:
    queues = client.create_topic(topic, 4)
    for queue in queues:
        assert client.send(topic, Message(b"x"), queue=queue).queue == queue
    results = client.send_many(topic, [Message(b"y")] * 3, queue=queues[2])
    assert [(result.queue, result.offset) for result in results] == [(queues[2], offset) for offset in (1, 2, 3)]


def test_queues_in_turn(client: Client, topic: str) -> None:
    queues = client.create_topic(topic, 4)
    used = Counter(client.send(topic, Message(b"x")).queue for _ in range(8))
    assert used == dict.fromkeys(queues, 2)


def test_equal_keys_share_a_queue_that_java_producers_would_choose(client: Client, topic: str) -> None:
    queues = client.create_topic(topic, 4)
    keys = [f"order-{number}" for number in range(40)]
    singly = {key: client.send(topic, Message(b"x", queue_key=key)).queue for key in keys}
    together = client.send_many(topic, [Message(b"x", queue_key=key) for key in keys])
    assert [result.queue for result in together] == [singly[key] for key in keys]
    assert singly == {key: queues[abs(java_string_hash(key)) % 4] for key in keys}
    assert set(singly.values()) == set(queues)
    assert client.queue_for_key(topic, keys[0]) == singly[keys[0]]


def test_many_messages_keep_order_and_parts(rocketmq_server: RocketMQServer, topic: str) -> None:
    with Client(rocketmq_server.name_server, batch_bytes_max=10_000) as client:
        queues = client.create_topic(topic, 3)
        messages = [
            Message(b"%06d" % number, queue_key=f"k{number % 10}", tag=f"t{number % 2}", flag=number)
            for number in range(5000)
        ]
        results = client.send_many(topic, messages)
        batches = poll_messages(client.reader(dict.fromkeys(queues, 0)), 5000)
    received = bodies_by_queue(batches)
    assert received == {
        queue: [message.body for message in messages if client.queue_for_key(topic, message.queue_key or "") == queue]
        for queue in queues
    }
    places = {
        (batch.queue, offset): (body, flag, tag)
        for batch in batches
        for offset, body, flag, tag in zip(batch.offsets.tolist(), batch.bodies, batch.flags, batch.tags(), strict=True)
    }
    for message, result in zip(messages, results, strict=True):
        assert places[result.queue, result.offset] == (message.body, message.flag, message.tag)


def test_many_messages_for_any_queue_are_spread(rocketmq_server: RocketMQServer, topic: str) -> None:
    with Client(rocketmq_server.name_server, batch_bytes_max=1000) as client:
        queues = client.create_topic(topic, 4)
        results = client.send_many(topic, [Message(b"x" * 50)] * 200)
        assert {result.queue for result in results} == set(queues)
        assert len({(result.queue, result.offset) for result in results}) == 200


def test_no_messages_at_all(client: Client, topic: str) -> None:
    client.create_topic(topic, 1)
    assert client.send_many(topic, []) == []


def test_sending_without_waiting(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    futures = [client.send_async(topic, Message(b"%d" % number)) for number in range(1000)]
    offsets = [future.result(30).offset for future in futures]
    assert sorted(offsets) == list(range(1000))
    received = bodies(poll_messages(client.reader({queue: 0}), 1000))
    assert [received[offset] for offset in offsets] == [b"%d" % number for number in range(1000)]


def test_errors_of_sending_without_waiting_come_by_the_future(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    future = client.send_async(topic, Message(b"x"), queue=MessageQueue(topic, queue.broker_name, 99))
    with pytest.raises(BrokerError, match="99"):
        future.result(30)


def test_sending_one_way(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    for number in range(3):
        client.send_one_way(topic, Message(b"%d" % number))
    assert sorted(bodies(poll_messages(client.reader({queue: 0}), 3))) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("kind", list(Compression))
def test_packed_bodies(rocketmq_server: RocketMQServer, topic: str, kind: Compression) -> None:
    with Client(rocketmq_server.name_server, compression=kind, compress_over_bytes=100) as client:
        (queue,) = client.create_topic(topic, 1)
        client.send(topic, Message(b"abc" * 100_000))
        client.send(topic, Message(b"small"))
        batches = poll_messages(client.reader({queue: 0}), 2)
        assert bodies(batches) == [b"abc" * 100_000, b"small"]
        assert [batch.errors for batch in batches if batch.errors] == []


def test_a_message_too_large_for_a_batch_goes_alone(rocketmq_server: RocketMQServer, topic: str) -> None:
    with Client(rocketmq_server.name_server, batch_bytes_max=1000) as client:
        (queue,) = client.create_topic(topic, 1)
        sizes = [10, 5000, 20, 900, 900, 4000]
        results = client.send_many(topic, [Message(b"x" * size) for size in sizes], queue=queue)
        assert [result.offset for result in results] == list(range(6))
        assert [len(body) for body in bodies(poll_messages(client.reader({queue: 0}), 6))] == sizes


def test_a_message_larger_than_the_broker_takes(client: Client, topic: str) -> None:
    client.create_topic(topic, 1)
    with pytest.raises(MessageRejectedError, match="4194304"):
        client.send(topic, Message(bytes(5 * 1024 * 1024)))
    assert client.send(topic, Message(b"the connection lives on")).offset == 0


def test_an_unknown_topic_is_not_made(client: Client, topic: str) -> None:
    with pytest.raises(TopicNotFoundError, match=topic):
        client.send(topic, Message(b"x"))
    with pytest.raises(TopicNotFoundError, match="create_topic"):
        client.send_many(topic, [Message(b"x")])


def test_a_topic_deleted_behind_our_back(client: Client, rocketmq_server: RocketMQServer, topic: str) -> None:
    client.create_topic(topic, 1)
    client.send(topic, Message(b"x"))
    with Client(rocketmq_server.name_server) as other:
        other.delete_topic(topic)
    with pytest.raises(TopicNotFoundError, match=topic):
        client.send(topic, Message(b"x"))


def test_a_queue_of_another_topic_is_refused(client: Client, topic: str) -> None:
    client.create_topic(topic, 1)
    with pytest.raises(InvalidMessageError, match="not a queue of topic"):
        client.send(topic, Message(b"x"), queue=MessageQueue("other", "broker-0", 0))


def test_delayed_messages_are_refused_in_a_batch_and_nothing_is_sent(client: Client, topic: str) -> None:
    queues = client.create_topic(topic, 1)
    with pytest.raises(InvalidMessageError, match="delayed"):
        client.send_many(topic, [Message(b"x"), Message(b"y", delay_level=1)])
    assert client.latest_offsets(queues) == dict.fromkeys(queues, 0)


@pytest.mark.parametrize("way", ["level", "delay", "deliver_at"])
def test_delayed_messages_come_later(client: Client, topic: str, way: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    message = {
        "level": Message(b"later", delay_level=1),
        "delay": Message(b"later", delay=timedelta(seconds=1.5)),
        "deliver_at": Message(b"later", deliver_at=datetime.now(UTC) + timedelta(seconds=1.5)),
    }[way]
    sent_at = time.monotonic()
    client.send(topic, message)
    client.send(topic, Message(b"now"))
    batches = poll_messages(client.reader({queue: 0}), 2)
    assert bodies(batches) == [b"now", b"later"]
    assert time.monotonic() - sent_at > 0.9
