"""The broker is stopped or killed again and again while messages are on their way, and the job is killed between."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace.foundation.errors import RetriableError
from mqtt_world import Sender
from test_mqtt_source import start_job

from tests.eventually import eventually
from tests.servers.fixtures import StartMosquittoServer
from tests.servers.mosquitto import MosquittoServer

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]
_TAKEN = 0
_AT_ONCE = 20
TURNS = pytest.mark.parametrize("turns", [1, pytest.param(3, marks=pytest.mark.slow)])


class _Publisher:
    """Publishes numbers with QoS 1, each until the broker has said that it keeps it for a subscriber."""

    def __init__(self, server: MosquittoServer, topic: str) -> None:
        self._server, self._topic = server, topic
        self._ended = threading.Event()
        self.taken: list[int] = []
        self.again: set[int] = set()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _publish(self) -> None:
        wanted = list(range(_AT_ONCE))
        while not self._ended.is_set():
            try:
                sender = Sender(self._server, publish_timeout="5 s")
            except RetriableError:
                self._ended.wait(0.05)
                continue
            try:
                while not self._ended.is_set():
                    outcomes = sender.send(self._topic, [b'{"n": %d}' % number for number in wanted])
                    self.taken += [number for number, outcome in zip(wanted, outcomes, strict=True) if not outcome]
                    refused = [number for number, outcome in zip(wanted, outcomes, strict=True) if outcome != _TAKEN]
                    begin = max(wanted) + 1
                    wanted = refused + list(range(begin, begin + _AT_ONCE - len(refused)))
                    self._ended.wait(0.002)
            except RetriableError:
                self.again.update(wanted)  # nobody knows which of them the broker has taken
            finally:
                sender.close()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


class _Job:
    """The job, which can be killed, and its rows."""

    def __init__(self, directory: Path, server: MosquittoServer, topic: str) -> None:
        self._directory, self._server, self._topic = directory, server, topic
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = start_job(self._directory, self._server, self._topic, "start")

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def finish(self) -> None:
        assert start_job(self._directory, self._server, self._topic, "end").wait() == 0

    def rows(self) -> Counter[int]:
        lines = [line for part in (self._directory / "out").glob("*.json") for line in part.read_bytes().splitlines()]
        return Counter(json.loads(line)["n"] for line in lines)

    def wait_for_more(self) -> None:
        seen = len(self.rows())
        eventually(lambda: len(self.rows()) > seen + 100, "rows come", seconds=120)


@pytest.fixture
def job(tmp_path: Path, start_mosquitto_server: StartMosquittoServer, topic: str) -> Iterator[_Job]:
    made = _Job(tmp_path, start_mosquitto_server(), topic)
    yield made
    made.kill()


@TURNS
def test_a_broker_that_keeps_its_messages_when_it_stops(job: _Job, turns: int) -> None:
    """In each turn: the broker alone, the job while the broker is away, the broker while the job is away."""
    server = job._server
    job.start()
    publisher = _Publisher(server, job._topic)
    try:
        job.wait_for_more()
        for _ in range(turns):
            server.stop()
            server.start()
            job.wait_for_more()
            server.stop()
            job.kill()
            job.start()
            server.start()
            job.wait_for_more()
            job.kill()
            seen = len(publisher.taken)
            eventually(lambda: len(publisher.taken) > seen + 100, "messages wait for the job")  # noqa: B023
            server.stop()
            server.start()
            job.start()
            job.wait_for_more()
    finally:
        publisher.end()
    taken = set(publisher.taken)
    eventually(lambda: taken <= set(job.rows()), "all messages come", seconds=120)
    job.kill()
    job.finish()
    found = job.rows()
    assert taken <= set(found)
    assert set(found) <= taken | publisher.again


@TURNS
def test_a_broker_that_is_killed_and_forgets_its_sessions(job: _Job, turns: int) -> None:
    """What it had not yet delivered is lost with it, and nothing else; the job subscribes anew and goes on."""
    server = job._server
    job.start()
    publisher = _Publisher(server, job._topic)
    may_be_lost: set[int] = set()
    try:
        job.wait_for_more()
        for turn in range(turns + 1):
            server.kill()
            may_be_lost |= set(publisher.taken) - set(job.rows())
            if turn % 2:
                job.kill()
                job.start()
            server.start()
            job.wait_for_more()
    finally:
        publisher.end()
    taken = set(publisher.taken) - may_be_lost
    eventually(lambda: taken <= set(job.rows()), "all other messages come", seconds=120)
    job.kill()
    job.finish()
    found = job.rows()
    assert taken <= set(found)
    assert set(found) <= set(publisher.taken) | publisher.again
