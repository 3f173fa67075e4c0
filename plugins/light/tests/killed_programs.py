"""Programs of jobs with state that are killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent


def start(program: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program of this folder over a directory to its end."""
    return subprocess.run(
        [sys.executable, str(HERE / program), str(directory)],
        env={**os.environ, "PYTHONPATH": str(HERE), **environment},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def kill_at(program: str, directory: Path, place: str, counts: Sequence[int]) -> None:
    """Run a program once for each count, killed when it passes a place for the so manieth time; then once to its end.

    Later runs have less to do, and make as many checkpoints as there is time for: one of the kills must land.
    """
    kills = 0
    for count in counts:
        done = start(program, directory, HEADRACE_FAULTS=f"{place}:{count}:kill")
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        kills += done.returncode != 0
    assert kills
    done = start(program, directory)
    assert done.returncode == 0, done.stderr
