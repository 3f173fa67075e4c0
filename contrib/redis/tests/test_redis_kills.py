"""A job is killed, and its server is killed and started again, while entries come: each is there once in the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis_world import login, rows_of

from tests.eventually import eventually
from tests.servers.fixtures import StartRedisServer
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.servers
_JOB = str(Path(__file__).with_name("redis_job.py"))


class Producer:
    """Adds numbers to two streams, in a thread; knows which the server has taken. A number whose answer was lost is not added again."""

    def __init__(self, server: RedisServer) -> None:
        # The library would repeat a command whose answer was lost: an entry would be there twice.
        self._client = server.client(retry=Retry(NoBackoff(), 0))
        self.taken: list[int] = []
        self.unsure: list[int] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._add, daemon=True)
        self._thread.start()

    def _add(self) -> None:
        number = 0
        while not self._ended.wait(0.001):
            try:
                self._client.xadd(f"in:{number % 2}", {"data": b'{"n": %d}' % number})
                self.taken.append(number)
            except redis.exceptions.RedisError:
                self.unsure.append(number)
            number += 1

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()


def start_job(directory: Path, server: RedisServer, until: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, _JOB, str(directory), "in:*", "out", until]
    job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert job.stdin is not None
    job.stdin.write(json.dumps(login(server)).encode())
    job.stdin.close()
    return job


def expect_each_once(client: Any, producer: Producer) -> None:
    found = [row["n"] for row in rows_of(client, "out")]
    wanted = {number for number in producer.taken if number % 10 != 3}
    assert len(found) == len(set(found))
    assert wanted <= set(found)
    assert set(found) <= wanted | set(producer.unsure)


def test_a_job_that_is_killed(tmp_path: Path, start_redis_server: StartRedisServer) -> None:
    server = start_redis_server()
    client, producer = server.client(), Producer(server)
    try:
        for _ in range(5):
            seen = client.xlen("out")
            job = start_job(tmp_path, server, "start")
            eventually(lambda: client.xlen("out") > seen + 100, "rows are written")  # noqa: B023
            job.send_signal(signal.SIGKILL)
            job.wait()
    finally:
        producer.end()
    job = start_job(tmp_path, server, "end")
    assert job.wait() == 0
    expect_each_once(client, producer)
    assert client.xlen("in:0") + client.xlen("in:1") < len(producer.taken)  # trimmed
    client.close()


def test_a_server_that_is_killed_and_started_again(tmp_path: Path, start_redis_server: StartRedisServer) -> None:
    server = start_redis_server()
    client, producer = server.client(), Producer(server)
    job = start_job(tmp_path, server, "start")
    try:
        for _ in range(3):
            seen = client.xlen("out")
            eventually(lambda: client.xlen("out") > seen + 100, "rows are written")  # noqa: B023
            server.kill()
            server.start()
            client.close()
        seen = client.xlen("out")
        eventually(lambda: client.xlen("out") > seen + 100, "rows are written after the last start")
        producer.end()
        assert job.poll() is None
    finally:
        producer.end()
        job.kill()
        job.wait()
    assert start_job(tmp_path, server, "end").wait() == 0
    expect_each_once(client, producer)
    client.close()
