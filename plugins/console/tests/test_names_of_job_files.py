"""A job file that is called like a module of Python hides it from no process."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest
from headrace_console.job_files import load_job

JOB = "import headrace as hr\njob = hr.stream('a', 'b').from_file('x', format='raw').to_file('y', format='json')\n"


@pytest.mark.parametrize(("name", "told"), [("copy.py", True), ("orders.py", False)])
def test_other_processes_get_the_directory_only_if_it_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, told: bool
) -> None:
    monkeypatch.setenv("PYTHONPATH", "before")
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / name).write_text(JOB)
    with caplog.at_level(logging.WARNING):
        assert load_job(str(tmp_path / name)).name == "a.b"
    assert sys.path[0] == str(tmp_path)
    assert os.environ["PYTHONPATH"] == ("before" if told else f"{tmp_path}{os.pathsep}before")
    assert ("has the name of a Python module" in caplog.text) is told
