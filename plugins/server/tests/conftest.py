"""Makes the helpers of these tests importable, and gives tests a server as a process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from server_processes import ServerProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """Give a server that was not started yet; it ends with the test."""
    made = ServerProcess(tmp_path)
    yield made
    made.clean_up()
