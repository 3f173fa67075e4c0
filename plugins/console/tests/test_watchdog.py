"""A call that does not come back: the command ends on a signal all the same, and says what was at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from headrace.foundation import at_work
from headrace.foundation.errors import OptionError
from headrace_console import watchdog

WriteFile = Callable[..., Path]
SCRIPT = Path(sys.executable).with_name("headrace")
PATIENCE_SECONDS = 200
JOB = """
    import re
    import threading
    import headrace as hr
    from headrace.testing import MemorySource

    def hang(row):
        print("hanging", flush=True)
        {hang}
        return row

    source = MemorySource({{"q0": [b'{{"a": 1}}']}})
    job = hr.stream("test", "hanging").from_(source, format="json", schema={{"a": "int64"}}).map(hang).print()
"""
#: Lets other threads of Python run, and does not.
HANGS = {"waiting": "threading.Event().wait()", "holding the lock": "re.match('(a|a|aa)*$', 'a' * 60 + '!')"}


@pytest.fixture
def hanging(write_file: WriteFile, tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(how: str) -> subprocess.Popen[str]:
        job = write_file(JOB.format(hang=HANGS[how]))
        environment = {**os.environ, watchdog.STOP_TIMEOUT_VARIABLE: "4 s"}
        process = subprocess.Popen(
            [SCRIPT, "run", job, "-b", "light", "--until", "never"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "hanging\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_has_a_bound_and_names_the_node(
    hanging: Callable[[str], subprocess.Popen[str]], number: signal.Signals
) -> None:
    process = hanging("waiting")
    process.send_signal(number)
    _, messages = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert (
        "job test.hanging has not stopped within 4 s: 'map' has been at work on one batch of queue 'memory/q0'"
        in messages
    )


def test_a_call_that_lets_no_handler_run_ends_the_process_with_the_place(
    hanging: Callable[[str], subprocess.Popen[str]],
) -> None:
    """Python runs no handler of a signal here: a timer that needs no Python ends the process."""
    process = hanging("holding the lock")
    process.send_signal(signal.SIGTERM)
    _, messages = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "Timeout (0:00:04" in messages
    assert "in hang" in messages
    assert "in _operate" in messages


class _Job:
    """A handle as the watchdog uses it."""

    job = "test.slow"

    def status(self) -> Any:
        return self


def test_a_batch_that_takes_long_is_told_of_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = [10.0]
    monkeypatch.setattr(at_work.Work, "seconds", lambda self: seconds[0])
    at_work.begin("test.slow", "map-2", "file/a")
    handle: Any = _Job()
    try:
        with watchdog.watching(timedelta(minutes=5)) as dog:
            for seconds[0] in (10.0, 59.0, 61.0, 62.0, 121.0, 130.0, 243.0, 5.0, 60.0):
                dog.look(handle)
    finally:
        at_work.end()
    told = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert [line.partition(" for ")[2].partition(" s")[0] for line in told] == ["61", "130", "60"]
    assert "'map-2' has been at work on one batch of queue 'file/a'" in told[0]


def test_the_work_of_another_job_or_thread_that_has_ended_is_not_told() -> None:
    def work() -> None:
        at_work.begin("test.other", "map", "q")
        at_work.end()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert at_work.described("test.other") == ""
    at_work.begin("test.one", "map", "q")
    try:
        assert at_work.described("test.two") == ""
        assert "test_watchdog.py" in at_work.described("test.one") or "at_work.py" in at_work.described("test.one")
    finally:
        at_work.end()


@pytest.mark.parametrize("text", ["soon", "0 s", ""])
def test_a_wrong_time_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(watchdog.STOP_TIMEOUT_VARIABLE, text)
    with pytest.raises(OptionError, match="HEADRACE_STOP_TIMEOUT"):
        watchdog.stop_timeout()


def test_the_time_of_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(watchdog.STOP_TIMEOUT_VARIABLE, raising=False)
    assert watchdog.stop_timeout() == timedelta(minutes=5)
    monkeypatch.setenv(watchdog.STOP_TIMEOUT_VARIABLE, "30s")
    assert watchdog.stop_timeout() == timedelta(seconds=30)
