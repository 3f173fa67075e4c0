"""Runs cases on light in processes that are forked: each has what it imports from the start, and can be killed as any other.

``Forker`` is used by tests. The module itself is the process that forks: commands come as JSON lines, for each the exit status of the
fork is answered, negative for the signal that killed it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from headrace.foundation import faults

from tests.conformance.run_cases import main

ROOT = Path(__file__).resolve().parents[2]


class Forker:
    """The process that forks. It ends with this one."""

    def __init__(self) -> None:
        environment = {key: value for key, value in os.environ.items() if key != faults.VARIABLE}
        command = [sys.executable, "-m", "tests.conformance.forked_cases"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)
        atexit.register(self._close)

    def run(self, directory: Path, names: list[str], fault: str | None, log: Path, **options: Any) -> int:
        """Run cases in a process group of their own; return the exit status. Nothing of it survives."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = {"directory": str(directory), "names": names, "fault": fault, "log": str(log), "options": options}
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def _close(self) -> None:
        self._process.communicate()


@functools.cache
def forker() -> Forker:
    """Return that of this process."""
    return Forker()


def _run(command: dict[str, Any]) -> None:
    os.setsid()
    log = os.open(command["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, nothing), (1, nothing), (2, log)):
        os.dup2(source, target)
    if command["fault"] is not None:
        faults._faults = faults.Faults(command["fault"])
    main("light", command["directory"], command["names"], **command["options"])


def _serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _run(json.loads(line))
                code = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    _serve()
