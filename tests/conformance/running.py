"""Running conformance cases: in this process, and in one of their own that a test can kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.foundation.faults import VARIABLE

from tests.conformance.case import Case
from tests.conformance.forked_cases import forker
from tests.conformance.run_cases import OPTIONS
from tests.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]


def run(case: Case, directory: Path, backend: str, **options: object) -> None:
    """Lay out a case and run it in this process."""
    case.lay_out(directory)
    case.build(directory).run(backend, show_progress=False, **options)


def make(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def start(
    backend: str,
    directory: Path,
    names: list[str],
    *,
    fault: str | None = None,
    kill_after_seconds: float | None = None,
) -> int:
    """Run cases in a process group of their own; return its exit code. Nothing of it survives.

    On light they are forked from a process that has imported what they need: half of such a run is imports.

    ``kill_after_seconds``: it is killed so long after the first of its cases is done.
    """
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    if fault is not None:
        environment[VARIABLE] = fault
    log_path = directory / "log.txt"
    if backend == "light" and kill_after_seconds is None:
        code = forker().run(directory, names, fault, log_path, **OPTIONS)
        if code > 0 and fault is None:
            sys.stderr.write(log_path.read_text()[-4000:])
        return code
    command = [sys.executable, "-m", "tests.conformance.run_cases", backend, str(directory), *names]
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=log
        )
    try:
        if kill_after_seconds is not None:
            done = directory / next(name for name in names if not (directory / name / "done").exists()) / "done"
            eventually(lambda: done.exists() or process.poll() is not None, "the first case is done")
        process.wait(500 if kill_after_seconds is None else kill_after_seconds)
        if process.returncode > 0 and fault is None:
            sys.stderr.write(log_path.read_text()[-4000:])
    except subprocess.TimeoutExpired:
        assert kill_after_seconds is not None, "the run hangs"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode


def kill_spark_workers(cases: Sequence[Case], fault: str, directory: Path) -> None:
    """Run cases on Spark, each in a directory below this one; workers die at a named place, then they are run to the end."""
    names = [case.name for case in cases]
    for case in cases:
        case.lay_out(make(directory / case.name))
    # Each new worker process dies at its first such moment, so the query itself ends: start again without.
    start("spark", directory, names, fault=f"{fault}:kill")
    assert start("spark", directory, names) == 0
