"""A shell script whose processes do not outlive the process that has started it, also where that is killed.

    python -m tests.guarded_shell SCRIPT

runs a script, for a test that kills this process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

#: One process of the group waits for the end of a pipe, of which only the starter has the other end, and kills the group then.
_GUARD = "exec 3<&0 </dev/null; (cat <&3; kill -KILL 0) >/dev/null 2>&1 & exec 3<&-\n"


@contextmanager
def guarded_shell(script: str, place: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a script of bash in a process group of its own; what it prints is in ``stdout``. Whatever is left of it is killed at the end."""
    theirs, ours = os.pipe()
    try:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", _GUARD + script], cwd=place, env=dict(environment), start_new_session=True,
            stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the group is there: it has the process that waits for the pipe
        assert process.stdout is not None
        process.stdout.close()
        process.wait()
        os.close(ours)


if __name__ == "__main__":
    with guarded_shell(sys.argv[1], Path.cwd(), os.environ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            print(line, end="", flush=True)
