"""Reading from a real broker, from given offsets on."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from headrace_rocketmq import Client, Filter, Message, MessageQueue, ReaderOptions
from headrace_rocketmq.errors import (
    BrokerError,
    ClientClosedError,
    ConfigurationError,
    FilterRejectedError,
    OffsetOutOfRangeError,
    TopicNotFoundError,
)

from tests.servers.fixtures import StartRocketMQServer
from tests.servers.rocketmq import RocketMQOptions

from .reading import bodies, bodies_by_queue, poll_messages, poll_until

SHORT = timedelta(milliseconds=50)


def fill(client: Client, queue: MessageQueue, count: int, start: int = 0) -> list[bytes]:
    """Messages numbered from `start` on."""
    sent = [b"%06d" % number for number in range(start, start + count)]
    client.send_many(queue.topic, [Message(body) for body in sent], queue=queue)
    return sent


@pytest.mark.parametrize("window", [1, 2, 16])
def test_everything_in_order_from_several_queues(client: Client, topic: str, window: int) -> None:
    queues = client.create_topic(topic, 4)
    sent = {queue: fill(client, queue, 700 + 100 * number) for number, queue in enumerate(queues)}
    reader = client.reader(dict.fromkeys(queues, 0), options=ReaderOptions(window=window))
    batches = poll_messages(reader, sum(map(len, sent.values())))
    assert bodies_by_queue(batches) == sent
    for queue in queues:
        offsets = [offset for batch in batches if batch.queue == queue for offset in batch.offsets.tolist()]
        assert offsets == list(range(len(sent[queue])))
        assert reader.position(queue) == len(sent[queue])


@pytest.mark.parametrize("max_messages", [1, 31, 33])
def test_never_more_than_asked_for(client: Client, topic: str, max_messages: int) -> None:
    queues = client.create_topic(topic, 2)
    sent = {queue: fill(client, queue, 120) for queue in queues}
    reader = client.reader(dict.fromkeys(queues, 0))
    position = dict.fromkeys(queues, 0)
    received: dict[MessageQueue, list[bytes]] = {queue: [] for queue in queues}
    while received != sent:
        batches = reader.poll(max_messages, timedelta(seconds=10))
        assert 1 <= sum(map(len, batches)) <= max_messages
        assert len({batch.queue for batch in batches}) == len(batches)
        for batch in batches:
            received[batch.queue] += batch.bodies
            assert batch.offsets[0] == position[batch.queue]
            position[batch.queue] = batch.next_offset
            assert batch.next_offset == len(received[batch.queue]) == reader.position(batch.queue)


def test_large_messages_of_which_a_broker_gives_few_at_a_time(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    sizes = [200_000, 10, 60_000, 60_000, 60_000, 60_000, 60_000, 10] * 8
    client.send_many(topic, [Message(b"%03d" % number + bytes(size)) for number, size in enumerate(sizes)], queue=queue)
    batches = poll_messages(client.reader({queue: 0}), len(sizes))
    assert [int(body[:3]) for body in bodies(batches)] == list(range(len(sizes)))


def test_a_range_of_offsets(client: Client, topic: str) -> None:
    queues = client.create_topic(topic, 2)
    sent = {queue: fill(client, queue, 500) for queue in queues}
    reader = client.reader()
    reader.add(queues[0], 100, end_offset=333)
    reader.add(queues[1], 499, end_offset=500)
    batches = poll_until(reader, lambda _: all(map(reader.is_finished, queues)))
    assert bodies_by_queue(batches) == {queues[0]: sent[queues[0]][100:333], queues[1]: sent[queues[1]][499:]}
    assert reader.poll(10, timedelta(hours=1)) == []  # at once: nothing can come


def test_a_range_that_ends_in_the_future(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    sent = fill(client, queue, 10)
    reader = client.reader()
    reader.add(queue, 0, end_offset=15)
    received = bodies(poll_messages(reader, 10))
    sent += fill(client, queue, 20, start=10)
    received += bodies(poll_until(reader, lambda _: reader.is_finished(queue)))
    assert received == sent[:15]


def test_a_new_message_wakes_a_reader_that_waits(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    reader = client.reader({queue: 0})
    assert reader.poll(10, SHORT) == []
    received: list[bytes] = []
    waiting = threading.Thread(target=lambda: received.extend(bodies(reader.poll(10, timedelta(hours=1)))))
    waiting.start()
    client.send(topic, Message(b"news"))
    waiting.join()
    assert received == [b"news"]


def test_seeking(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    sent = fill(client, queue, 200)
    reader = client.reader({queue: 150})
    assert bodies(poll_messages(reader, 50)) == sent[150:]
    reader.seek(queue, 10)
    assert reader.position(queue) == 10
    assert bodies(poll_messages(reader, 190, max_messages=7)) == sent[10:]


def test_adding_and_removing_queues(client: Client, topic: str) -> None:
    first, second = client.create_topic(topic, 2)
    sent = {queue: fill(client, queue, 10) for queue in (first, second)}
    reader = client.reader({first: 0})
    poll_messages(reader, 10)
    reader.add(second, 5)
    reader.remove(first)
    fill(client, first, 1)
    assert bodies(poll_messages(reader, 5)) == sent[second][5:]
    assert reader.poll(10, SHORT) == []
    assert reader.queues == [second]


def test_a_reader_without_queues_gives_nothing_at_once(client: Client) -> None:
    assert client.reader().poll(10, timedelta(seconds=30)) == []


def test_filtering_by_tags(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    tags = ["red", "green", "blue", None, "Aa", "BB"]
    client.send_many(topic, [Message(b"%d" % number, tag=tags[number % 6]) for number in range(600)], queue=queue)
    reader = client.reader({queue: 0}, message_filter=Filter.by_tags("red", "Aa"))
    batches = poll_until(reader, lambda _: reader.position(queue) == 600)
    assert [int(body) for body in bodies(batches)] == [number for number in range(600) if number % 6 in (0, 4)]


def test_filtering_by_a_condition(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    messages = [
        Message(b"%d" % number, tag="t", properties={"amount": str(number), "region": "eu" if number % 2 else "us"})
        for number in range(300)
    ]
    client.send_many(topic, messages, queue=queue)
    condition = "amount > 100 AND region = 'eu' AND TAGS = 't'"
    reader = client.reader({queue: 0}, message_filter=Filter.by_sql(condition))
    batches = poll_until(reader, lambda _: reader.position(queue) == 300)
    assert [int(body) for body in bodies(batches)] == list(range(101, 300, 2))


def test_a_filter_that_nothing_meets_moves_on(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    fill(client, queue, 3000)
    reader = client.reader({queue: 0}, message_filter=Filter.by_tags("none"))
    batches = poll_until(reader, lambda _: reader.position(queue) == 3000)
    assert bodies(batches) == []
    assert batches[-1].next_offset == 3000


def test_a_condition_that_does_not_parse(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    with pytest.raises(FilterRejectedError, match="a >>> 1"):
        client.reader({queue: 0}, message_filter=Filter.by_sql("a >>> 1"))
    with pytest.raises(FilterRejectedError, match="a >>> 1"):
        client.consumer("group", topic, message_filter=Filter.by_sql("a >>> 1"))


def test_a_broker_that_does_not_filter_by_conditions(start_rocketmq_server: StartRocketMQServer, topic: str) -> None:
    server = start_rocketmq_server(RocketMQOptions(config={"enablePropertyFilter": "false"}))
    with Client(server.name_server) as client:
        (queue,) = client.create_topic(topic, 1)
        with pytest.raises(FilterRejectedError, match="does not support"):
            client.reader({queue: 0}, message_filter=Filter.by_sql("a > 1"))


def test_an_offset_beyond_the_end(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    sent = fill(client, queue, 10)
    reader = client.reader({queue: 50})
    with pytest.raises(OffsetOutOfRangeError, match="offsets 0 to 10") as caught:
        reader.poll(1, timedelta(seconds=10))
    assert (caught.value.offset, caught.value.suggested) == (50, 10)
    reader.seek(queue, 9)
    assert bodies(poll_messages(reader, 1)) == sent[9:]


def test_an_offset_beyond_the_end_followed_to_the_end(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    fill(client, queue, 10)
    reader = client.reader({queue: 50}, options=ReaderOptions(out_of_range="follow"))
    poll_until(reader, lambda _: reader.position(queue) == 10)
    client.send(topic, Message(b"new"))
    assert bodies(poll_messages(reader, 1)) == [b"new"]


def test_a_queue_that_does_not_exist(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    reader = client.reader({MessageQueue(topic, queue.broker_name, 7): 0})
    with pytest.raises(BrokerError, match=r"queueId\[7\] is illegal"):
        reader.poll(1, timedelta(seconds=10))


def test_a_topic_that_does_not_exist(client: Client, topic: str) -> None:
    reader = client.reader({MessageQueue(topic, "broker-0", 0): 0})
    with pytest.raises(TopicNotFoundError, match=topic):
        reader.poll(1, timedelta(seconds=10))


def test_trouble_with_one_queue_does_not_hide_the_messages_of_another(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    sent = fill(client, queue, 10)
    reader = client.reader({queue: 0, MessageQueue(topic, queue.broker_name, 7): 0})
    received: list[bytes] = []

    def poll_on() -> None:
        while True:
            received.extend(bodies(reader.poll(1, timedelta(seconds=10))))

    with pytest.raises(BrokerError, match="illegal"):
        poll_on()
    reader.remove(MessageQueue(topic, queue.broker_name, 7))
    while len(received) < 10:
        received += bodies(reader.poll(10, timedelta(seconds=10)))
    assert received == sent


def test_closing_wakes_a_poll(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1)
    reader = client.reader({queue: 0})
    closing = threading.Timer(0.1, reader.close)
    closing.start()
    with pytest.raises(ClientClosedError):
        reader.poll(1, timedelta(seconds=30))
    closing.join()


def test_a_broker_with_another_limit_per_pull(start_rocketmq_server: StartRocketMQServer, topic: str) -> None:
    server = start_rocketmq_server(RocketMQOptions(config={"maxTransferCountOnMessageInMemory": "7"}))
    with Client(server.name_server) as client:
        (queue,) = client.create_topic(topic, 1)
        sent = fill(client, queue, 500)
        assert bodies(poll_messages(client.reader({queue: 0}), 500)) == sent


def test_a_topic_whose_batches_are_stored_as_one(client: Client, topic: str) -> None:
    (queue,) = client.create_topic(topic, 1, attributes={"queue.type": "BatchCQ"})
    sent = fill(client, queue, 100)
    batches = poll_messages(client.reader({queue: 30}), 70)
    assert bodies(batches) == sent[30:]
    assert [offset for batch in batches for offset in batch.offsets.tolist()] == list(range(30, 100))


@pytest.mark.parametrize("option", ["window", "pull_messages_max", "body_bytes_max"])
def test_options_that_cannot_be(option: str) -> None:
    with pytest.raises(ConfigurationError, match=option):
        ReaderOptions(**{option: 0})  # type: ignore[arg-type]


def test_a_poll_for_no_messages_is_a_mistake(client: Client) -> None:
    with pytest.raises(ConfigurationError, match="max_messages"):
        client.reader().poll(0, SHORT)
