"""A job is killed while it writes, several times: each row is there once in the end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from sqlite_world import Database

from tests.eventually import eventually

_JOB = str(Path(__file__).with_name("sqlite_job.py"))
_ROWS = 40_000


def count(database: Database) -> int:
    there = database.path.exists() and database.execute("SELECT 1 FROM sqlite_schema WHERE name = 't'")
    return int(database.execute("SELECT count(*) FROM t")[0][0]) if there else 0


def test_a_job_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text("".join(f'{{"n": {n}}}\n' for n in range(_ROWS)))
    database = Database(tmp_path)
    killed = 0
    for _ in range(4):
        seen = count(database)
        job = subprocess.Popen([sys.executable, _JOB, str(tmp_path)])
        eventually(lambda: count(database) > seen + 200 or job.poll() is not None, "rows are written")  # noqa: B023
        job.send_signal(signal.SIGKILL)
        killed += job.wait() == -signal.SIGKILL
    assert killed > 1
    assert subprocess.run([sys.executable, _JOB, str(tmp_path)], check=False).returncode == 0
    found = [n for (n,) in database.execute("SELECT n FROM t ORDER BY n")]
    assert found == [n for n in range(_ROWS) if n % 10 != 3]
    assert database.execute("PRAGMA integrity_check") == [("ok",)]
