"""What the elastic tests share: events that keep coming on a broker, instances of the job, and the table they fill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pymysql
from headrace_rocketmq import Client, Message

from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer
from tests.servers.rocketmq import RocketMQServer

sys.path.append(str(Path(__file__).resolve().parents[2] / "connectors" / "kafka" / "tests"))

from kafka_world import KafkaWorld

ROOT = Path(__file__).resolve().parents[2]
QUEUES = 4
KEYS = 97
_BURSTS_PER_SECOND = 20
_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


class Broker(ABC):
    """What the events come from: how a job reads it, and how a test writes to it."""

    source: str
    topic: str
    source_options: dict[str, Any]

    @abstractmethod
    def write(self, queue: int, bodies: Sequence[bytes]) -> None:
        """Write events to a queue."""

    @abstractmethod
    def close(self) -> None: ...


class OnKafka(Broker):
    source = "kafka"

    def __init__(self, server: KafkaServer, name: str, **options: Any) -> None:
        self.topic = name
        self._world = KafkaWorld(server.bootstrap)
        self._world.create_topic(name, QUEUES)
        self.source_options = {
            "servers": self._world.servers, "group": name, "session_timeout": "6 s", "metadata_interval": "2 s",
            **options,
        }  # fmt: skip

    def write(self, queue: int, bodies: Sequence[bytes]) -> None:
        self._world.write(self.topic, bodies, partition=queue)

    def close(self) -> None:
        self._world.close()


class OnRocketMQ(Broker):
    source = "rocketmq"

    def __init__(self, server: RocketMQServer, name: str) -> None:
        self.topic = name
        self._client = Client(server.name_server, timeout=timedelta(seconds=60))
        self._client.create_topic(name, QUEUES)
        self._client.create_group(name)
        self._queues = self._client.queues(name)
        self.source_options = {"name_servers": server.name_server, "group": name, "request_timeout": "3 s"}

    def write(self, queue: int, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._client.send(self.topic, Message(body), queue=self._queues[queue])

    def close(self) -> None:
        self._client.close()


class Feed:
    """Writes events in the background: a burst to each queue in turn, 10 ms of event time from one to the next."""

    def __init__(self, broker: Broker, per_second: int) -> None:
        self.sent = 0
        self._broker = broker
        self._burst = max(1, per_second // _BURSTS_PER_SECOND)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Write what closes all windows, and end; return how many events there are. Raises what went wrong."""
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        for queue in range(QUEUES):
            self._broker.write(queue, [json.dumps({"k": "last", "n": 0, "ts": "2030-01-01T00:00:00Z"}).encode()])
        return self.sent

    def _run(self) -> None:
        turn = 0
        try:
            while not self._stop.wait(1 / _BURSTS_PER_SECOND):
                numbers = range(self.sent, self.sent + self._burst)
                self._broker.write(turn % QUEUES, [json.dumps(event(number)).encode() for number in numbers])
                self.sent += self._burst
                turn += 1
        except BaseException as error:  # raised by stop
            self._failure = error


def event(number: int) -> dict[str, Any]:
    """Return an event; its time is that of its number, so that all queues are about equally far."""
    return {"k": key(number), "n": number, "ts": _time(number).isoformat()}


def key(number: int) -> str:
    return f"key-{number * 7 % KEYS}"


def _time(number: int) -> datetime:
    return _BEGIN + timedelta(milliseconds=10 * number)


def modelled_pairs(count: int) -> Counter[tuple[str, int, int]]:
    """Return the pairs that must be in the other table: events of a key are ``KEYS`` apart, in turn even and odd."""
    pairs = [(number, number + KEYS) for number in range(count - KEYS)]
    return Counter((key(a), a, b) if a % 2 == 0 else (key(a), b, a) for a, b in pairs)


def modelled_counts(count: int) -> Counter[tuple[str, datetime, int, int]]:
    """Return the windows that must be in the table, each once."""
    numbers: dict[tuple[str, datetime], list[int]] = {}
    for number in range(count):
        start = _BEGIN + timedelta(seconds=number * 10 // 10_000 * 10)
        numbers.setdefault((key(number), start.replace(tzinfo=None)), []).append(number)
    return Counter((k, start, len(found), sum(found)) for (k, start), found in numbers.items())


class Instance:
    """A process that runs the job."""

    def __init__(self, given: dict[str, Any], log: Path, *, module: str = "tests.chaos.elastic_job") -> None:
        self.log = log
        #: What a test calls it.
        self.name = ""
        command = [sys.executable, "-m", module, json.dumps(given)]
        with open(log, "ab") as stderr:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
            )

    def wait_until_started(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"started\n", self.printed

    def kill(self) -> None:
        """``kill -9``."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._forget()

    def stop(self) -> None:
        """Let it leave and end, and see that it does so well."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=120) == 0, self.printed
        self._forget()

    @property
    def printed(self) -> str:
        return self.log.read_text()[-3000:]

    def _forget(self) -> None:
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class ElasticWorld:
    """A broker, a table, and instances of the job between them."""

    def __init__(self, broker: Broker, mysql: MySQLServer, directory: Path, **run: Any) -> None:
        self.broker = broker
        self.directory = directory
        self.running: list[Instance] = []
        self.started = 0
        self._run = run
        self._server = mysql
        self._database = f"chaos_{broker.topic}"[:60]
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self._database}")
            cursor.execute(f"CREATE TABLE {self._database}.pairs (k VARCHAR(32), l BIGINT, r BIGINT) ENGINE = InnoDB")
            cursor.execute(
                f"CREATE TABLE {self._database}.counts "
                "(k VARCHAR(32), window_start DATETIME(6), n BIGINT, s BIGINT) ENGINE = InnoDB"
            )

    def start(
        self, name: str = "", *, shared: bool = True, source_options: Mapping[str, Any] | None = None, **run: Any
    ) -> Instance:
        """Start an instance, without waiting for it; ``shared``: one of several on the light backend."""
        server = self._server
        mysql = {
            "host": server.host, "port": server.port, "user": server.user,
            "password": server.password, "database": self._database,
        }  # fmt: skip
        light = {
            "reliability": "high", "shards": 3, "checkpoint_interval": "300 ms", "max_batch_records": 500,
            "checkpoint": str(self.directory / f"instance-{self.started}"),
        }  # fmt: skip
        given = {**(light if shared else {}), **self._run, **run}
        broker = self.broker
        options = {**broker.source_options, **(source_options or {})}
        instance = Instance(
            {"source": broker.source, "topic": broker.topic, "source_options": options, "mysql": mysql, "run": given},
            self.directory / f"instance-{self.started}.log",
        )  # fmt: skip
        instance.name = name
        self.started += 1
        self.running.append(instance)
        return instance

    def kill(self, instance: Instance) -> None:
        self.running.remove(instance)
        instance.kill()

    def stop(self, instance: Instance) -> None:
        self.running.remove(instance)
        instance.stop()

    def counts(self) -> Counter[tuple[Any, ...]]:
        """Return the windows that are in the table."""
        return self._rows("SELECT k, window_start, n, CAST(s AS SIGNED) FROM {}.counts")

    def pairs(self) -> Counter[tuple[Any, ...]]:
        """Return the pairs that are in the table."""
        return self._rows("SELECT k, l, r FROM {}.pairs")

    def pairs_of_keys(self) -> dict[str, int]:
        """Return how many pairs of each key are in the table."""
        return dict(self._rows("SELECT k, COUNT(*) FROM {}.pairs GROUP BY k").keys())

    def expect_exactly(self, events: int, *, seconds: float = 120) -> str:
        """Wait until every row is there; fail when one is missing, twice or wrong. Return figures to show."""
        deadline = time.monotonic() + seconds
        shown = []
        for what, wanted, look in (
            ("windows", modelled_counts(events), self.counts), ("pairs", modelled_pairs(events), self.pairs),
        ):  # fmt: skip
            while (found := look()).total() < wanted.total() and time.monotonic() < deadline:
                for instance in self.running:
                    assert instance.process.poll() is None, instance.printed
                time.sleep(0.2)
            missing, extra = wanted - found, found - wanted
            assert not missing, (
                f"{len(missing)} of {len(wanted)} {what} missing: {sorted(missing)[:3]}; {sorted(extra)[:3]}"
            )
            assert not extra, f"{len(extra)} {what} twice or wrong: {sorted(extra)[:5]}"
            shown.append(f"{wanted.total():,} {what} once")
        return f"{events:,} events, " + ", ".join(shown)

    def close(self) -> None:
        for instance in list(self.running):
            self.kill(instance)
        self.broker.close()
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {self._database}")

    def _rows(self, query: str) -> Counter[tuple[Any, ...]]:
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(query.format(self._database))
            return Counter(cursor.fetchall())

    def _connect(self) -> Any:
        server = self._server
        return pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
        )


MakeWorld = Callable[..., ElasticWorld]
