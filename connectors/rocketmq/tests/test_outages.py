"""Brokers and name servers that stop, die and come back: it costs time, never a message."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
from headrace_rocketmq import Client, Message, MessageQueue, ReaderOptions
from headrace_rocketmq.errors import (
    ConnectionFailedError,
    QueueUnavailableError,
    RequestTimeoutError,
    RocketMQError,
)

from tests.eventually import eventually
from tests.servers.fixtures import StartRocketMQServer
from tests.servers.rocketmq import RocketMQOptions, RocketMQServer
from tests.servers.sharing import own_server

from .reading import bodies, bodies_by_queue, poll_messages, poll_until

pytestmark = pytest.mark.servers  # it starts them without the fixtures that are marked
SHORT, LONG = timedelta(seconds=2), timedelta(seconds=60)


@pytest.fixture(scope="module")
def mortal_server() -> Iterator[RocketMQServer]:
    """A server of this module's own."""
    with own_server(RocketMQServer) as server:
        yield server


@pytest.fixture
def server(mortal_server: RocketMQServer) -> RocketMQServer:
    """A server that runs, and that the test may kill."""
    mortal_server.start()
    return mortal_server


@pytest.fixture
def patient(server: RocketMQServer) -> Iterator[Client]:
    """A client that waits longer than a broker takes to come back."""
    with Client(server.name_server, timeout=LONG) as client:
        yield client


def numbered(start: int, count: int) -> list[Message]:
    return [Message(b"%d" % number, queue_key=str(number)) for number in range(start, start + count)]


def test_a_reader_goes_on_where_it_was_when_the_broker_was_killed(
    server: RocketMQServer, patient: Client, topic: str
) -> None:
    queues = patient.create_topic(topic, 3)
    patient.send_many(topic, numbered(0, 3000))
    reader = patient.reader(dict.fromkeys(queues, 0))
    batches = poll_until(reader, lambda batches: sum(map(len, batches)) >= 1000, max_messages=100)
    server.kill("broker-0")
    for _ in range(100):  # what was pulled already, then nothing, and no error
        batches += reader.poll(100, timedelta(milliseconds=20))
    server.start()
    patient.send_many(topic, numbered(3000, 500))
    batches += poll_messages(reader, 3500 - sum(map(len, batches)))
    assert sorted(map(int, bodies(batches))) == list(range(3500))
    for queue, found in bodies_by_queue(batches).items():
        assert found == sorted(found, key=int), queue


def test_a_reader_that_waits_for_news_notices_a_restart(server: RocketMQServer, patient: Client, topic: str) -> None:
    (queue,) = patient.create_topic(topic, 1)
    reader = patient.reader({queue: 0})
    assert reader.poll(1, timedelta(milliseconds=100)) == []
    server.kill("broker-0")
    server.start()
    patient.send(topic, Message(b"news"))
    assert bodies(poll_messages(reader, 1)) == [b"news"]


def test_a_send_waits_for_the_broker_to_come_back(server: RocketMQServer, patient: Client, topic: str) -> None:
    (queue,) = patient.create_topic(topic, 1)
    patient.send(topic, Message(b"before"))
    server.kill("broker-0")
    sent: list[int] = []
    sending = threading.Thread(target=lambda: sent.append(patient.send(topic, Message(b"during")).offset))
    sending.start()
    server.start()
    sending.join(60)
    assert sent == [1]
    assert bodies(poll_messages(patient.reader({queue: 0}), 2)) == [b"before", b"during"]


def test_nothing_sent_is_lost_while_a_broker_is_killed_again_and_again(
    server: RocketMQServer, patient: Client, topic: str
) -> None:
    queues = patient.create_topic(topic, 2)
    stop = threading.Event()
    confirmed: list[int] = []
    failures: list[BaseException] = []

    def send_on() -> None:
        try:
            while not stop.is_set():
                start = len(confirmed)
                patient.send_many(topic, numbered(start, 50))
                confirmed.extend(range(start, start + 50))
        except BaseException as error:
            failures.append(error)

    sending = threading.Thread(target=send_on)
    sending.start()
    reader = patient.reader(dict.fromkeys(queues, 0))
    received: Counter[int] = Counter()
    for _ in range(2):
        seen = len(received)
        eventually(lambda: poll_into(received, reader) >= seen + 500, "500 more messages")  # noqa: B023 - called at once
        server.kill("broker-0")
        server.start()
    stop.set()
    sending.join(60)
    assert failures == []
    eventually(lambda: poll_into(received, reader) >= len(confirmed), "all messages that were confirmed")
    assert set(received) == set(confirmed)


def poll_into(received: Counter[int], reader: object) -> int:
    for batch in reader.poll(1000, timedelta(milliseconds=50)):  # type: ignore[attr-defined]
        received.update(map(int, batch.bodies))
    return len(received)


def test_a_consumer_registers_again_and_goes_on(
    server: RocketMQServer, patient: Client, topic: str, consumer_group: str
) -> None:
    queues = patient.create_topic(topic, 4)
    patient.send_many(topic, numbered(0, 400))
    events: list[str] = []
    with (
        patient.consumer(
            consumer_group,
            topic,
            on_assigned=lambda queues: events.append(f"+{len(queues)}"),
            on_revoked=lambda queues: events.append(f"-{len(queues)}"),
        ) as first,
        Client(server.name_server, timeout=LONG) as other,
        other.consumer(consumer_group, topic) as second,
    ):
        received: list[bytes] = []

        def poll_both() -> int:
            for consumer in (first, second):
                received.extend(bodies(consumer.poll(1000, timedelta(milliseconds=50))))
                consumer.commit()
            return len(set(received))

        eventually(lambda: poll_both() == 400 and len(first.queues) == len(second.queues) == 2, "two queues each")
        events.clear()
        server.kill("broker-0")
        server.start()
        patient.send_many(topic, numbered(400, 400))
        eventually(lambda: poll_both() == 800, "the messages sent after the restart")
        assert len(received) == 800  # each once: the shares did not change meanwhile
        assert events == []
        assert sorted(first.queues + second.queues) == queues


def test_a_name_server_that_restarts(server: RocketMQServer, patient: Client, topic: str) -> None:
    (queue,) = patient.create_topic(topic, 1)
    reader = patient.reader({queue: 0})
    server.kill("namesrv")
    patient.send(topic, Message(b"without a name server"))  # the route is known
    assert bodies(poll_messages(reader, 1)) == [b"without a name server"]
    assert patient.latest_offsets([queue]) == {queue: 1}
    server.start()
    assert patient.queues(topic) == [queue]


def test_a_clean_stop(server: RocketMQServer, patient: Client, topic: str) -> None:
    (queue,) = patient.create_topic(topic, 1)
    patient.send_many(topic, numbered(0, 100))
    reader = patient.reader({queue: 0})
    received = poll_messages(reader, 100)
    stopping = threading.Thread(target=lambda: server.stop("broker-0"))
    stopping.start()
    while stopping.is_alive():  # it refuses pulls in several ways while it stops
        received += reader.poll(100, timedelta(milliseconds=200))
    server.start()
    patient.send_many(topic, numbered(100, 100))
    received += poll_messages(reader, 100)
    assert bodies(received) == [b"%d" % number for number in range(200)]


def test_another_broker_takes_what_may_go_anywhere(start_rocketmq_server: StartRocketMQServer, topic: str) -> None:
    server = start_rocketmq_server(RocketMQOptions(brokers=2))
    with Client(server.name_server, timeout=timedelta(seconds=20)) as client:
        queues = client.create_topic(topic, 2)
        client.send_many(topic, numbered(0, 100))
        reader = client.reader(dict.fromkeys(queues, 0))
        received = poll_messages(reader, 100)
        server.kill("broker-1")
        for number in range(100, 110):
            assert client.send(topic, Message(b"%d" % number)).queue.broker_name == "broker-0"
        results = client.send_many(topic, [Message(b"%d" % number) for number in range(110, 120)])
        assert {result.queue.broker_name for result in results} == {"broker-0"}
        received += poll_messages(reader, 20)
        assert sorted(map(int, bodies(received))) == list(range(120))
        server.start()
        eventually(lambda: client.queues(topic) == queues, "both brokers back")
        client.send(topic, Message(b"120"), queue=queues[3])
        assert bodies(poll_messages(reader, 1)) == [b"120"]


def test_nobody_is_there_at_the_start(server: RocketMQServer, topic: str) -> None:
    server.kill()
    with Client(server.name_server, timeout=SHORT) as client:
        with pytest.raises(ConnectionFailedError, match=f"{server.name_server}.*the server is running"):
            client.queues(topic)
        with pytest.raises(ConnectionFailedError, match=server.name_server):
            client.consumer("group", topic)


def test_an_outage_that_lasts_is_an_error_at_last(server: RocketMQServer, topic: str) -> None:
    with Client(server.name_server, timeout=SHORT) as client:
        (queue,) = client.create_topic(topic, 1)
        reader = client.reader({queue: 0}, options=ReaderOptions(outage=timedelta(seconds=1)))
        assert reader.poll(1, timedelta(milliseconds=50)) == []
        server.kill("broker-0")
        with pytest.raises(QueueUnavailableError, match=f"{topic}/broker-0/0") as caught:
            reader.poll(1, timedelta(seconds=30))
        assert isinstance(caught.value.__cause__, RocketMQError)
        assert caught.value.retriable
        for call in (
            lambda: client.latest_offsets([queue]),
            lambda: client.send(topic, Message(b"x")),
            lambda: client.commit_offsets("group", {queue: 1}),
        ):
            with pytest.raises((ConnectionFailedError, RequestTimeoutError), match=r"broker-0|127\."):
                call()
        server.start()
        with Client(server.name_server, timeout=timedelta(seconds=60)) as patient:
            patient.send(topic, Message(b"back"))
        assert bodies(poll_messages(reader, 1)) == [b"back"]


def test_a_queue_on_a_broker_that_never_was(server: RocketMQServer, topic: str) -> None:
    with Client(server.name_server, timeout=SHORT) as client:
        client.create_topic(topic, 1)
        with pytest.raises(ConnectionFailedError, match="broker-7"):
            client.latest_offsets([MessageQueue(topic, "broker-7", 0)])
