"""Starts, kills and stops instances of a job that are processes of their own, while records are written."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka_world import KafkaWorld

from tests.eventually import eventually

_SCRIPT = Path(__file__).with_name("instance.py")
_ROOT = Path(__file__).parents[3]


class Instance:
    """A process that runs the job."""

    def __init__(
        self, options: dict[str, Any], environment: dict[str, str] | None = None, *, script: Path = _SCRIPT
    ) -> None:
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore::DeprecationWarning", str(script), json.dumps(options)],
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env={**(environment or os.environ), "PYTHONPATH": str(_ROOT)},  # of what the jobs of tests have in common
            start_new_session=True,  # with the Java and the Python workers that Spark starts, if it is Spark
        )

    @property
    def printed(self) -> str:
        """What it has printed so far."""
        # Not by seek(): the process writes through the same open file, whose place it shares with us.
        file = self.output.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

    def wait_until_started(self) -> None:
        """Return when the job runs."""
        eventually(lambda: "started" in self.printed or self.process.poll() is not None, "the instance starts")
        assert self.process.poll() is None, self.printed

    def kill(self) -> None:
        """As ``kill -9``. It must have been alive."""
        assert self.process.poll() is None, self.printed
        self._kill()

    def stop(self) -> None:
        """Let it stop gracefully."""
        assert self.process.poll() is None, self.printed
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(180) == 0, self.printed

    def close(self) -> None:
        """End it, whatever it does."""
        self._kill()
        self.output.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Numbers:
    """Writes growing numbers into the partitions of a topic, in a thread of its own."""

    def __init__(self, world: KafkaWorld, topic: str, partitions: int, *, per_second: int) -> None:
        self._world, self._topic, self._partitions = world, topic, partitions
        self._pause = 0.05
        #: How many consecutive numbers go to a partition before it is the next one's turn.
        self.count = max(1, round(per_second * self._pause))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.written = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> int:
        """End, and return how many there are: 0 up to that."""
        self._stopping.set()
        self._thread.join()
        return self.written

    def _run(self) -> None:
        turn = 0
        while not self._stopping.wait(self._pause):
            numbers = range(self.written, self.written + self.count)
            values = [json.dumps({"n": number}).encode() for number in numbers]
            self._world.write(self._topic, values, partition=turn % self._partitions)
            self.written += self.count
            turn += 1


CountInto = Callable[..., Numbers]


def copied(world: KafkaWorld, target: str) -> Counter[int]:
    """Return how often each number is in the target, as readers with read_committed see it."""
    return Counter(json.loads(record.value)["n"] for record in world.read(target) if record.value is not None)


def expect_copied_once(world: KafkaWorld, target: str, count: int, *, seconds: float = 120.0) -> None:
    """Wait until all numbers are in the target, and fail when one is there twice."""
    found: Counter[int] = Counter()

    def all_there() -> bool:
        found.clear()
        found.update(copied(world, target))
        return len(found) >= count

    def missing() -> str:
        numbers = [number for number in range(count) if number not in found]
        return f"{len(numbers)} are missing: {numbers[:10]}"

    eventually(all_there, f"{count} numbers", shown=missing, seconds=seconds, pause_seconds=0.2)
    twice = [number for number, times in found.items() if times > 1]
    assert not twice, f"{len(twice)} are there more than once: {twice[:10]}"
    assert len(found) == count


def one_of(choice: random.Random, instances: list[Instance]) -> Instance:
    """Take one instance out of a list."""
    return instances.pop(choice.randrange(len(instances)))
