"""Jobs under a limit of memory that they would break without a budget: the system does not end them, and no row is lost."""

from __future__ import annotations

import sys
from pathlib import Path

import memory_jobs
import pytest

from tests.edge.limits import limited

#: Limits of the state alone; others are for the process.
_OF_STATE = {"join": "40 MB", "keys": "24 MB"}
_SCRIPT = str(Path(memory_jobs.__file__))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "limit_mib", "rows"),
    [
        ("queues", 448, memory_jobs.QUEUES * memory_jobs.QUEUE_RECORDS),
        ("slow", 384, memory_jobs.SLOW_RECORDS),
        ("windows", 1024, None),
        ("records", 1536, memory_jobs.LARGE_RECORDS),
        ("join", 320, memory_jobs.JOIN_ROWS),
        ("keys", 128, memory_jobs.KEY_ROWS),
    ],
)
def test_a_job_with_a_budget_is_never_killed(kind: str, limit_mib: int, rows: int | None, tmp_path: Path) -> None:
    memory_jobs.write_input(kind, tmp_path / "in")
    with limited(limit_mib * 2**20) as group:
        kills = group.kills
        budget = _OF_STATE.get(kind, f"{limit_mib * 4 // 5} MiB")
        done = group.run([sys.executable, _SCRIPT, kind, str(tmp_path / "in"), budget])
        assert (done.returncode, group.kills - kills) == (0, 0), done.stderr[-3000:]
    found, peak = map(int, done.stdout.split())
    print(f"{kind}: {found} rows, most resident memory {peak // 1024} MiB of {limit_mib}")
    assert found == rows if rows is not None else found > 100_000
