"""The command starts quickly: it imports what the command at hand needs and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(sys.executable).with_name("headrace")


def test_commands_are_imported_when_they_run() -> None:
    code = """
import sys, json
import headrace_console.app
print(json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert not loaded & {
        "polars",
        "numpy",
        "pyarrow",
        "pyspark",
        "pluggy",
        "msgspec",
        "headrace.jobs.dsl",
        "headrace.jobs.job",
    }
    assert {name for name in loaded if name.startswith("headrace_console")} == {
        "headrace_console",
        "headrace_console.app",
    }


def test_every_command_has_help() -> None:
    for command in ("run", "explain", "plugins", "new", "version"):
        done = subprocess.run([SCRIPT, command, "--help"], capture_output=True, text=True, check=True)
        assert f"headrace {command}" in done.stdout


def test_completion_can_be_shown() -> None:
    done = subprocess.run(
        [SCRIPT, "--show-completion", "bash"],
        capture_output=True,
        text=True,
        check=False,
        # By itself typer looks for the shell among the parents of the process: in CI there may be none.
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert "_HEADRACE_COMPLETE" in done.stdout
