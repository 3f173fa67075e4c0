"""The rooms of the server import only those before them, and the server never loads the code of a job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import headrace_server
import pytest

from tests.imports import imported_modules

PACKAGE = Path(headrace_server.__file__).parent
#: From the lowest to the highest.
ROOMS = [
    "registry",
    "access",
    "schedules",
    "jobs_directory",
    "runner",
    "sharing",
    "trials",
    "supervision",
    "api",
    "web",
    "service",
    "commands",
]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_nothing_above_it(room: str) -> None:
    files = sorted((PACKAGE / room).glob("*.py"))
    assert len(files) >= 3
    above = tuple(f"headrace_server.{each}" for each in ROOMS[ROOMS.index(room) + 1 :])
    wrong = {path.name: sorted(name for name in imported_modules(path) if name.startswith(above)) for path in files}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_only_the_processes_of_jobs_load_job_files() -> None:
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "headrace_console.job_files" in imported_modules(path)
    }
    assert users == {
        "runner/job_run.py",
        "runner/offsets.py",
        "trials/over_last_records.py",
        "trials/replaying.py",
        "trials/rules.py",
    }


@pytest.mark.parametrize("module", ["runner.service", "runner.offsets", "trials.over_last_records", "trials.replaying"])
def test_the_processes_of_jobs_do_not_load_what_only_the_server_needs(module: str) -> None:
    """There is such a process for each job: SQLAlchemy alone would take more time and memory than all else that it imports."""
    code = (
        f"import sys, headrace_server.{module}; "
        "print(*{'sqlalchemy', 'argon2', 'starlette', 'uvicorn', 'jinja2', 'asyncio'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
