"""What the RocketMQ tests share: messages that keep coming, instances of the job, and what must be in the topics at the end."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.testing import MemorySink
from headrace_rocketmq import Client, Message

from tests.eventually import eventually
from tests.servers.rocketmq import RocketMQServer

ROOT = Path(__file__).resolve().parents[2]
QUEUES = 8
_BURSTS_PER_SECOND = 20


class Feed:
    """Sends numbered messages to all queues of a topic in the background, until it is stopped.

    Its client waits for a broker that is away. A message whose answer is lost is sent twice: so it is the topic that says
    what a job must give.
    """

    def __init__(self, client: Client, topic: str, per_second: int) -> None:
        self.sent = 0
        self._client = client
        self._topic = topic
        self._burst = max(1, per_second // _BURSTS_PER_SECOND)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send no more. Raises what went wrong."""
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(1 / _BURSTS_PER_SECOND):
                ids = range(self.sent, self.sent + self._burst)
                made = [Message(b'{"id": %d}' % number, queue_key=str(number % 97)) for number in ids]
                self._client.send_many(self._topic, made)
                self.sent += self._burst
        except BaseException as error:  # raised by stop
            self._failure = error


@dataclass
class World:
    """A server, two topics, a group, and the instances that work on them."""

    server: RocketMQServer
    client: Client
    source: str
    target: str
    group: str
    directory: Path
    instances: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self, name: str, *, backend: str = "light", until: str = "never", **given: Any
    ) -> subprocess.Popen[bytes]:
        """Start an instance with a checkpoint directory of its own; return when it runs, or at once if it is to end."""
        run = {
            "backend": backend,
            "until": until,
            "checkpoint": str(self.directory / f"checkpoint-{name}"),
            "checkpoint_interval": "200 ms",
            "max_batch_records": 500,
        }
        if backend == "spark":
            run["master"] = "local[2]"
        arguments = {
            "name_servers": self.server.name_server,
            "source": self.source,
            "target": self.target,
            "group": self.group,
            "instance": name,
            "run": run,
            **given,
        }
        command = [sys.executable, "-m", "tests.chaos.rocketmq_job", json.dumps(arguments)]
        with open(self.directory / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        self.instances.append(process)
        assert process.stdout is not None
        if until == "never":
            assert process.stdout.readline() == b"started\n", self.log(name)[-3000:]
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """``kill -9``."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self._forget(process)

    def leave(self, process: subprocess.Popen[bytes]) -> None:
        """Let an instance leave the group and end, and see that it does so well."""
        process.communicate(timeout=240)
        assert process.returncode == 0
        self._forget(process)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self.instances.remove(process)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def wait_until_done(self) -> None:
        """Wait until everything in the source is committed, and so is in the sinks."""
        settle(self.client, self.source)
        queues = self.client.queues(self.source)
        latest = self.client.latest_offsets(queues)
        eventually(
            lambda: self.client.committed_offsets(self.group, queues) == latest, f"all of {self.source} is committed"
        )

    def wanted(self) -> Counter[int]:
        """How often each number must be in the output."""
        return Counter(row["id"] for row in self.read(self.source, {"id": "int64"}) if row["id"] % 7 != 3)

    def expect_once(self, found: Counter[int], wanted: Counter[int]) -> None:
        assert len(wanted) > 500
        lost, doubled = wanted - found, found - wanted
        assert not lost, f"{len(lost)} rows lost, among them {sorted(lost)[:5]}"
        assert not doubled, f"{len(doubled)} rows doubled, among them {sorted(doubled)[:5]}"

    def expect_all_is_copied_once(self, sent: int) -> str:
        """Compare what a reader that drops repetitions sees in the target with the source; return figures to show."""
        settle(self.client, self.target)
        wanted = self.wanted()
        assert set(wanted) == {number for number in range(sent) if number % 7 != 3}, "the broker lost messages"
        rows = self.read(self.target, {"id": "int64"}, deduplicate=True)
        self.expect_once(Counter(row["id"] for row in rows), wanted)
        stored = sum(self.client.latest_offsets(self.client.queues(self.target)).values())
        return f"{len(rows)} rows once; {stored - len(rows)} repetitions were in the topic and dropped"

    def read(self, topic: str, schema: dict[str, str], **options: Any) -> list[dict[str, Any]]:
        """Return the rows of a topic, from its beginning."""
        found = MemorySink()
        stream = hr.stream("chaos", "read").from_rocketmq(
            topic,
            name_servers=self.server.name_server,
            group=f"{topic}-{secrets.token_hex(4)}",
            format="json",
            schema=schema,
            **options,
        )
        stream.to(found).run("light")
        return found.rows


@contextmanager
def world_of(server: RocketMQServer, fresh_name: Callable[[str], str], directory: Path) -> Iterator[World]:
    """A world with new topics; its instances are gone at the end."""
    with Client(server.name_server, timeout=timedelta(seconds=120)) as client:
        made = World(server, client, fresh_name("in"), fresh_name("out"), fresh_name("group"), directory)
        client.create_topic(made.source, QUEUES)
        client.create_topic(made.target, 4)
        client.create_group(made.group)
        try:
            yield made
        finally:
            for process in list(made.instances):
                made.kill(process)


def settle(client: Client, topic: str) -> None:
    """Wait until what the broker has acknowledged can be read: it enters messages into queues a moment later, in order."""
    name = f"{topic}-settled"
    client.create_topic(name, 1)
    sent = client.send(name, Message(b"settled"))
    eventually(lambda: client.latest_offsets([sent.queue])[sent.queue] > sent.offset, "the broker has caught up")
