"""The real logrotate rotates a log that is written to all the time, while the job that reads it runs, is killed, and starts again."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.servers.programs import find_program, require_program

#: CI installs it; elsewhere the tests need it to be there.
REQUIRED = os.environ.get("HEADRACE_TEST_SERVERS") == "required"
LOGROTATE = require_program("logrotate", "logrotate") if REQUIRED else find_program("logrotate")
CHILD = Path(__file__).with_name("logrotate_child.py")
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

pytestmark = pytest.mark.skipif(LOGROTATE is None, reason="logrotate is not installed (Debian package logrotate)")


class Writer:
    """Appends numbered lines all the time, in a thread, as a service does that opens its log again when it is told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.lock = threading.Lock()
        self._stop = threading.Event()
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        made = random.Random(7)
        while not self._stop.wait(0.002):
            with self.lock:
                self.write(made.randrange(1, 20))

    def write(self, count: int) -> None:
        self._file.write(b"".join(line(self.count + number) for number in range(count)))
        self.count += count

    def reopen(self) -> None:
        self._file.close()
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._file.close()


def line(number: int) -> bytes:
    return b"2026-01-31T10:00:00Z host service[123]: line %d of the log\n" % number


class Rotation:
    """A log, its writer, logrotate with the given directives, and the job that copies the lines."""

    def __init__(self, directory: Path, directives: str) -> None:
        (directory / "logs").mkdir()
        self.log = directory / "logs" / "app.log"
        self.out = directory / "out"
        self._state = directory / "state"
        self._configuration = directory / "logrotate.conf"
        self._configuration.write_text(f"{self.log} {{\n rotate 1000\n missingok\n {directives}\n}}\n")
        self._status = directory / "logrotate.status"
        self.writer = Writer(self.log)
        self._job: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, str(CHILD), str(self.log), str(self.out), str(self._state)]
        self._job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._job.stdout is not None
        assert self._job.stdout.readline() == "started\n"

    def kill(self) -> None:
        assert self._job is not None
        assert self._job.stdout is not None
        assert self._job.poll() is None, "the job has ended by itself"
        self._job.kill()
        self._job.wait()
        self._job.stdout.close()
        self._job = None

    def rotate(self) -> None:
        assert LOGROTATE is not None
        subprocess.run([LOGROTATE, "-f", "-s", self._status, self._configuration], check=True)

    def rotate_and_reopen(self, *, late: int = 0) -> None:
        """Rotate as for a service that is quick to open its log again, or writes ``late`` lines to the old file before."""
        with self.writer.lock:
            self.rotate()
            self.writer.write(late)
            self.writer.reopen()

    def found(self) -> list[bytes]:
        parts = sorted(self.out.glob("part-*"))
        return b"".join(part.read_bytes() for part in parts).splitlines(keepends=True)

    def kept(self) -> set[bytes]:
        """Return the lines that are in the log and its rotated files."""
        lines: set[bytes] = set()
        for path in self.log.parent.iterdir():
            with _OPENERS.get(path.suffix, open)(path, "rb") as file:
                lines.update(file)
        return lines

    def stored_rotations(self) -> int:
        """Return how many rotations the job has read over, by its last checkpoint."""
        try:
            stored = json.loads((self._state / "light" / "checkpoint.json").read_bytes())
        except FileNotFoundError:
            return 0
        return max((queue["hint"]["generation"] for queue in stored["queues"]), default=0)

    def reads_on(self) -> None:
        """Wait until more was read than now."""
        before = len(self.found())
        eventually(lambda: len(self.found()) > before, "more lines")

    def close(self) -> None:
        self.writer.stop()
        if self._job is not None:
            self._job.kill()
            self._job.wait()


@contextmanager
def rotation(directory: Path, directives: str) -> Iterator[Rotation]:
    made = Rotation(directory, directives)
    try:
        yield made
    finally:
        made.close()


RENAMING = {
    "create": "create\n nocompress",
    "compress": "create\n compress",
    "delaycompress": "create\n compress\n delaycompress",
    "xz": "create\n compress\n compresscmd /usr/bin/xz\n compressext .xz",
    "dateext": "create\n dateext\n dateformat -%Y%m%d-%s\n compress\n delaycompress",
}


@pytest.mark.parametrize("way", RENAMING)
def test_every_line_comes_once_when_the_log_is_renamed(tmp_path: Path, way: str) -> None:
    if way == "xz" and find_program("xz") is None:
        pytest.skip("xz is not installed")
    with rotation(tmp_path, RENAMING[way]) as world:
        world.start()
        world.reads_on()
        world.rotate_and_reopen()
        world.reads_on()
        world.kill()
        for late in (5, 0, 3):  # while the job is down, and the old file gets lines after it was renamed
            if way == "dateext":  # a second rotation within the second of the name is refused
                eventually(lambda: not names_of_this_second(world.log), "the next second")
            world.rotate_and_reopen(late=late if "delay" in way or way == "create" else 0)
        world.start()
        world.reads_on()
        world.kill()
        world.start()
        with world.writer.lock:
            total = world.writer.count
        eventually(lambda: len(world.found()) >= total, "all lines")
        world.kill()
        found = world.found()
        assert found == [line(number) for number in range(len(found))]


def names_of_this_second(log: Path) -> list[str]:
    """Return the rotated files whose time is this second, or was until just now: logrotate's clock may be a tick behind."""
    now = time.time()
    return [path.name for path in log.parent.iterdir() for at in (now, now - 0.5) if f"-{int(at)}" in path.name]


@pytest.mark.parametrize("compress", ["nocompress", "compress", "compress\n delaycompress"])
def test_copytruncate_doubles_nothing_and_loses_only_what_no_file_has(tmp_path: Path, compress: str) -> None:
    with rotation(tmp_path, f"copytruncate\n {compress}") as world:
        world.start()
        for _ in range(2):
            world.reads_on()
            world.rotate()  # the writer goes on writing between copy and truncation
        world.reads_on()
        # Before it has this checkpoint a killed job cannot read again what only it has seen: see the page.
        eventually(lambda: world.stored_rotations() == 2, "a checkpoint after the rotations")
        world.kill()
        for _ in range(2):
            world.rotate()
        world.start()
        world.reads_on()
        with world.writer.lock:
            last = line(world.writer.count - 1)
        eventually(lambda: last in world.found(), "the last line")
        world.kill()
        world.writer.stop()
        found = world.found()
        numbers = [int(each.split()[-4]) for each in found]
        assert numbers == sorted(set(numbers))
        end = numbers[-1]
        kept = {int(each.split()[-4]) for each in world.kept()}
        assert {number for number in kept if number <= end} <= set(numbers)
