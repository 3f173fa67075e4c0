"""Gives tests a server's database with a clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from schedule_world import ScheduleWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ScheduleWorld]:
    made = ScheduleWorld(f"sqlite:///{tmp_path / 'registry.sqlite'}")
    yield made
    made.close()
