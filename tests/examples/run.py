"""Runs an example with ``headrace run`` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_example(
    name: str, backend: str, directory: Path, arguments: dict[str, object], environment: dict[str, str]
) -> str:
    """Run an example to the end of its input, in ``directory``; return its report. Fails when it fails."""
    command = [str(Path(sys.executable).with_name("headrace")), "run", str(ROOT / "examples" / name)]
    command += ["--backend", backend, "--checkpoint", str(directory / f"checkpoint-{backend}")]
    for key, value in arguments.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment, "PYTHONWARNINGS": "ignore", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr
