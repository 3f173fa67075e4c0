"""A job runs on 64-bit ARM: in qemu, with the wheels that a Raspberry Pi gets, killed while it runs."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.edge.arm import ArmPython
from tests.edge.test_wheels_for_arm import requirements_of
from tests.eventually import eventually
from tests.packaging.wheels import build_wheels_here
from tests.servers.fixtures import skipped_where_impossible

pytestmark = [pytest.mark.slow, pytest.mark.servers, pytest.mark.timeout(3600)]

JOB = Path(__file__).with_name("edge_job.py")
ROWS = 3_000


def test_a_job_from_files_to_sqlite_is_killed_and_continues(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    wheels = build_wheels_here(tmp_path / "wheels")
    with skipped_where_impossible():
        python = ArmPython(tmp_path, sorted(requirements_of("edge")), wheels)
    told = "import json, platform, polars; print(json.dumps([platform.machine(), polars.DataFrame({'n': [1, 2]})['n'].sum()]))"
    done = subprocess.run(
        [*python.command, "-c", told], env=python.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["aarch64", 3]

    box = tmp_path / "box"
    (box / "in").mkdir(parents=True)
    readings: list[dict[str, Any]] = [
        {"n": n, "sensor": f"s{n % 7}", "celsius": n % 150 - 50.0, "note": "x"} for n in range(ROWS)
    ]

    def write(begin: int, end: int) -> None:
        with (box / "in" / "a.ndjson").open("a") as file:
            file.writelines(json.dumps(each) + "\n" for each in readings[begin:end])

    def rows() -> list[tuple[int, float]]:
        if not (box / "readings.db").exists():
            return []
        with closing(sqlite3.connect(box / "readings.db")) as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'readings'").fetchall():
                return []
            return database.execute("SELECT n, fahrenheit FROM readings ORDER BY n").fetchall()

    write(0, ROWS // 2)
    command = [*python.command, str(JOB), str(box)]
    killed = subprocess.Popen(command, env=python.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: rows() or killed.poll() is not None, "rows are in the table", seconds=1_700)
    finally:
        killed.kill()
        killed.wait()
    write(ROWS // 2, ROWS)
    done = subprocess.run(command, env=python.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wanted = [(each["n"], each["celsius"] * 1.8 + 32) for each in readings if each["celsius"] > -40]
    assert rows() == wanted
