"""Real processes that are killed or stopped at given moments: how the crash checks run a plug-in.

The plug-in is sent to a child process with cloudpickle, as a backend sends it to its workers. The child writes or reads,
and sends itself SIGKILL (or SIGSTOP) at the given moment. So no check depends on chance or on a waiting time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headrace_contract.contract import violated
from headrace_contract.pickling import pickled
from headrace_contract.processes import START_SECONDS_MAX, child_command, child_environment, write_task
from headrace_contract.tasks import ReadTask, WriteTask


class Child:
    """A child process that runs one task. As a context manager it kills the child at the end of the block."""

    def __init__(self, task: WriteTask | ReadTask | Callable[[], Any], *, importable: Sequence[type] = ()) -> None:
        data = pickled(task, what="the sink or source")
        directory = tempfile.mkdtemp(prefix="headrace-contract-")
        self._spec = Path(directory) / "task"
        self._errors = Path(directory) / "errors"
        write_task(self._spec, data, importable)
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                child_command(self._spec),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=child_environment(),
            )

    def wait_until_killed(self, *, patience_seconds: float) -> None:
        """Wait until the child is killed at its moment. Fails the check if it ends in another way, or not in time."""
        self._end(-signal.SIGKILL, patience_seconds)

    def wait_until_done(self, *, patience_seconds: float) -> None:
        """Wait until the child has done its task. Fails the check if the task fails, or is not done in time."""
        self._end(0, patience_seconds)

    def wait_until_stopped(self) -> None:
        """Wait until the child is stopped at its moment (SIGSTOP), without a time limit. Fails the check if it has ended instead."""
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.process.returncode = os.waitstatus_to_exitcode(status)
            self._end(None, 0)

    def go_on(self) -> None:
        """Let a stopped child continue."""
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill the child if it still runs, and remove its files."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for file in (self._spec, self._errors):
            file.unlink(missing_ok=True)
        self._spec.parent.rmdir()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, wanted: int | None, patience_seconds: float) -> None:
        try:
            code = (
                self.process.wait(timeout=START_SECONDS_MAX + patience_seconds)
                if self.process.returncode is None
                else self.process.returncode
            )
        except subprocess.TimeoutExpired:
            violated(
                expected="the process that runs the plug-in ends",
                found=f"it still runs {START_SECONDS_MAX + patience_seconds:g} s after its start; it printed: {self._output()}",
                mend="nothing in the plug-in may wait for ever; if an external system is only slow, increase patience",
            )
        if code == 0 and wanted != 0:
            violated(
                expected="the process reaches the moment at which it must be killed or stopped",
                found=f"it ended without an error before that; it printed: {self._output()}",
                mend="rows for a new target must reach batch_insert: check that last_offset is not that of another table or job",
            )
        if code != wanted:
            violated(
                expected="a process that gets the plug-in by cloudpickle can use it",
                found=f"it ended with code {code}; it printed: {self._output()}",
                mend="keep connections, locks, threads and files out of __init__: create them in open, or in queues",
            )

    def _output(self) -> str:
        return self._errors.read_text(errors="replace")[-4000:] or "nothing"


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a child's journal, decoded."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]
