"""Jobs over records of several lines: killed in the middle of records that are being written, and on Spark in small ranges."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

import headrace as hr
import pytest

from tests.eventually import eventually

pytestmark = pytest.mark.slow
JOB = """
import sys
import headrace as hr
job = (hr.stream("tests", "traces")
       .from_file("app.log", format="raw", first_line=r"^\\d+ ", read_bytes=1024, rotate_wait="0 s", schema={"text": "string"})
       .to_file("out", format="json"))
workers = int(sys.argv[2])
if sys.argv[1] == "start":
    job.start("light", checkpoint="state", checkpoint_interval="20 ms", workers=workers).wait()
else:
    job.run("light", checkpoint="state", show_progress=False, workers=workers)
"""


def record(number: int) -> str:
    return "\n".join([f"{number} began", *(f"  at line {line} of {number}" for line in range(number % 7))])


def rows(directory: Path) -> list[str]:
    lines = [line for part in (directory / "out").glob("*.json") for line in part.read_bytes().splitlines()]
    return [json.loads(line)["text"] for line in lines]


class Writer:
    """Appends records in pieces of a few bytes, so that a read ends within lines and within records.

    ``rotated_after``: the log is renamed after so many records, as a program does that writes each record to one file. It begins with
    ``rotating``: a job does not read what was rotated before its first start.
    """

    def __init__(self, path: Path, rotated_after: int | None = None) -> None:
        self.count = 0
        self.rotating = threading.Event()
        self._ended = threading.Event()
        self._path = path
        self._rotated_after = rotated_after
        path.touch()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        rotations = 0
        while not self._ended.is_set():
            if self.rotating.is_set() and self._path.stat().st_size:
                rotations += 1
                self._path.rename(self._path.with_name(f"{self._path.name}.{rotations}"))
            with self._path.open("a", buffering=1) as file:
                self._append(file)

    def _append(self, file: TextIO) -> None:
        while not self._ended.wait(0.001):
            text = record(self.count) + "\n"
            for at in range(0, len(text), 11):
                file.write(text[at : at + 11])
                file.flush()
            self.count += 1
            if self.rotating.is_set() and self._rotated_after and self.count % self._rotated_after == 0:
                return

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("rotated_after", [None, 150])
def test_each_record_is_whole_and_there_once_though_the_job_is_killed(
    tmp_path: Path, rotated_after: int | None, workers: int
) -> None:
    def start(what: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", JOB, what, str(workers)], cwd=tmp_path)

    writer = Writer(tmp_path / "app.log", rotated_after)
    try:
        for _ in range(4):
            seen = len(rows(tmp_path))
            job = start("start")
            eventually(lambda: len(rows(tmp_path)) > seen + 20, "rows are written")  # noqa: B023
            if rotated_after is not None:
                writer.rotating.set()
            job.send_signal(signal.SIGKILL)
            job.wait()
    finally:
        writer.end()
    assert start("end").wait() == 0
    found = rows(tmp_path)
    assert sorted(found) == sorted(record(number) for number in range(writer.count))


@pytest.mark.spark
@pytest.mark.parametrize("names", [["app.log"], ["app.log.2.gz", "app.log.1", "app.log"]])
def test_small_ranges_of_spark_give_whole_records(tmp_path: Path, names: list[str]) -> None:
    """Of one log, and of one with those that were rotated before it, of which one is compressed."""
    for place, name in enumerate(names):
        numbers = range(500 * place // len(names), 500 * (place + 1) // len(names))
        text = "".join(record(number) + "\n" for number in numbers).encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    options: dict[str, Any] = {"first_line": r"^\d+ ", "read_bytes": 1024}
    job = (
        hr.stream("tests", "traces")
        .from_file(str(tmp_path / "app.log*"), format="raw", schema={"text": "string"}, **options)
        .to_file(str(tmp_path / "out"), format="json")
    )
    job.run(backend="spark", checkpoint=str(tmp_path / "state"), max_micro_batch_records=130)
    assert sorted(rows(tmp_path)) == sorted(record(number) for number in range(500))
