"""A box at the edge whose broker is away: all that senders were answered is in Kafka or RocketMQ when it is back, also after kills."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
import urllib3
from headrace_buffer.log import RecordLog, WhenFull

from tests.eventually import eventually
from tests.servers.fixtures import StartKafkaServer, StartRocketMQServer

JOB = """
import json, sys
import headrace as hr
given = json.loads(sys.argv[1])
buffer = {"buffer": "buffer", **given["buffer"]}
stream = hr.stream("plant", "forward").from_http(port=given["port"], format="json", schema={"n": "int64", "pad": "string"}, **buffer)
options = {"format": "json", "retry_timeout": "7 days", "flush_interval": "50 ms", "create_topic": True, **given["servers"]}
job = getattr(stream.select("n"), "to_" + given["broker"])(given["topic"], **options)
job.start("light", checkpoint="state", checkpoint_interval="100 ms", start_timeout="7 days").wait()
"""
ROW_BYTES = 1_000


class Box:
    """A job in a process of its own, which takes records over HTTP and forwards them to a broker."""

    def __init__(self, directory: Path, broker: str, servers: dict[str, str], topic: str, **buffer: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        (directory / "job.py").write_text(JOB)
        given = {"port": self.port, "broker": broker, "servers": servers, "topic": topic, "buffer": buffer}
        self._command = [sys.executable, "job.py", json.dumps(given)]
        self._directory = directory
        self.sent = 0
        self.start()

    def start(self) -> None:
        with (self._directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=self._directory, stderr=log)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def send(self, count: int, *, pad: str = "", until: tuple[int, ...] = (200,)) -> None:
        """Send records in one request until it is answered so."""
        numbers = range(self.sent, self.sent + count)
        body = "".join(json.dumps({"n": n, "pad": pad}) + "\n" for n in numbers).encode()
        with urllib3.PoolManager(retries=False) as pool:

            def answered() -> bool:
                headers = {"content-type": "application/x-ndjson"}
                try:
                    address = f"http://127.0.0.1:{self.port}/"
                    return pool.request("POST", address, body=body, headers=headers).status in until
                except urllib3.exceptions.HTTPError:
                    return False

            eventually(answered, "the box has answered")
        self.sent += count


def arrived(broker: str, servers: dict[str, str], topic: str, group: str) -> list[int]:
    """Return what the topic has, as a group that has read nothing."""
    given: dict[str, Any] = {**servers, "group": group, "format": "json", "schema": {"n": "int64"}}
    stream = getattr(hr.stream("plant", "check"), f"from_{broker}")(topic, **given)
    try:
        return [row["n"] for row in stream.collect().iter_rows(named=True)]
    except hr.JobError as error:
        if "there is no topic" in str(error):  # the box makes it
            return []
        raise


def forwards_all(
    server: Any, broker: str, servers: dict[str, str], fresh_name: Callable[[str], str], directory: Path
) -> None:
    topic = fresh_name("forward")
    box = Box(directory, broker, servers, topic)

    def there() -> list[int]:
        return arrived(broker, servers, topic, fresh_name("check"))

    try:
        box.send(100)
        eventually(lambda: len(set(there())) == 100, "what was sent while the broker was there", pause_seconds=0.2)
        server.stop()
        for _ in range(3):
            box.send(200)
            box.kill()
            box.start()
        box.send(100)
        server.start()
        eventually(lambda: len(set(there())) == box.sent, "everything", pause_seconds=0.2)
    finally:
        box.kill()
    assert sorted(set(there())) == list(range(800))


@pytest.mark.timeout(300)
def test_kafka_is_away(start_kafka_server: StartKafkaServer, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    server = start_kafka_server()
    forwards_all(server, "kafka", {"servers": server.bootstrap}, fresh_name, tmp_path)


@pytest.mark.timeout(300)
def test_rocketmq_is_away(
    start_rocketmq_server: StartRocketMQServer, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    server = start_rocketmq_server()
    forwards_all(server, "rocketmq", {"name_servers": server.name_server}, fresh_name, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("when_full", ["drop_oldest", "drop_newest"])
def test_a_full_buffer_drops_the_oldest_or_the_newest_and_counts(
    start_rocketmq_server: StartRocketMQServer, fresh_name: Callable[[str], str], tmp_path: Path, when_full: WhenFull
) -> None:
    """4 MB come while RocketMQ is away, and the buffer may have 2 MiB: one end of them arrives, without a gap; the rest is counted."""
    server, topic = start_rocketmq_server(), fresh_name("forward")
    servers = {"name_servers": server.name_server}
    box = Box(tmp_path, "rocketmq", servers, topic, buffer_max_bytes="2 MiB", when_full=when_full)

    def there() -> set[int]:
        return set(arrived("rocketmq", servers, topic, fresh_name("check")))

    try:
        box.send(1)
        eventually(lambda: there() == {0}, "the first record", pause_seconds=0.2)
        server.stop()
        for _ in range(40):
            box.send(100, pad="x" * ROW_BYTES, until=(200,) if when_full == "drop_oldest" else (200, 429))
        box.kill()
        box.start()
        server.start()
        last = max if when_full == "drop_oldest" else min
        wanted = box.sent - 1 if when_full == "drop_oldest" else 1
        eventually(lambda: last(there() - {0}, default=-1) == wanted, "one end of the records", pause_seconds=0.2)
        box.send(1)
        eventually(lambda: box.sent - 1 in there(), "a record after the outage", pause_seconds=0.2)
    finally:
        box.kill()
    found = sorted(there() - {0, box.sent - 1})
    assert 1_000 < len(found) < 2_100
    first = box.sent - 1 - len(found) if when_full == "drop_oldest" else 1
    assert found == list(range(first, first + len(found)))
    dropped = 4_000 - len(found)
    log = RecordLog(tmp_path / "buffer", quota_bytes=2 * 1024**2, when_full=when_full)
    counted = log.status()
    log.close()
    if when_full == "drop_oldest":
        assert (counted.dropped_oldest, counted.dropped_newest) == (dropped, 0)
    else:  # saved once a second: the kill may lose the count of the last one
        assert counted.dropped_oldest == 0
        assert 0 < counted.dropped_newest <= dropped
