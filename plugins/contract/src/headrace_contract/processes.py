"""Runs functions in new processes: with another hash seed, to check that results do not depend on it, or to be killed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace_contract.contract import Contract, expect, violated
from headrace_contract.modules import modules_by_file
from headrace_contract.pickling import pickled

T = TypeVar("T")
#: How long an interpreter may take to start on a busy machine, in addition to the patience for its task.
START_SECONDS_MAX = 60.0


def write_task(file: Path, data: bytes, importable: Sequence[type]) -> None:
    """Write the input of a child process: the import paths, and the pickled task."""
    preamble = {"path": [p for p in sys.path if p], "modules": modules_by_file(importable)}
    file.write_bytes(pickle.dumps(preamble) + data)


def child_command(task: Path) -> list[str]:
    """Return the command that runs a task file."""
    return [sys.executable, "-m", "headrace_contract.child", str(task)]


def child_environment(**changes: str) -> Mapping[str, str]:
    """Return the environment of a child process: it has the import path of this process, and the given ``changes``."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **changes}


def elsewhere(function: Callable[[], T], *, importable: Sequence[type], patience_seconds: float) -> T:
    """Send a function to a new process with cloudpickle, call it there and return its result. Fails the check on an error.

    ``importable``: classes whose modules the new process needs. ``patience_seconds`` does not include the process's start.
    """
    __tracebackhide__ = True
    data = pickled(function, what="the plug-in")
    with tempfile.TemporaryDirectory(prefix="headrace-contract-") as directory:
        task, result = Path(directory) / "task", Path(directory) / "result"
        write_task(task, data, importable)
        try:
            done = subprocess.run(
                [*child_command(task), str(result)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=child_environment(PYTHONHASHSEED="271828"),
                timeout=START_SECONDS_MAX + patience_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            violated(
                expected="the process that runs the plug-in ends",
                found=f"it still runs {START_SECONDS_MAX + patience_seconds:g} s after its start",
                mend="nothing in the plug-in may wait for ever; if it is only slow, increase patience",
            )
        if done.returncode != 0:
            violated(
                expected="a process that gets the plug-in by cloudpickle can use it",
                found=f"it ended with code {done.returncode}: {done.stdout.decode(errors='replace')[-4000:]}",
                mend="use nothing that exists only in the process that built the job",
            )
        found: T = pickle.loads(result.read_bytes())  # noqa: S301 - written by our own child
        return found


@dataclass(frozen=True)
class Mends:
    """What to change if the work of ``run_and_kill`` is slow, or if it ends by itself."""

    slow: str
    ended: str


def run_and_kill(
    contract: Contract, work: Callable[[], None], notes: Path, *, what: str, does: str, mend: Mends
) -> None:
    """Run ``work`` in a new process and kill it (SIGKILL) when it has written 20 lines to the file ``notes``.

    ``what`` and ``does`` name the plug-in and its work in messages. Fails the check if the work is slow or ends by itself.
    """
    __tracebackhide__ = True
    with tempfile.TemporaryDirectory(prefix="headrace-contract-") as directory:
        task, log = Path(directory) / "task", Path(directory) / "log"
        write_task(task, pickled(work, what=what), [type(contract)])
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [*child_command(task), str(Path(directory) / "result")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=child_environment(),
            )
        try:
            contract.eventually(
                lambda: (notes.exists() and notes.read_bytes().count(b"\n") >= 20) or process.poll() is not None,
                expected=f"a process that {does} writes 20 lines of notes",
                mend=mend.slow,
            )
            time.sleep(0.003 * (notes.stat().st_size % 7 if notes.exists() else 0))
            ended = process.poll()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        expect(
            ended is None,
            expected=f"a process that {does} runs until it is killed",
            found=f"it ended with {ended}: {log.read_text(errors='replace')[-3000:]}",
            mend=mend.ended,
        )
