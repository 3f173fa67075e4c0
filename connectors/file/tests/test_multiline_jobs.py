"""Jobs over records of several lines: killed in the middle of records that are being written, and on Spark in small ranges."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import headrace as hr
import pytest

from tests.eventually import eventually

pytestmark = pytest.mark.slow
JOB = """
import sys
import headrace as hr
job = (hr.stream("tests", "traces")
       .from_file("app.log", format="raw", first_line=r"^\\d+ ", read_bytes=1024, schema={"text": "string"})
       .to_file("out", format="json"))
if sys.argv[1] == "start":
    job.start("light", checkpoint="state", checkpoint_interval="20 ms").wait()
else:
    job.run("light", checkpoint="state", show_progress=False)
"""


def record(number: int) -> str:
    return "\n".join([f"{number} began", *(f"  at line {line} of {number}" for line in range(number % 7))])


def rows(directory: Path) -> list[str]:
    lines = [line for part in (directory / "out").glob("*.json") for line in part.read_bytes().splitlines()]
    return [json.loads(line)["text"] for line in lines]


class Writer:
    """Appends records in pieces of a few bytes, so that a read ends within lines and within records."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self._ended = threading.Event()
        self._path = path
        path.touch()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        with self._path.open("a", buffering=1) as file:
            while not self._ended.wait(0.001):
                text = record(self.count) + "\n"
                for at in range(0, len(text), 11):
                    file.write(text[at : at + 11])
                    file.flush()
                self.count += 1

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def test_each_record_is_whole_and_there_once_though_the_job_is_killed(tmp_path: Path) -> None:
    def start(what: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", JOB, what], cwd=tmp_path)

    writer = Writer(tmp_path / "app.log")
    try:
        for _ in range(4):
            seen = len(rows(tmp_path))
            job = start("start")
            eventually(lambda: len(rows(tmp_path)) > seen + 20, "rows are written")  # noqa: B023
            job.send_signal(signal.SIGKILL)
            job.wait()
    finally:
        writer.end()
    assert start("end").wait() == 0
    found = rows(tmp_path)
    assert sorted(found) == sorted(record(number) for number in range(writer.count))


@pytest.mark.spark
def test_small_ranges_of_spark_give_whole_records(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("".join(record(number) + "\n" for number in range(500)))
    options: dict[str, Any] = {"first_line": r"^\d+ ", "read_bytes": 1024}
    job = (
        hr.stream("tests", "traces")
        .from_file(str(tmp_path / "app.log"), format="raw", schema={"text": "string"}, **options)
        .to_file(str(tmp_path / "out"), format="json")
    )
    job.run(backend="spark", checkpoint=str(tmp_path / "state"), max_micro_batch_records=130)
    assert sorted(rows(tmp_path)) == sorted(record(number) for number in range(500))
