"""Servers are stopped, or killed, and started again under a running job: it goes on each time, and each row is there once.

Ten times each with ``slow``, once without. What a row takes to come after a restart is printed (``-s``).
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pymysql
import pytest
from headrace.testing import MemorySource, MemoryTransactionalSink
from headrace_mqtt import MqttSinkSettings
from headrace_mqtt.publisher import Publisher
from headrace_rocketmq import Client, Message

from tests.eventually import eventually
from tests.servers.kafka import KafkaServer
from tests.servers.mosquitto import MosquittoServer
from tests.servers.mysql import MySQLServer
from tests.servers.redis import RedisServer
from tests.servers.rocketmq import RocketMQServer
from tests.servers.sharing import own_server

sys.path.append(str(Path(__file__).resolve().parents[2] / "connectors" / "kafka" / "tests"))

from kafka_world import KafkaWorld

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(1200),
]
#: What a broker of MQTT says of a message that nobody has subscribed to.
_NO_SUBSCRIBERS = 0x10
_SCHEMA: dict[str, Any] = {"format": "json", "schema": {"n": "int64"}}
_AGAIN_SECONDS = 120.0
_ROWS = 40


class _Restarted:
    """A server with a job on it."""

    #: Whether what it has acknowledged survives a kill.
    is_durable = True
    #: Whether it never gives a record twice under other offsets.
    gives_once = True

    def __init__(self, server: Any, name: str, directory: Path) -> None:
        self.server, self.name, self.directory = server, name, directory
        self.sink = MemoryTransactionalSink(hr.SinkSettings(flush_interval=timedelta(milliseconds=20)))

    def prepare(self) -> None:
        """Make topics and the like."""

    def begin(self) -> None:
        """Called when the job has been started."""

    def read(self, pipe: Any) -> hr.Stream:
        """Return what the job reads."""
        raise NotImplementedError

    def write(self, bodies: Sequence[bytes]) -> None:
        """Write records, by a client that has just been made."""
        raise NotImplementedError

    def sink_to(self, stream: hr.Stream) -> hr.Job:
        return stream.to(self.sink)

    def numbers(self) -> list[int]:
        """Return what is in the sink."""
        return [row["n"] for row in self.sink.rows]


class _Kafka(_Restarted):
    driver = "confluent"

    def prepare(self) -> None:
        with closing(KafkaWorld(self.server.bootstrap)) as world:
            world.create_topic(self.name, 3)

    def read(self, pipe: Any) -> hr.Stream:
        options = {"session_timeout": "6 s", "metadata_interval": "2 s", "driver": self.driver}
        read: hr.Stream = pipe.from_kafka(self.name, servers=self.server.bootstrap, **options, **_SCHEMA)
        return read

    def write(self, bodies: Sequence[bytes]) -> None:
        with closing(KafkaWorld(self.server.bootstrap)) as world:
            for partition in range(3):
                world.write(self.name, bodies[partition::3], partition=partition)


class _KafkaPython(_Kafka):
    driver = "kafka-python"


class _RocketMQ(_Restarted):
    def prepare(self) -> None:
        with closing(Client(self.server.name_server, timeout=timedelta(seconds=60))) as client:
            client.create_topic(self.name, 3)

    def read(self, pipe: Any) -> hr.Stream:
        read: hr.Stream = pipe.from_rocketmq(self.name, name_servers=self.server.name_server, **_SCHEMA)
        return read

    def write(self, bodies: Sequence[bytes]) -> None:
        with closing(Client(self.server.name_server, timeout=timedelta(seconds=60))) as client:
            client.send_many(self.name, [Message(body, queue_key=body.decode()) for body in bodies])


class _Redis(_Restarted):
    def read(self, pipe: Any) -> hr.Stream:
        server = self.server
        read: hr.Stream = pipe.from_redis(
            self.name, host=server.host, port=server.port, user=server.user, password=server.password, **_SCHEMA
        )
        return read

    def prepare(self) -> None:
        with closing(self.server.client()) as client:
            client.xgroup_create(self.name, "made", mkstream=True)

    def write(self, bodies: Sequence[bytes]) -> None:
        with closing(self.server.client()) as client:
            for body in bodies:
                client.xadd(self.name, {"data": body})


class _Mqtt(_Restarted):
    #: The broker writes what it has to its disk from time to time, and when it stops.
    is_durable = False
    #: Messages whose acknowledgement was lost come again (QoS 1).
    gives_once = False

    @property
    def _login(self) -> dict[str, Any]:
        server = self.server
        return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}

    def read(self, pipe: Any) -> hr.Stream:
        buffer = str(self.directory / "buffer")
        read: hr.Stream = pipe.from_mqtt(
            self.name, buffer=buffer, client_id=f"job-{self.name}", **self._login, **_SCHEMA
        )
        return read

    def begin(self) -> None:
        eventually(lambda: _NO_SUBSCRIBERS not in self._publish([b'{"n": 0}']), "the job subscribes")

    def write(self, bodies: Sequence[bytes]) -> None:
        self._publish(bodies)

    def _publish(self, bodies: Sequence[bytes]) -> list[int]:
        with closing(Publisher(MqttSinkSettings.of({"topic": self.name, **self._login}, plugin="mqtt"))) as publisher:
            return [outcome.value for _, outcome in publisher.publish([(self.name, body) for body in bodies])]


class _MySQL(_Restarted):
    """What the job writes to."""

    def prepare(self) -> None:
        self._source = MemorySource({"a": [], "b": []})
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.name}")
            cursor.execute(f"CREATE TABLE {self.name}.numbers (n BIGINT, at BIGINT AUTO_INCREMENT PRIMARY KEY)")

    def read(self, pipe: Any) -> hr.Stream:
        read: hr.Stream = pipe.from_(self._source, **_SCHEMA)
        return read

    def write(self, bodies: Sequence[bytes]) -> None:
        self._source.append("a", *bodies[::2])
        self._source.append("b", *bodies[1::2])

    def sink_to(self, stream: hr.Stream) -> hr.Job:
        server = self.server
        job: hr.Job = stream.to_mysql(
            "numbers", host=server.host, port=server.port, user=server.user, password=server.password,
            database=self.name, flush_interval="20 ms",
        )  # fmt: skip
        return job

    def numbers(self) -> list[int]:
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT n FROM {self.name}.numbers")  # noqa: S608
            return [row[0] for row in cursor.fetchall()]

    def _connect(self) -> Any:
        server = self.server
        return pymysql.connect(host=server.host, port=server.port, user=server.user, password=server.password)


_KINDS: dict[str, tuple[Any, type[_Restarted]]] = {
    "kafka": (KafkaServer, _Kafka),
    "kafka-python": (KafkaServer, _KafkaPython),
    "rocketmq": (RocketMQServer, _RocketMQ),
    "redis": (RedisServer, _Redis),
    "mqtt": (MosquittoServer, _Mqtt),
    "mysql": (MySQLServer, _MySQL),
}


@pytest.fixture(params=_KINDS)
def restarted(request: pytest.FixtureRequest, fresh_name: Callable[[str], str], tmp_path: Path) -> Iterator[_Restarted]:
    """Each kind of server, of the test's own."""
    kind, made = _KINDS[request.param]
    with own_server(kind) as server:
        yield made(server, fresh_name("again").replace("-", "_")[-40:], tmp_path)
    gc.collect()  # sockets that kafka-python has left, while warnings of them are not errors


def restart(restarted: _Restarted, times: int, seed: int) -> None:
    """Restart the server so often while records come, and expect each row once."""
    chance, written, took = random.Random(seed), 0, []

    def write() -> None:
        nonlocal written
        restarted.write([json.dumps({"n": number}).encode() for number in range(written, written + _ROWS)])
        written += _ROWS

    def all_there() -> bool:
        return len(set(restarted.numbers())) >= written

    restarted.prepare()
    job = restarted.sink_to(restarted.read(hr.stream("restarts", restarted.name)))
    with job.start(
        "light", checkpoint=str(restarted.directory / "light"), checkpoint_interval="200 ms", retry_timeout="5 min"
    ) as handle:
        restarted.begin()
        write()
        eventually(all_there, "the first rows", seconds=_AGAIN_SECONDS)
        for turn in range(times):
            write()
            if chance.random() < 0.5:
                eventually(all_there, "the rows before a restart", seconds=_AGAIN_SECONDS)
            how = restarted.server.kill if restarted.is_durable and turn % 2 else restarted.server.stop
            how()
            time.sleep(chance.choice((0.0, 0.5, 2.0, 4.0)))  # how long the server is away
            restarted.server.start()
            begun = time.monotonic()
            write()
            eventually(all_there, f"rows after restart {turn}", seconds=_AGAIN_SECONDS)
            took.append(time.monotonic() - begun)
        assert handle.status().error is None
    found = restarted.numbers()
    assert (sorted(found) if restarted.gives_once else sorted(set(found))) == list(range(written))
    print(f"\n{type(restarted).__name__}: rows after {times} restarts within {[round(each, 1) for each in took]} s")


def test_a_job_goes_on_after_a_restart(restarted: _Restarted) -> None:
    restart(restarted, 1, seed=1)


@pytest.mark.slow
def test_a_job_goes_on_after_ten_restarts(restarted: _Restarted) -> None:
    restart(restarted, 10, seed=2)
