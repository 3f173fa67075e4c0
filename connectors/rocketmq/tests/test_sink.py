"""The sink: where messages go, what they carry, and what it says when something is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Queue
from headrace.flow.schema import Schema
from headrace.foundation.errors import HeadraceError, JobError, OptionError, RetriableError
from headrace.interfaces.sink import IdempotentSink, SinkBatch
from headrace.testing import MemorySink, MemorySource
from headrace_rocketmq import Client, MessageBatch, MessageQueue
from headrace_rocketmq.settings import RocketMQSinkSettings
from headrace_rocketmq.sink import RocketMQSink, RocketMQTopicSink

from tests.servers.rocketmq import RocketMQServer

from .reading import poll_messages

COLUMNS = {"id": "int64", "name": "string", "amount": "float64", "flag": "boolean", "tags": "array<string>"}
Make = Callable[..., RocketMQSink]


def make_offline(**options: Any) -> RocketMQSink:
    given = {"topic": "t", "name_servers": "127.0.0.1:1", "request_timeout": "200 ms", **options}
    return RocketMQSink(RocketMQSinkSettings.of(given, plugin="rocketmq"))


@pytest.fixture
def make(rocketmq_server: RocketMQServer, topic: str) -> Make:
    def make(**options: Any) -> RocketMQSink:
        servers = {"topic": topic, "name_servers": rocketmq_server.name_server, "request_timeout": "10 s"}
        sink = make_offline(**{**servers, "create_topic": True, **options})
        sink.writer_name = "ns.job.sink"
        return sink

    return make


def batch(rows: list[dict[str, Any]], queue: str = "q") -> SinkBatch:
    frame = pl.DataFrame(rows).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias(OFFSET), pl.lit(0, dtype=pl.Int32).alias(INDEX)
    )
    return SinkBatch(Queue(queue), frame)


def written(client: Client, sink: RocketMQSink, topic: str, *batches: SinkBatch) -> list[MessageBatch]:
    sink.prepare(None)
    sink.open()
    for each in batches:
        sink.batch_insert(each)
    sink.close()
    return poll_messages(client.reader(dict.fromkeys(client.queues(topic), 0)), sum(map(len, batches)))


def test_delivery_makes_the_class() -> None:
    assert type(make_offline()) is RocketMQSink
    assert type(make_offline(delivery="idempotent")) is RocketMQTopicSink
    assert isinstance(make_offline(delivery="idempotent"), IdempotentSink)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "nam"}, "unknown column 'nam' [plugin 'rocketmq', option 'key']\n  hint: did you mean 'name'?"),
        ({"tag": "tags"}, "column 'tags' is array<string>, not text, a number, a boolean or a time"),
        ({"keys": ["id", "x"]}, "unknown column 'x' [plugin 'rocketmq', option 'keys']"),
        ({"properties": ["amunt"]}, "did you mean 'amount'?"),
        ({"properties": ["KEYS"]}, "'KEYS' is a property that RocketMQ or this sink sets"),
        ({"topic": " "}, "list of topics is empty"),
        ({"delivery": "exactly_once"}, "option 'delivery'"),
        ({"format": "jsn"}, "jsn"),
    ],
    ids=str,
)
def test_unusable_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=re.escape(message)):
        make_offline(**options).check(Schema.of(COLUMNS))


def message_of(kind: type[HeadraceError], call: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return re.sub(r"\[Errno \d+\] ", "", str(caught.value))


def test_servers_that_are_away_are_named() -> None:
    assert message_of(RetriableError, lambda: make_offline().prepare(None)) == (
        "cannot connect to 127.0.0.1:1: Connection refused: check that the server is running and that this is its address "
        "(name servers 127.0.0.1:1, topic t) [plugin 'rocketmq']\n"
        "  hint: start RocketMQ, or correct the option name_servers; brokers in containers may need address_map"
    )


@pytest.mark.servers
def test_an_unknown_topic_is_named_with_the_nearest(
    client: Client, rocketmq_server: RocketMQServer, topic: str, make: Make
) -> None:
    client.create_topic(topic, 1)
    sink = make(topic=topic + "x", create_topic=False)
    assert message_of(JobError, lambda: sink.prepare(None)) == (
        f"there is no topic '{topic}x' at {rocketmq_server.name_server} [plugin 'rocketmq', option 'topic']\n"
        f"  hint: did you mean '{topic}'? (to create it: create_topic=True)"
    )


@pytest.mark.servers
def test_missing_rights_are_named(secure_rocketmq_server: RocketMQServer, topic: str) -> None:
    security = secure_rocketmq_server.security
    assert security is not None
    servers = {"topic": topic, "name_servers": secure_rocketmq_server.name_server, "request_timeout": "3 s"}
    owner = {"access_key": security.user.name, "secret_key": security.user.password}
    make_offline(**servers, **owner, create_topic=True).prepare(None)
    sink = make_offline(**servers, access_key=security.outsider.name, secret_key=security.outsider.password)
    sink.open()
    text = message_of(JobError, lambda: sink.batch_insert(batch([{"id": 1}])))
    sink.close()
    assert "no permission" in text
    assert "option 'access_key'" in text
    assert "the right to publish" in text
    assert security.outsider.password not in text


@pytest.mark.servers
def test_messages_carry_what_the_options_name(client: Client, topic: str, make: Make) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "name": "a b", "amount": 0.5, "flag": True, "colour": "red"},
        {"id": 2, "name": None, "amount": None, "flag": None, "colour": None},
        {"id": 3, "name": "", "amount": -1.0, "flag": False, "colour": ""},
    ]
    sink = make(key="name", tag="colour", keys=["id"], properties=["amount", "flag", "name"], queues=1)
    [found] = written(client, sink, topic, batch(rows, "in/topic 1"))
    found = found.take(sorted(range(3), key=lambda row: json.loads(found.bodies[row])["id"]))  # no key, no order
    assert [json.loads(body) for body in found.bodies] == rows
    assert found.tags() == ["red", None, None]
    assert found.keys() == [f"hr:ns.job.sink/in/topic%201:{n}:0 {n + 1}" for n in range(3)]
    assert found.property_column("__SHARDINGKEY") == ["a b", None, None]
    assert found.property_column("amount") == ["0.5", None, "-1.0"]
    assert found.property_column("flag") == ["true", None, "false"]
    assert found.property_column("name") == ["a b", None, None]


@pytest.mark.servers
def test_a_key_has_its_queue(client: Client, topic: str, make: Make) -> None:
    sink = make(key="id", queues=4)
    found = written(client, sink, topic, batch([{"id": n % 10} for n in range(200)]))
    queue_of: dict[int, MessageQueue] = {}
    for each in found:
        for body in each.bodies:
            assert queue_of.setdefault(json.loads(body)["id"], each.queue) == each.queue
    assert len(set(queue_of.values())) > 1


@pytest.mark.servers
def test_idempotent_rows_of_a_queue_stay_in_order(client: Client, topic: str, make: Make) -> None:
    sink = make(delivery="idempotent", queues=4)
    rows = [{"id": n} for n in range(300)]
    found = written(client, sink, topic, batch(rows, "q1"), batch(rows, "q2"))
    order: dict[str, list[tuple[MessageQueue, int]]] = {"q1": [], "q2": []}
    for each in found:
        for body, key in zip(each.bodies, each.property_column("KEYS"), strict=True):
            assert key is not None
            order[key.removeprefix("hr:ns.job.sink/").partition(":")[0]].append((each.queue, json.loads(body)["id"]))
    for places in order.values():
        assert len({queue for queue, _ in places}) == 1
        assert [number for _, number in places] == list(range(300))


@pytest.mark.servers
def test_a_key_with_a_space_is_a_dead_letter(client: Client, topic: str, rocketmq_server: RocketMQServer) -> None:
    """A space would make two keys of one. Only that row goes to the dead letters."""
    bad = MemorySink()
    source = MemorySource({"q": [b'{"id": "a"}', b'{"id": "b c"}', b'{"id": "d"}']})
    stream = hr.stream("tests", "keys").from_(source, format="json", schema={"id": "string"})
    job = stream.dead_letters(lambda letters: letters.to(bad)).to_rocketmq(
        topic, name_servers=rocketmq_server.name_server, keys=["id"], create_topic=True
    )
    job.run("light")
    batches = poll_messages(client.reader(dict.fromkeys(client.queues(topic), 0)), 2)
    assert sorted(json.loads(body)["id"] for each in batches for body in each.bodies) == ["a", "d"]
    assert ["space" in row["reason"] for row in bad.rows] == [True]


def test_settings_are_durations() -> None:
    assert make_offline(request_timeout="2 s").settings.request_timeout == timedelta(seconds=2)  # type: ignore[attr-defined]
    with pytest.raises(OptionError):
        make_offline(request_timeout="soon")
