"""Gives tests a virtual machine."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.machine.machine import Machine
from tests.servers.fixtures import skipped_where_impossible

INSIDE = Path(__file__).with_name("inside.py")
#: Runs Python of a test inside of the machine: ``inside`` has its helpers, ``HEADRACE`` is the command.
Inside = Callable[[str], str]


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    """Run a text of Python inside of a machine that is started for it; return what it prints."""
    with skipped_where_impossible():
        machine = Machine(tmp_path)
    shutil.copy(INSIDE, tmp_path)

    def run(text: str) -> str:
        head = (
            f"from inside import *\nimport signal\nHEADRACE = [{sys.executable!r}, '-m', 'headrace_console.command']\n"
        )
        (tmp_path / "test.py").write_text(head + text)
        logs = "journalctl --no-pager | tail -n 60; tail -n 40 /srv/server.log /srv/data/jobs/*/logs/job.log"
        return machine.run(f"cd /share && (/usr/bin/python3 test.py || (({logs}) >&2; false))")

    return run
