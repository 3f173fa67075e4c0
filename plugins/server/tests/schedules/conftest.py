"""Makes the helpers of these tests importable."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from schedule_world import ScheduleWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ScheduleWorld]:
    made = ScheduleWorld(f"sqlite:///{tmp_path / 'registry.sqlite'}")
    yield made
    made.close()
