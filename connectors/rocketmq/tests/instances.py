"""Processes that run the copy job, and what is in its topics."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace_rocketmq import Client, Message

from .reading import settle


def messages(first: int, count: int) -> list[Message]:
    return [
        Message(json.dumps({"number": number, "text": f"t{number}"}).encode(), queue_key=str(number))
        for number in range(first, first + count)
    ]


def numbers_in(client: Client, topic: str) -> Counter[int]:
    """How often each number is in a topic now."""
    settle(client)
    queues = client.queues(topic)
    reader = client.reader()
    latest = client.latest_offsets(queues)
    for queue in queues:
        reader.add(queue, 0, end_offset=latest[queue])
    found: Counter[int] = Counter()
    while not all(reader.is_finished(queue) for queue in queues):
        for batch in reader.poll(10_000, timedelta(seconds=1)):
            found.update(int(json.loads(body)["number"]) for body in batch.bodies)
    return found


def count_in(client: Client, topic: str) -> int:
    return sum(client.latest_offsets(client.queues(topic)).values())


class Instances:
    """Processes that run the copy job."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.processes: list[subprocess.Popen[str]] = []

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, str(Path(__file__).with_name("copy_job.py")), json.dumps(self.arguments)]
        # A session of its own, for Spark's processes to end with it.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        return process

    def end(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
