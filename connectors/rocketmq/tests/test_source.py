"""The source: headers, filters, starts, pickling and what it says when something is wrong."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import cloudpickle
import headrace as hr
import pytest
from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.foundation.errors import HeadraceError, JobError, OptionError, RetriableError
from headrace.interfaces.source import EARLIEST, LATEST, GroupListener, Reader, StartAt
from headrace.testing import MemorySink
from headrace_rocketmq import Client, Message, MessageQueue
from headrace_rocketmq.given_offsets import GivenOffsets
from headrace_rocketmq.settings import RocketMQSourceSettings
from headrace_rocketmq.source import RocketMQSource, whole_millisecond_from

from tests.eventually import eventually
from tests.servers.rocketmq import RocketMQServer

Make = Callable[..., RocketMQSource]


def settings(**options: Any) -> Any:
    return RocketMQSourceSettings.of({"topic": "t", "name_servers": "h:9876", **options}, plugin="rocketmq")


@pytest.fixture
def make(rocketmq_server: RocketMQServer, topic: str) -> Make:
    def make(**options: Any) -> RocketMQSource:
        given = {"topic": topic, "name_servers": rocketmq_server.name_server, "request_timeout": "3 s", **options}
        return RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq"))

    return make


def send(client: Client, topic: str, sent: list[Message]) -> Queue:
    """Make a topic of one queue with these messages."""
    [queue] = client.create_topic(topic, 1)
    client.send_many(topic, sent)
    eventually(lambda: client.latest_offsets([queue])[queue] == len(sent), "all is there")
    return Queue(str(queue))


def read_all(reader: Reader) -> list[RawBatch]:
    batches = []
    end = reader.latest
    while reader.position.offset < end:
        raw = reader.poll(100, timedelta(seconds=1))
        if raw is not None and len(raw):
            batches.append(raw)
    return batches


def bodies(reader: Reader) -> list[bytes]:
    return [body for raw in read_all(reader) for body in raw.bodies or ()]


# ------------------------------------------------------------------------------------------------------- options


def test_topics_and_group() -> None:
    assert settings(topic="a, b,a").topics == ["a", "b"]
    assert settings(topic="a,b").group_of("") == "headrace-a-b"
    assert settings(group="g").group_of("shop.orders") == "g"
    named = [settings(topic="t").group_of(name) for name in ("shop.orders", "shop-orders", "shop.orders-2")]
    assert re.fullmatch("headrace-shop-orders-t-[0-9a-f]{8}", named[0])
    assert named[1] == "headrace-shop-orders-t"
    assert len(set(named)) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": " , "}, "the list of topics is empty [plugin 'rocketmq', option 'topic']"),
        ({"name_servers": "nowhere"}, "option 'name_servers'"),
        ({"access_key": "u"}, "is needed with access_key [plugin 'rocketmq', option 'secret_key']"),
        ({"secret_key": "s"}, "is needed with secret_key [plugin 'rocketmq', option 'access_key']"),
        ({"security_token": "s"}, "has no effect without access_key"),
        ({"tls_ca": "ca.pem"}, "has no effect without TLS [plugin 'rocketmq', option 'tls_ca']\n  hint: tls=True"),
        ({"tags": "a", "sql": "b > 1"}, "a broker filters by tags or by an SQL condition, but not by both"),
        ({"tags": "a || "}, "option 'tags'"),
        ({"sql": " "}, "the SQL92 condition is empty [plugin 'rocketmq', option 'sql']"),
        ({"request_timeout": "0 s"}, "must be positive [plugin 'rocketmq', option 'request_timeout']"),
        ({"window": 0}, "option 'window'"),
        ({"allocation": "fair"}, "option 'allocation'"),
        ({"offsets": {"3": -1}}, "the offset -1 of '3' is negative [plugin 'rocketmq', option 'offsets']"),
        ({"offsets": {"x/broker/0": 1}}, "'x/broker/0' is not a queue of t [plugin 'rocketmq', option 'offsets']"),
        ({"offsets": {"broker/first": 1}}, "hint: write it as 't/broker-a/0' or 0"),
        ({"topic": "a,b", "offsets": {0: 1}}, "'0' is not a queue of a, b"),
        ({"tag": "a"}, "did you mean 'tags'?"),
    ],
    ids=str,
)
def test_unusable_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        RocketMQSource(settings(**options))


def test_tls_files_that_are_not_there_are_named() -> None:
    with pytest.raises(OptionError, match=r"ca_file=/no/such\.pem"):
        RocketMQSource(settings(tls=True, tls_ca="/no/such.pem")).queues()


def test_moments_are_rounded_up() -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 123_400, tzinfo=UTC)
    assert whole_millisecond_from(moment) == moment.replace(microsecond=124_000)
    assert whole_millisecond_from(moment.replace(microsecond=5000)) == moment.replace(microsecond=5000)


# ------------------------------------------------------------------------------------------------------- reading


@pytest.mark.servers
def test_keys_and_headers_become_columns(client: Client, rocketmq_server: RocketMQServer, topic: str) -> None:
    queue = send(
        client,
        topic,
        [
            Message(b'{"n": 0}', tag="red", keys=["k1", "k2"], properties={"colour": "rot", "__SHARDINGKEY": "shard"}),
            Message(b'{"n": 1}', keys=["hr:job/q:1:0", "k3"]),
            Message(b'{"n": 2}'),
        ],
    )
    rows = MemorySink()
    metadata = {"key": "key", "headers": "headers", "at": "time", "queue": "queue", "offset": "offset"}
    hr.stream("tests", "headers").from_rocketmq(
        topic, name_servers=rocketmq_server.name_server, format="json", schema={"n": "int64"}, metadata=metadata
    ).to(rows).run("light")
    found = sorted(rows.rows, key=lambda row: row["n"])
    assert [row["key"] for row in found] == [b"shard", b"k3", None]
    assert '"TAGS":"red"' in found[0]["headers"]
    assert '"colour":"rot"' in found[0]["headers"]
    assert {row["queue"] for row in found} == {queue.name}
    assert [row["offset"] for row in found] == [0, 1, 2]
    assert all(abs(datetime.now(UTC) - row["at"]) < timedelta(hours=1) for row in found)


@pytest.mark.servers
def test_tags_and_conditions_choose(client: Client, topic: str, make: Make) -> None:
    queue = send(
        client,
        topic,
        [Message(b"%d" % n, tag=("red", "blue", "green")[n % 3], properties={"n": str(n)}) for n in range(60)],
    )
    for options, wanted in (
        ({"tags": "red"}, range(0, 60, 3)),
        ({"tags": "red || blue"}, [n for n in range(60) if n % 3 < 2]),
        ({"tags": "*"}, range(60)),
        ({"sql": "n >= 55"}, range(55, 60)),
        ({"tags": "none"}, []),
    ):
        source = make(**options)
        assert [int(body) for body in bodies(source.open(queue, EARLIEST))] == list(wanted), options
        source.close()


@pytest.mark.servers
def test_starts(client: Client, topic: str, make: Make) -> None:
    queue = send(client, topic, [Message(b"old")])
    source = make()
    [raw] = read_all(source.open(queue, EARLIEST))
    assert raw.times is not None
    stored = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(raw.times[0]))
    late, at = source.open(queue, LATEST), source.open(queue, StartAt(stored + timedelta(microseconds=1)))
    assert bodies(source.open(queue, StartAt(stored))) == [b"old"]
    assert bodies(late) == bodies(at) == []
    client.send(topic, Message(b"new"))
    eventually(lambda: late.latest == 2, "it is there")
    assert bodies(late) == bodies(at) == [b"new"]
    source.close()


@pytest.mark.servers
def test_given_offsets_come_before_start(client: Client, topic: str, make: Make) -> None:
    queues = client.create_topic(topic, 3)
    for queue in queues:
        client.send_many(topic, [Message(b"%d" % n) for n in range(10)], queue=queue)
    eventually(lambda: set(client.latest_offsets(queues).values()) == {10}, "all is there")
    broker = queues[0].broker_name
    source = make(offsets={0: 9, f"{broker}/1": 8})
    named = [Queue(str(queue)) for queue in queues]
    assert set(source.queues()) == set(named)
    assert [len(bodies(source.open(queue, EARLIEST))) for queue in named] == [1, 2, 10]
    assert [len(bodies(source.open(queue, LATEST))) for queue in named] == [1, 2, 0]
    assert len(bodies(source.open(named[0], ReadPosition(3)))) == 7  # progress comes before what is given
    source.close()
    source = make(offsets={str(queues[2]): 7, "0": 5})
    assert [len(bodies(source.open(queue, EARLIEST))) for queue in named] == [5, 10, 3]
    source.close()


@pytest.mark.servers
def test_given_offsets_that_are_not_there_are_named(client: Client, topic: str, make: Make) -> None:
    queue = send(client, topic, [Message(b"x")])
    for offsets, message in (
        ({5: 0}, "there is no queue 5 [plugin 'rocketmq', option 'offsets']"),
        ({f"{queue.name}1": 0}, f"did you mean '{queue.name}'?"),
    ):
        source = make(offsets=offsets)
        assert message in message_of(OptionError, source.queues)
        source.close()
    source = make(offsets={0: 2})
    assert message_of(OptionError, lambda: source.open(queue, EARLIEST)) == (
        f"offset 2 is not in queue {queue.name}: it holds 0 to 1 [plugin 'rocketmq', option 'offsets']"
    )
    source.close()


def test_a_short_name_that_could_be_several_queues_is_refused() -> None:
    given = GivenOffsets(settings(topic="t", offsets={0: 1}))
    with pytest.raises(
        OptionError, match=r"0 could be t/a/0 or t/b/0 .*option 'offsets'.\n  hint: write it as 't/a/0'"
    ):
        given.check([MessageQueue("t", "b", 0), MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)])


@pytest.mark.servers
def test_born_time(client: Client, topic: str, make: Make) -> None:
    queue = send(client, topic, [Message(b"x")])
    source = make(time="born")
    [raw] = read_all(source.open(queue, EARLIEST))
    [batch] = client.reader({client.queues(topic)[0]: 0}).poll(1, timedelta(seconds=10))
    assert raw.times is not None
    assert raw.times.tolist() == (batch.born_timestamps_ms * 1000).tolist()
    source.close()


@pytest.mark.servers
def test_a_used_source_can_be_sent_elsewhere(client: Client, topic: str, make: Make) -> None:
    queue = send(client, topic, [Message(b"x")])
    source = make()
    assert bodies(source.open(queue, EARLIEST)) == [b"x"]
    copy = cloudpickle.loads(cloudpickle.dumps(source))
    assert bodies(copy.open(queue, EARLIEST)) == [b"x"]
    copy.close()
    source.close()


@pytest.mark.servers
def test_several_topics(client: Client, topic: str, make: Make) -> None:
    for name in (topic, f"{topic}-2"):
        client.create_topic(name, 2)
    source = make(topic=f"{topic},{topic}-2")
    expected = [f"{name}/{queue.broker_name}/{n}" for name in (topic, f"{topic}-2") for n in range(2)
                for queue in client.queues(name)[:1]]  # fmt: skip
    assert [queue.name for queue in source.queues()] == expected
    source.close()


# -------------------------------------------------------------------------------------------------------- errors


def message_of(kind: type[HeadraceError], call: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    return re.sub(r"\[Errno \d+\] ", "", str(caught.value))


@pytest.mark.servers
class _Taking(GroupListener):
    """Opens what is assigned."""

    def __init__(self, source: RocketMQSource) -> None:
        self.source = source
        self.readers: list[Reader] = []

    def assigned(self, queues: Iterable[Queue]) -> None:
        self.readers += [self.source.open(queue, EARLIEST) for queue in queues]

    def revoked(self, queues: Iterable[Queue], *, lost: bool = False) -> None:
        """Nobody else is there."""


def test_a_message_wakes_who_waits_for_the_group(client: Client, topic: str, make: Make) -> None:
    [queue] = client.create_topic(topic, 1)
    source = make()
    taking = _Taking(source)
    source.join(taking)

    def assigned() -> bool:
        source.poll_group(timedelta(0))
        return bool(taking.readers)

    eventually(assigned, "the queue is assigned")
    [reader] = taking.readers
    sender = threading.Timer(0.5, lambda: client.send(topic, Message(b"x"), queue=queue))
    sender.start()
    while (found := reader.poll(10, timedelta(0))) is None or not len(found):
        source.poll_group(timedelta(days=1))  # else this never ends
    sender.join()
    source.close()


def test_an_unknown_topic_is_named_with_the_nearest(client: Client, topic: str, make: Make) -> None:
    client.create_topic(topic, 1)
    source = make(topic=topic + "x")
    assert message_of(JobError, source.queues) == (
        f"there is no topic '{topic}x' at {source.settings.name_servers} [plugin 'rocketmq', option 'topic']\n"
        f"  hint: did you mean '{topic}'?"
    )
    source.close()


def test_servers_that_are_away_are_named() -> None:
    source = RocketMQSource(settings(name_servers="127.0.0.1:1", request_timeout="200 ms"))
    assert message_of(RetriableError, source.queues) == (
        "cannot connect to 127.0.0.1:1: Connection refused: check that the server is running and that this is its address "
        "(name servers 127.0.0.1:1, topic t) [plugin 'rocketmq']\n"
        "  hint: start RocketMQ, or correct the option name_servers; brokers in containers may need address_map"
    )
    source.close()


@pytest.mark.servers
def test_a_condition_that_does_not_parse_is_named(client: Client, topic: str, make: Make) -> None:
    queue = send(client, topic, [Message(b"x")])
    source = make(sql="n >< 5")
    text = message_of(OptionError, lambda: source.open(queue, EARLIEST))
    assert "[plugin 'rocketmq', option 'sql'" in text
    assert "n >< 5" in text
    assert "enablePropertyFilter=true" in text
    source.close()


@pytest.mark.servers
def test_missing_rights_are_named(secure_rocketmq_server: RocketMQServer, topic: str) -> None:
    security = secure_rocketmq_server.security
    assert security is not None
    given = {"topic": topic, "name_servers": secure_rocketmq_server.name_server, "request_timeout": "3 s"}
    owner = {"access_key": security.user.name, "secret_key": security.user.password}
    outsider = {"access_key": security.outsider.name, "secret_key": security.outsider.password}
    admin = RocketMQSource(RocketMQSourceSettings.of({**given, **owner}))
    from headrace_rocketmq.settings import make_client

    with make_client(admin.settings) as client:
        client.create_topic(topic, 1)
    [queue] = admin.queues()
    assert admin.open(queue, EARLIEST).poll(1, timedelta(0)) is None
    for login, option in ((outsider, "option 'access_key'"), ({}, "plugin 'rocketmq'")):
        source = RocketMQSource(RocketMQSourceSettings.of({**given, **login}))
        with pytest.raises(JobError, match="no permission") as caught:
            source.open(queue, EARLIEST).poll(1, timedelta(seconds=10))
        assert option in str(caught.value)
        assert "need the right to subscribe" in str(caught.value)
        assert security.outsider.password not in str(caught.value)
        source.close()
    admin.close()


@pytest.mark.servers
def test_a_foreign_queue_name_is_refused(client: Client, topic: str, make: Make) -> None:
    source = make()
    with pytest.raises(JobError, match=r"'file\.log' is not the name of a message queue"):
        source.open(Queue("file.log"), EARLIEST)
    source.close()
