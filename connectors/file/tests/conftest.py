"""Makes the helpers of these tests importable, here and in the processes that tests start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[object]:
    from file_world import World

    made = World(tmp_path)
    yield made
    made.close()
