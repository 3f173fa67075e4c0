"""``kill -9`` at random moments while files are written: every record is in the output exactly once.

A writer appends records all the while; the job's process (or, on Spark, one of its Python workers) is killed again and
again; at the end one bounded run reads what is left. The short versions run in CI, the ones marked ``slow`` kill fifty
times.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.file_job import expected
from tests.chaos.workers import python_workers

ROOT = Path(__file__).resolve().parents[2]
FILES = 4
#: Every so many records a line that is no record: those must be in the dead letters exactly once.
BAD_EVERY = 997


class Feed:
    """Appends numbered records to some files in the background, a line at a time in bursts, until it is stopped."""

    def __init__(self, directory: Path, rate_per_second: int) -> None:
        self.written = 0
        self.bad = 0
        self._rate = rate_per_second
        self._directory = directory
        self._stop = threading.Event()
        directory.mkdir(parents=True)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        outputs = [open(self._directory / f"f{n}.ndjson", "ab", buffering=0) for n in range(FILES)]  # noqa: SIM115
        burst = max(1, self._rate // 50)
        while not self._stop.wait(0.02):
            for _ in range(burst):
                line = json.dumps({"id": self.written, "text": "x" * (self.written % 200)}).encode() + b"\n"
                if self.written % BAD_EVERY == 0:
                    line += b'{"id": broken\n'
                    self.bad += 1
                outputs[self.written % FILES].write(line)
                self.written += 1
        for output in outputs:
            output.close()


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    made = Feed(tmp_path / "in", rate_per_second=3000)
    yield made
    made.stop()


def start(backend: str, directory: Path, until: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.chaos.file_job", backend, str(directory), until]
    with open(directory / "log.txt", "ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, start_new_session=True)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def finish_and_check(backend: str, directory: Path, feed: Feed) -> None:
    feed.stop()
    process = start(backend, directory, "end")
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, (out, (directory / "log.txt").read_text()[-3000:])
    found = Counter((row["id"], row["copy"]) for row in rows(directory / "out"))
    wanted = Counter(expected(range(feed.written)))
    assert feed.written > 1000
    lost, doubled = wanted - found, found - wanted
    assert not lost, f"{len(lost)} rows lost, among them {sorted(lost)[:5]}"
    assert not doubled, f"{len(doubled)} rows doubled, among them {sorted(doubled)[:5]}"
    assert len(list(rows(directory / "dead"))) == feed.bad


def rows(directory: Path) -> Iterator[dict[str, int]]:
    for part in directory.glob("*.json"):
        for line in part.read_text().splitlines():
            yield json.loads(line)


def kill_again_and_again(backend: str, directory: Path, feed: Feed, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    pause = threading.Event()
    for _ in range(kills):
        process = start_and_wait(backend, directory)
        pause.wait(rng.uniform(0.0, 1.0 if backend == "light" else 6.0))
        kill_group(process)
    finish_and_check(backend, directory, feed)


def test_light_killed(feed: Feed, tmp_path: Path) -> None:
    kill_again_and_again("light", tmp_path, feed, kills=6, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_light_killed_fifty_times(feed: Feed, tmp_path: Path) -> None:
    kill_again_and_again("light", tmp_path, feed, kills=50, seed=2)


@pytest.mark.slow  # tests/conformance kills jobs on Spark in every run
@pytest.mark.spark
def test_spark_killed(feed: Feed, tmp_path: Path) -> None:
    kill_again_and_again("spark", tmp_path, feed, kills=1, seed=3)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_spark_killed_fifty_times(feed: Feed, tmp_path: Path) -> None:
    kill_again_and_again("spark", tmp_path, feed, kills=50, seed=4)


def kill_workers(directory: Path, feed: Feed, kills: int, seed: int) -> None:
    """Kill Python workers that Spark has forked, at random moments.

    Spark runs the task of a killed worker again. One of the workers plans the micro-batches; without it Spark ends the
    query, and the job is started again from its checkpoint.
    """
    rng = random.Random(seed)
    pause = threading.Event()
    process = start_and_wait("spark", directory)
    killed = 0
    deadline = time.monotonic() + 120 + 15 * kills
    while killed < kills and time.monotonic() < deadline:
        pause.wait(rng.uniform(0.3, 1.2))
        if process.poll() is not None:
            assert "Python worker exited unexpectedly" in (directory / "log.txt").read_text()[-3000:]
            kill_group(process)
            process = start_and_wait("spark", directory)
        workers = python_workers(process.pid)
        if workers:
            workers[rng.randrange(len(workers))].kill()
            killed += 1
    kill_group(process)
    assert killed == kills
    finish_and_check("spark", directory, feed)


def start_and_wait(backend: str, directory: Path) -> subprocess.Popen[bytes]:
    """Start a run without end and wait until it says that it has started."""
    process = start(backend, directory, "never")
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n", (directory / "log.txt").read_text()[-3000:]
    return process


@pytest.mark.spark
@pytest.mark.slow  # tests/conformance/test_stateful.py kills one in every run
def test_spark_workers_killed(feed: Feed, tmp_path: Path) -> None:
    kill_workers(tmp_path, feed, kills=2, seed=5)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_spark_workers_killed_fifty_times(feed: Feed, tmp_path: Path) -> None:
    kill_workers(tmp_path, feed, kills=50, seed=6)
