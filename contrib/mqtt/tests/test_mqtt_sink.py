"""Rows as messages of a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import JobError
from headrace.testing import MemorySink, MemorySource
from mqtt_world import Subscriber, closing_all, login

from tests.eventually import eventually
from tests.servers.mosquitto import MosquittoServer

pytestmark = pytest.mark.servers


@pytest.fixture
def subscriber(mosquitto_server: MosquittoServer, topic: str) -> Iterator[Subscriber]:
    with closing_all() as take:
        yield take(Subscriber(mosquitto_server, f"{topic}/#"))


def stream_of(rows: list[dict[str, Any]]) -> Any:
    source = MemorySource({"a": [json.dumps(row).encode() for row in rows]})
    return hr.stream("tests", "out").from_(source, format="json", schema={"place": "string", "n": "int64"})


@pytest.mark.parametrize("qos", [1, 2])
def test_topics_of_rows(mosquitto_server: MosquittoServer, topic: str, subscriber: Subscriber, qos: int) -> None:
    rows = [{"place": f"{topic}/{number % 2}", "n": number} for number in range(3_000)]
    stream_of(rows).to_mqtt(topic_column="place", qos=qos, **login(mosquitto_server)).run("light", show_progress=False)
    eventually(lambda: len(subscriber.messages) == 3_000, "they come")
    assert subscriber.payloads() == [b'{"n":%d}' % number for number in range(3_000)]
    assert [message.topic for message in subscriber.messages] == [row["place"] for row in rows]


def test_rows_that_have_no_topic_are_dead_letters(
    mosquitto_server: MosquittoServer, topic: str, subscriber: Subscriber
) -> None:
    letters = MemorySink()
    places = [f"{topic}/a", None, f"{topic}/#", "", f"{topic}/b"]
    stream = stream_of([{"place": place, "n": number} for number, place in enumerate(places)])
    stream.dead_letters(lambda bad: bad.to(letters)).to_mqtt(topic_column="place", **login(mosquitto_server)).run(
        "light", show_progress=False
    )
    eventually(lambda: len(subscriber.messages) == 2, "the others come")
    assert subscriber.payloads() == [b'{"n":0}', b'{"n":4}']
    assert len(letters.rows) == 3


def test_retained_rows(mosquitto_server: MosquittoServer, topic: str) -> None:
    rows = [{"place": "x", "n": 1}, {"place": "y", "n": 2}]
    stream_of(rows).to_mqtt(f"{topic}/kept", retain=True, **login(mosquitto_server)).run("light", show_progress=False)
    with closing_all() as take:
        later = take(Subscriber(mosquitto_server, f"{topic}/#"))
        eventually(lambda: later.messages, "the last one comes")
        assert [json.loads(payload) for payload in later.payloads()] == [{"place": "y", "n": 2}]


def test_refusals(mosquitto_server: MosquittoServer, topic: str) -> None:
    outsider = mosquitto_server.outsider
    assert outsider is not None
    stream = stream_of([{"place": "x", "n": 1}])
    place = login(mosquitto_server)
    with pytest.raises(JobError, match="check user and password") as failed:
        stream.to_mqtt(topic, **{**place, "password": "s3cret"}).run("light", show_progress=False)
    assert "s3cret" not in str(failed.value)
    with pytest.raises(hr.JobFailedError) as refused:
        stream.to_mqtt(topic, **{**place, "user": outsider.name, "password": outsider.password}).run(
            "light", show_progress=False
        )
    assert "the broker's access control allows it" in str(refused.value.__cause__)


def test_sql(mosquitto_server: MosquittoServer, topic: str, subscriber: Subscriber, tmp_path: Any) -> None:
    (tmp_path / "in.ndjson").write_text(f'{{"place": "{topic}/a", "n": 7}}\n')
    hr.sql(
        f"""
        CREATE TABLE entries (place STRING, n BIGINT) WITH ('connector' = 'file', 'path' = '{tmp_path}/in.ndjson', 'format' = 'json');
        CREATE TABLE messages (place STRING, n BIGINT) WITH ('connector' = 'mqtt', 'topic-column' = 'place',
          'user' = '{mosquitto_server.user}', 'host' = '127.0.0.1', 'port' = '{mosquitto_server.port}',
          'password' = '{mosquitto_server.password}');
        INSERT INTO messages SELECT place, n FROM entries;
        """  # noqa: S608
    ).run("light", show_progress=False)
    eventually(lambda: subscriber.payloads() == [b'{"n":7}'], "it comes")
