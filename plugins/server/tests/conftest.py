"""Makes the helpers of these tests importable, and gives tests a server as a process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from server_processes import ServerProcess
from shared_servers import SharedServers, database_url


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """Give a server that was not started yet; it ends with the test."""
    made = ServerProcess(tmp_path)
    yield made
    made.clean_up()


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("mysql", marks=pytest.mark.servers),
        pytest.param("postgresql", marks=pytest.mark.servers),
    ]
)
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedServers]:
    """Servers on one machine with SQLite; each on a machine of its own, as far as they know, with the others."""
    made = SharedServers(tmp_path, database_url(request, request.param, tmp_path))
    yield made
    made.clean_up()
