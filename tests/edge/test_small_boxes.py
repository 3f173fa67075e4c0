"""A whole job on the light backend with the memory and the one core of a small box: it is not killed, and loses nothing."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.edge.limits import limited

_JOB = str(Path(__file__).with_name("edge_job.py"))
_FILES = 3


@pytest.mark.parametrize(
    ("limit_bytes", "rows"),
    [
        pytest.param(256 * 2**20, 300_000, id="256 MiB"),
        pytest.param(2**30, 600_000, id="1 GiB", marks=pytest.mark.slow),  # what runs in less runs here
    ],
)
def test_files_to_sqlite(tmp_path: Path, limit_bytes: int, rows: int) -> None:
    (tmp_path / "in").mkdir()
    for number in range(_FILES):
        with open(tmp_path / "in" / f"{number}.ndjson", "w") as file:
            file.writelines(
                f'{{"n": {n}, "sensor": "s{n % 50}", "celsius": {n % 90 - 45}.5, "note": "{n:0100d}"}}\n'
                for n in range(number, rows, _FILES)
            )
    with limited(limit_bytes) as group:
        kills = group.kills
        done = group.run([sys.executable, _JOB, str(tmp_path)])
        assert (done.returncode, group.kills - kills) == (0, 0), done.stderr
        print(f"most resident memory: {done.stdout.strip()} kB")
    with closing(sqlite3.connect(tmp_path / "readings.db")) as database:
        found = [n for (n,) in database.execute("SELECT n FROM readings ORDER BY n")]
        assert database.execute(
            "SELECT count(*) FROM readings WHERE fahrenheit - celsius * 1.8 - 32 > 1e-9"
        ).fetchone() == (0,)
    assert found == [n for n in range(rows) if n % 90 - 45 + (0.5 if n % 90 >= 45 else -0.5) > -40]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_light_backend_as_a_whole(tmp_path: Path) -> None:
    """Its own tests, every verb and every kind of job that it has, in 1 GiB and on one core."""
    chosen = ["-m", "not slow and not servers and not spark", "plugins/light/tests"]
    with limited(2**30) as group:
        kills = group.kills
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--basetemp={tmp_path / 'base'}",
            *chosen,
        ]
        done = group.run(command, cwd=Path(__file__).parents[2])
        assert (done.returncode, group.kills - kills) == (0, 0), done.stdout[-6000:]
    print(done.stdout.splitlines()[-1])
