"""Job files that the tests of the command run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner, Result

WriteFile = Callable[..., Path]
Command = Callable[..., Result]

#: A job that reads six records, one of them bad, and prints three.
SIMPLE_JOB = """
    import headrace as hr
    from headrace.testing import MemorySource

    source = MemorySource({"q0": [b'{"a": %d}' % number for number in range(5)] + [b"{bad"]})
    job = (
        hr.stream("test", "simple")
        .from_(source, format="json", schema={"a": "int64"})
        .where("a >= 2")
        .dead_letters(lambda bad: bad.to_print(target="stderr", name="bad"))
        .print()
    )
"""


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    """Write a file into the test's directory and return its path."""

    def write(text: str, name: str = "job.py") -> Path:
        path = tmp_path / name
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return write


@pytest.fixture
def simple_text() -> str:
    return SIMPLE_JOB


@pytest.fixture
def simple_job(write_file: WriteFile, simple_text: str) -> Path:
    return write_file(simple_text)


@pytest.fixture
def headrace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Command]:
    """Run the command in this process, in the test's directory, and return what it printed and its exit code."""
    from headrace_console.app import app

    monkeypatch.chdir(tmp_path)
    path, python_path = list(sys.path), os.environ.get("PYTHONPATH")

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    yield run
    # A job file's directory becomes importable: not for the tests that come after.
    sys.path[:] = path
    if python_path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = python_path
