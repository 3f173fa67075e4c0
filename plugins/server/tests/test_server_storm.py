"""The short form of ``python -m benchmarks.server_storm``: each kind of fault once or twice; rows and owners are counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from server_storm import Storm
from shared_servers import SharedServers, database_url


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("registry", "faults"),
    [
        # tests/test_several_servers.py lets a machine die in every run.
        pytest.param("sqlite", 3, marks=pytest.mark.slow),
        pytest.param("mysql", 4, marks=pytest.mark.servers),
        pytest.param("postgresql", 4, marks=pytest.mark.servers),
        pytest.param("mysql", 30, marks=[pytest.mark.servers, pytest.mark.slow]),
        pytest.param("postgresql", 30, marks=[pytest.mark.servers, pytest.mark.slow]),
    ],
)
def test_a_storm_of_faults_loses_and_doubles_nothing_and_no_job_has_two_owners(
    registry: str, faults: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    storm = Storm(SharedServers(tmp_path, database_url(request, registry, tmp_path)), seed=15 + faults, jobs=3)
    try:
        storm.begin()
        storm.run(faults)
        assert storm.check() > 0
        assert len(storm.moved) == faults
    finally:
        storm.close()


def test_two_owners_would_be_seen(tmp_path: Path) -> None:
    storm = Storm(SharedServers(tmp_path, f"sqlite:///{tmp_path}/registry.sqlite"), seed=1, jobs=1)
    try:
        ledger = storm.ledger("job0")
        ledger.write_text("1.0 10\n2.0 10\n3.0 11\n4.0 11\n5.0 12\n")
        assert storm.overlaps("job0") == []
        ledger.write_text("1.0 10\n3.0 11\n2.0 10\n3.5 10\n4.0 11\n")
        assert storm.overlaps("job0") == ["job0: process 10 at 3.500"]
        storm.paused.add(10)
        assert (storm.overlaps("job0"), storm.late_batches()) == ([], 1)
    finally:
        storm.close()
