"""workers=0: as many processes as there are cores to use."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import headrace as hr
import pytest
from headrace.testing import MemorySink, MemorySource
from headrace_light import usable_cores as module
from headrace_light.usable_cores import processes_for, usable_cores


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 4),
        ({"cpu.max": "max 100000\n"}, 4),
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
    ],
)
def test_cores_are_those_that_limits_leave(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    (tmp_path / "cpu").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert usable_cores(tmp_path) == cores


def _job(function: object) -> hr.Job:
    stream = hr.stream("test", "cores").from_(MemorySource({"q": []}), format="json", schema={"n": "int64"})
    return stream.map(function, schema={"n": "int64"}).to(MemorySink())


def test_a_job_that_cannot_be_copied_runs_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 3)
    lock = threading.Lock()

    def locked(row: dict[str, int]) -> dict[str, int]:
        with lock:
            return row

    assert processes_for(_job(lambda row: row).plan(), 0) == 3
    assert processes_for(_job(locked).plan(), 0) == 1
    assert processes_for(_job(locked).plan(), 2) == 2
    _job(locked).run("light", workers=0)
