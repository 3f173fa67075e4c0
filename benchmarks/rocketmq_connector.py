"""Messages per second out of RocketMQ: the source, against a bare pull loop and rocketmq-client-python's push consumer.

    python -m benchmarks.rocketmq_connector [quick] [--messages 400000] [--rounds 5]

All in one run on one server: ``HEADRACE_TEST_ROCKETMQ=host:port``, or one that is started for it. The bare loop sends one pull
after the other, as the protocol suggests, over the same connection code, and looks at nothing but where to go on. Server and
client share the machine, so besides messages per second of wall time there is the client's own CPU time. Each way is measured in
turn; a ratio is the median of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import headrace as hr
from headrace.interfaces.backend import JobHandle
from headrace.interfaces.source import EARLIEST
from headrace.testing import MemorySink
from headrace_rocketmq import Client, Message
from headrace_rocketmq.settings import RocketMQSourceSettings
from headrace_rocketmq.source import RocketMQSource

from benchmarks.rocketmq_client import read_bare
from tests.servers.rocketmq import RocketMQServer
from tests.servers.rocketmq_native_library import native_library_directory
from tests.servers.sharing import own_server

QUEUES = 4
MESSAGE_BYTES = 200
_PATIENCE = timedelta(seconds=120)
_WAIT = timedelta(milliseconds=100)


@dataclass(frozen=True)
class Took:
    """What one way has taken in one round, for so many messages."""

    messages: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


@contextlib.contextmanager
def rocketmq_server() -> Iterator[RocketMQServer]:
    address = os.environ.get(RocketMQServer.variable)
    if address:
        yield RocketMQServer.from_variable(address)
    else:
        with own_server(RocketMQServer) as server:
            yield server


class Ways:
    """The ways of reading one topic, from its beginning to its end."""

    def __init__(self, client: Client, name_server: str, topic: str, messages: int) -> None:
        self._client = client
        self._name_server = name_server
        self._topic = topic
        self._messages = messages

    def fill(self) -> None:
        """Make the topic, with bodies that are JSON."""
        for queue in self._client.create_topic(self._topic, QUEUES):
            each = self._messages // QUEUES
            for begin in range(0, each, 20_000):
                ids = range(begin, min(each, begin + 20_000))
                padding = "x" * (MESSAGE_BYTES - 30)
                bodies = [f'{{"id": {number:10}, "text": "{padding}"}}'.encode() for number in ids]
                self._client.send_many(self._topic, [Message(body) for body in bodies], queue=queue)

    def source(self) -> Took:
        """The source's readers in turn, as the light backend polls them."""
        given = {"topic": self._topic, "name_servers": self._name_server, "group": f"g-{secrets.token_hex(4)}"}
        with closing(RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq"))) as source:
            readers = [source.open(queue, EARLIEST) for queue in source.queues()]
            begun = _Stopwatch(self._messages)
            left = self._messages
            while left:
                for reader in readers:
                    raw = reader.poll(10_000, timedelta(0) if len(readers) > 1 else _WAIT)
                    left -= 0 if raw is None else len(raw)
            return begun.stop()

    def light(self) -> Took:
        """A whole job on the light backend: JSON decoded, into memory."""
        found = MemorySink()
        job = self._job(found)
        begun = _Stopwatch(self._messages)
        report = job.run("light", show_progress=False)
        took = begun.stop()
        assert report.records_read == self._messages
        return took

    def bare(self) -> Took:
        """One pull after the other, one queue after the other, in one thread."""
        begun = _Stopwatch(self._messages)
        for queue in self._client.queues(self._topic):
            read_bare(self._client, queue, self._messages // QUEUES)
        return begun.stop()

    def native(self, threads: int) -> Took:
        """rocketmq-client-python as one would use it, every message acknowledged at once."""
        group = self._new_group()
        command = [sys.executable, "-m", "benchmarks.rocketmq_native", self._name_server, self._topic, group]
        environment = {**os.environ, "LD_LIBRARY_PATH": str(native_library_directory())}
        done = subprocess.run(
            [*command, str(self._messages), str(threads)], env=environment, capture_output=True, text=True, check=True
        )
        figures = json.loads(done.stdout.splitlines()[-1])
        return Took(self._messages, figures["seconds"], figures["cpu_seconds"])

    def native_driver(self) -> Took:
        """The source with driver="native", in a job on the light backend; a tenth of the messages."""
        found, count = MemorySink(), self._messages // 10
        job = self._job(found, group=self._new_group(), driver="native", native_library=str(native_library_directory()))
        with job.start("light") as handle:
            _wait_for(found, 1, handle)
            begun = _Stopwatch(count)
            _wait_for(found, count, handle)
            return begun.stop()

    def _job(self, sink: MemorySink, **options: str) -> hr.Job:
        given = {"name_servers": self._name_server, "group": f"g-{secrets.token_hex(4)}", **options}
        stream = hr.stream("benchmark", "rocketmq").from_rocketmq(
            self._topic, format="json", schema={"id": "int64", "text": "string"}, **given
        )
        job: hr.Job = stream.to(sink)
        return job

    def _new_group(self) -> str:
        """A group that begins at the first message."""
        group = f"g-{secrets.token_hex(4)}"
        self._client.create_group(group)
        self._client.commit_offsets(group, dict.fromkeys(self._client.queues(self._topic), 0))
        return group


class _Stopwatch:
    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._cpu, self._begun = time.process_time(), time.perf_counter()

    def stop(self) -> Took:
        return Took(self._messages, time.perf_counter() - self._begun, time.process_time() - self._cpu)


def _wait_for(sink: MemorySink, count: int, handle: JobHandle) -> None:
    deadline = time.monotonic() + 300
    while len(sink.rows) < count:
        if handle.status().error is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{len(sink.rows)} of {count} messages came: {handle.status().error}")
        time.sleep(0.01)


def main() -> None:
    """Measure and print: each way's median, and its ratio to the bare loop and to the native client."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quick", nargs="?", choices=["quick"], help="few messages, one round: does it run?")
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    messages, rounds = (20_000, 1) if given.quick else (given.messages, given.rounds)
    with rocketmq_server() as server, Client(server.name_server, timeout=_PATIENCE) as client:
        ways = Ways(client, server.name_server, f"benchmark-{secrets.token_hex(4)}", messages)
        ways.fill()
        named: dict[str, Callable[[], Took]] = {
            "source": ways.source,
            "job on the light backend, JSON decoded": ways.light,
            "bare pull loop": ways.bare,
            "rocketmq-client-python": partial(ways.native, 0),
            "rocketmq-client-python, 1 thread": partial(ways.native, 1),
            "source, driver native, in a job": ways.native_driver,
        }
        took: dict[str, list[Took]] = {name: [] for name in named}
        for number in range(rounds):
            for name, way in named.items():
                took[name].append(way())
                print(f"round {number + 1}: {name}: {took[name][-1].rate:,.0f}/s", flush=True)
    for name, found in took.items():
        cpu = statistics.median(one.cpu_seconds / one.messages * 1e6 for one in found)
        ratios = [
            statistics.median(one.rate / other.rate for one, other in zip(found, took[against], strict=True))
            for against in ("bare pull loop", "rocketmq-client-python")
        ]
        rate = statistics.median(one.rate for one in found)
        print(f"| {name} | {rate:,.0f} | {cpu:.1f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")


if __name__ == "__main__":
    main()
