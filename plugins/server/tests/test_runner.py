"""The process of jobs: limits, log, requests on its socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace.foundation.errors import JobError
from headrace_server.runner.job_run import JobRun
from headrace_server.runner.protocol import RefusedError, RunnerAwayError, ask, socket_directory
from headrace_server.runner.service import Runner, _Server
from headrace_server.runner.specification import (
    JobOutcome,
    JobSpecification,
    RunnerSpecification,
    read_result,
    write_result,
)


def specification(tmp_path: Path, text: str, name: str = "a") -> RunnerSpecification:
    file = tmp_path / f"{name}.py"
    file.write_text(text)
    job = JobSpecification(
        name=name, version=1, file=str(file), backend="light", checkpoint=str(tmp_path / "checkpoint")
    )
    return RunnerSpecification(
        unit=name, generation="g", jobs=(job,), socket=str(socket_directory(tmp_path) / "a.sock"),
        log=str(tmp_path / "log"), work_directory=str(tmp_path),
    )  # fmt: skip


SQL = """
CREATE TABLE t (n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json');
CREATE TABLE out_t (n BIGINT) WITH ('connector' = 'print');
INSERT INTO out_t SELECT /*+ BROADCAST(t) */ n FROM t;
"""


def test_what_has_no_effect_in_a_text_is_said_with_its_plan(tmp_path: Path) -> None:
    file = tmp_path / "a.sql"
    file.write_text(SQL.format(path=tmp_path / "in"))
    job = JobSpecification(name="a", version=1, file=str(file), backend="light", checkpoint=str(tmp_path / "c"))
    run = JobRun(job, shares_process=False)
    run.prepare()
    [notice] = run.plan()["notices"]
    assert "hint BROADCAST has no effect here" in notice


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    made = Runner(specification(tmp_path, "x = 1\n"), tmp_path / "a.json")
    server = _Server(made.specification.socket, made.answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


def in_process(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_a_process_cannot_have_more_memory_than_its_limit() -> None:
    code = (
        "from headrace_server.runner.limits import Limits, set_limits\n"
        "set_limits(Limits(memory_max_bytes=200 * 1024**2, open_files_max=64), group=None)\n"
        "small = bytearray(50 * 1024**2)\n"
        "try:\n    large = bytearray(400 * 1024**2)\nexcept MemoryError:\n    print('refused')\n"
        "import os\n"
        "try:\n    files = [os.open('/dev/null', os.O_RDONLY) for _ in range(100)]\nexcept OSError as error:\n    print(error.errno)\n"
    )
    assert in_process(code).stdout.split() == ["refused", "24"]


def test_the_log_is_rotated_and_has_all_lines(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom headrace_server.runner.log_file import LogFile\n"
        "log = LogFile(Path(sys.argv[1]), max_bytes=1000, kept=3)\nlog.open()\nrotated = 0\n"
        "for number in range(60):\n"
        "    print(f'line {number}', 'x' * 50, flush=True)\n"
        "    rotated += log.rotate()\n"
        "os.write(2, b'rotated %d\\n' % rotated)\n"
    )
    assert in_process(code, str(tmp_path / "job.log")).returncode == 0
    files = [tmp_path / "job.log.2", tmp_path / "job.log.1", tmp_path / "job.log"]
    text = "".join(
        each.read_text() for each in sorted(tmp_path.glob("job.log*"), key=lambda each: each.stat().st_mtime_ns)
    )
    numbers = [int(line.split()[1]) for line in text.splitlines() if line.startswith("line")]
    assert sorted(numbers) == list(range(numbers[0], 60))
    assert "rotated 3" in files[-1].read_text()
    assert all(each.stat().st_mode & 0o077 == 0 for each in files)


def test_a_request_is_answered_or_refused_with_a_reason(runner: Runner) -> None:
    address = runner.specification.socket
    assert ask(address, "status")["jobs"]["a"]["phase"] == "loading"
    refused: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("explode", {}, "does not know the request"),
        ("stop", {"job": "b"}, "has no job 'b'"),
        ("savepoint", {"job": "a", "path": "x"}, "is not running"),
        ("log_level", {"level": "loud"}, "is not a log level"),
    )
    for do, arguments, message in refused:
        with pytest.raises(RefusedError, match=message):
            ask(address, do, **arguments)


@pytest.mark.parametrize("line", [b"{\n", b"[]\n", b'{"do": 3}\n', b"\xff\n", b'{"job": "a"}\n'])
def test_what_is_no_request_is_refused_and_the_runner_goes_on(runner: Runner, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(runner.specification.socket)
        connection.sendall(line)
        assert b'"error"' in connection.recv(10_000)
    assert ask(runner.specification.socket, "status")["pid"] == os.getpid()


def test_a_file_without_a_job_is_refused_with_the_reason(tmp_path: Path) -> None:
    made = Runner(specification(tmp_path, "x = 1\n"), tmp_path / "a.json")
    run = made._jobs["a"]
    run.prepare()
    assert (run.phase, "a.py builds no job" in str(run.status()["error"])) == ("refused", True)


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(RunnerAwayError, match="does not answer"):
        ask(tmp_path / "none.sock", "status")


def test_a_long_path_gets_a_short_directory_that_nobody_else_can_have_made(tmp_path: Path) -> None:
    place = tmp_path / ("x" * 100)
    place.mkdir()
    found = socket_directory(place)
    try:
        assert len(str(found)) < 80
        assert found.stat().st_mode & 0o777 == 0o700
        assert socket_directory(place) == found
        found.rmdir()
        found.symlink_to(tmp_path)
        with pytest.raises(JobError, match="that only this user can access"):
            socket_directory(place)
    finally:
        if found.is_symlink():
            found.unlink()
        else:
            found.rmdir()


def test_how_jobs_have_ended_is_kept_for_a_server_that_was_away(tmp_path: Path) -> None:
    assert read_result(tmp_path / "a.json") is None
    outcomes = {"a": JobOutcome(outcome="failed", reason="no such table")}
    write_result(tmp_path / "a.json", outcomes)
    assert read_result(tmp_path / "a.json") == outcomes
    (tmp_path / "a.result").write_bytes(b"{")
    assert read_result(tmp_path / "a.json") is None
