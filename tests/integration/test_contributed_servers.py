"""Redis and MQTT on Spark: rows between streams once, over a restart; rows as messages; sources that listen are refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import PlanError
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.eventually import eventually
from tests.servers.mosquitto import MosquittoServer
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.spark


def place_of(server: RedisServer | MosquittoServer) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}


def test_redis_over_a_restart(redis_server: RedisServer, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    name, place = fresh_name("redis"), place_of(redis_server)
    job = (
        hr.stream("contributed", name)
        .from_redis(f"{name}-in-*", **place, discovery_interval=0, format="json", schema={"n": "int64"})
        .where("n % 10 <> 3")
        .to_redis(f"{name}-out", **place, batch_size=400)
    )
    client = redis_server.client()
    try:
        for begin, end in ((0, 2_000), (2_000, 2_600)):
            pipeline = client.pipeline(transaction=False)
            for n in range(begin, end):
                pipeline.xadd(f"{name}-in-{n % 2}", {b"data": b'{"n":%d}' % n})
            pipeline.execute()
            job.run("spark", checkpoint=tmp_path / "state", show_progress=False)
            found = [json.loads(fields[b"data"])["n"] for _, fields in client.xrange(f"{name}-out")]
            assert sorted(found) == [n for n in range(end) if n % 10 != 3]
            for half in (0, 1):
                assert [n for n in found if n % 2 == half] == sorted(n for n in found if n % 2 == half)
    finally:
        client.close()


def test_rows_as_messages_of_mqtt(
    mosquitto_server: MosquittoServer, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic, place, subscribed = fresh_name("topic"), place_of(mosquitto_server), threading.Event()
    messages: list[bytes] = []
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.username_pw_set(mosquitto_server.user, mosquitto_server.password)
    client.on_message = lambda client, _, message: messages.append(bytes(message.payload))
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect(mosquitto_server.host, mosquitto_server.port)
    client.loop_start()
    try:
        client.subscribe(topic, qos=1)
        assert subscribed.wait(60)
        for part in range(2):
            rows = "".join(f'{{"n": {n}}}\n' for n in range(part, 1_000, 2))
            (tmp_path / f"{part}.ndjson").write_text(rows)
        stream = hr.stream("contributed", topic).from_file(f"{tmp_path}/*.ndjson", format="json", schema={"n": "int64"})
        stream.to_mqtt(topic, **place).run("spark", show_progress=False)
        eventually(lambda: len(messages) == 1_000, "all rows")
        assert sorted(messages) == sorted(b'{"n":%d}' % n for n in range(1_000))
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("source", ["syslog", "http", "mqtt"])
def test_a_source_that_listens_is_refused_before_spark_starts(source: str, tmp_path: Path) -> None:
    begin, buffer = hr.stream("contributed", "listening"), str(tmp_path / "buffer")
    listening: dict[str, Callable[[], Any]] = {
        "syslog": lambda: begin.from_syslog(tcp_port=0, buffer=buffer, format="syslog"),
        "http": lambda: begin.from_http(port=0, buffer=buffer, format="json", schema={"n": "int64"}),
        "mqtt": lambda: begin.from_mqtt("t", buffer=buffer, format="json", schema={"n": "int64"}),
    }
    job = listening[source]().to_file(str(tmp_path / "out"), format="json")
    runs: list[Callable[[], Any]] = [
        lambda: job.run("spark"),
        lambda: job.start("spark", checkpoint=tmp_path / "state"),
    ]
    for run in runs:
        with pytest.raises(PlanError, match=f"{source}.*can be read only by the process that opened it"):
            run()
