"""Which process runs a task, and that it ends when Spark's worker ends, and the other way round."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from headrace_spark.processes import sticky_workers
from sticky_program import NUMBER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers run their tasks themselves")
PROGRAM = str(Path(__file__).parent / "sticky_program.py")
SECONDS_MAX = 60
_attempts = iter(range(1, 1_000_000))


class Worker:
    """A worker as Java sees it: its process id and the socket to it."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.connect(str(path))
        self.process_id = self._number()

    def run(self, partition: int, do: str = "tell", attempt: int | None = None) -> int:
        """Give a task; return the id of the process that runs it."""
        told = json.dumps({"taskAttemptId": next(_attempts) if attempt is None else attempt, "do": do}).encode()
        self.socket.sendall(struct.pack("!iii", -9, len(told) + 4, partition) + told)
        return self._number()

    def _number(self) -> int:
        return int(NUMBER.unpack(self.socket.recv(NUMBER.size, socket.MSG_WAITALL))[0])

    def has_ended(self) -> bool:
        return self.socket.recv(1) == b""


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headrace-") as name:
        yield Path(name) / "socket"


@pytest.fixture
def program(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    variables = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "SPARK_REUSE_WORKER": "1"}
    command = [sys.executable, PROGRAM, str(place)]
    with subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"ready\n"
        yield started
        started.kill()


@pytest.fixture
def new(program: subprocess.Popen[bytes], place: Path) -> Iterator[Callable[[], Worker]]:
    made: list[Worker] = []

    def make() -> Worker:
        made.append(Worker(place))
        return made[-1]

    yield make
    for worker in made:
        worker.socket.close()


def ended(process_id: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(process_id).wait(SECONDS_MAX)
    return not psutil.pid_exists(process_id)


def test_a_partition_stays_with_its_process_whichever_worker_gets_the_task(new: Callable[[], Worker]) -> None:
    one, other = new(), new()
    first, second = one.run(0, "wait"), other.run(1, "wait")
    assert len({first, second, one.process_id, other.process_id}) == 4
    for worker in (one, other):
        worker.socket.sendall(b"x")
    assert (one.run(0), other.run(1)) == (first, second), "a worker answers when it has done what it did before"
    for _ in range(3):
        assert (other.run(0), one.run(1), one.run(0), other.run(1)) == (first, second, first, second)


def test_each_of_two_processes_of_a_task_keeps_its_place(new: Callable[[], Worker]) -> None:
    one, other = new(), new()
    reads, writes = one.run(0, "wait", attempt=7), other.run(0, "wait", attempt=7)
    assert reads != writes
    for worker in (one, other):
        worker.socket.sendall(b"x")
    # Now the first one has ended before the second one is asked for.
    assert (one.run(0, attempt=8), other.run(0, attempt=8)) == (reads, writes)
    assert (other.run(0, attempt=9), one.run(0, attempt=9)) == (reads, writes)


def test_another_process_is_used_while_the_own_one_is_busy(new: Callable[[], Worker]) -> None:
    one, other = new(), new()
    own = one.run(0, "wait")
    assert other.run(0) != own
    one.socket.sendall(b"x")


def test_more_partitions_than_workers_make_no_more_processes(new: Callable[[], Worker]) -> None:
    one, other = new(), new()
    one.run(0, "wait")
    found = {other.run(partition) for partition in range(1, 12)}
    assert len(found) == 1
    one.socket.sendall(b"x")


def test_a_process_that_dies_ends_its_worker(new: Callable[[], Worker]) -> None:
    worker = new()
    died = worker.run(0, "die")
    assert worker.has_ended()
    assert ended(died)
    assert ended(worker.process_id)
    again = new()
    assert again.run(0) != died


def test_a_worker_that_is_killed_takes_its_process_along(new: Callable[[], Worker]) -> None:
    worker, other = new(), new()
    running, idle = worker.run(0, "wait"), other.run(1)
    os.kill(worker.process_id, signal.SIGKILL)
    assert ended(running)
    assert other.run(1) == idle


def test_a_task_that_fails_is_the_last_of_its_process(new: Callable[[], Worker]) -> None:
    worker, other = new(), new()
    failed = worker.run(0, "fail")
    assert worker.has_ended()
    assert ended(failed)
    assert other.run(0) != failed


def test_workers_run_their_tasks_themselves_where_the_dispatcher_was_killed(new: Callable[[], Worker]) -> None:
    busy, other = new(), new()
    running = busy.run(0, "wait")
    dispatcher = psutil.Process(running).parent()
    assert dispatcher is not None
    dispatcher.kill()
    assert busy.has_ended(), "nobody watches its process any more, which ends too"
    assert ended(running)
    assert other.run(0) == other.process_id


def test_everything_ends_with_the_daemon_and_its_workers(
    program: subprocess.Popen[bytes], new: Callable[[], Worker]
) -> None:
    worker = new()
    process_id = worker.run(0)
    dispatcher = psutil.Process(process_id).parent()
    assert dispatcher is not None
    program.kill()
    assert worker.run(0) == process_id
    worker.socket.close()
    assert ended(process_id)
    assert ended(dispatcher.pid)


def test_where_java_talks_through_tcp_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_UNIX_DOMAIN_ENABLED", "false")
    assert sticky_workers.begin(lambda sock, authenticated: 0) is None
