"""What a server does with the units that it shares, where the registry has changed since it was read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headrace.foundation.clock import ManualClock
from headrace_server.registry.database import Registry
from headrace_server.registry.engines import open_engine, sqlite_url
from headrace_server.registry.records import Desired, JobRecord
from headrace_server.registry.shared import SharedTables
from headrace_server.supervision.shared_units import SharedUnits


class Supervisor:
    """A supervisor with one settled unit; it notes what it is to roll out."""

    def __init__(self, *units: str) -> None:
        settled = threading.Event()
        settled.set()
        self.units: dict[str, Any] = {name: SimpleNamespace(settled=settled) for name in units}
        self.rolled_out: list[Mapping[str, int]] = []

    def is_busy(self, unit: str) -> bool:
        return False

    def roll_out_later(self, kind: str, changes: Mapping[str, int], *, ended: Callable[[bool], None]) -> str:
        self.rolled_out.append(changes)
        return "operation"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    engine = open_engine(sqlite_url(tmp_path / "registry.sqlite"))
    yield Registry(engine, ManualClock(1_000_000.0))
    engine.dispose()


def jobs_of(registry: Registry) -> dict[str, dict[str, JobRecord]]:
    return {job.unit: {job.name: job} for job in registry.jobs()}


def test_a_version_that_was_rolled_out_since_the_jobs_were_read_is_not_rolled_out_again(registry: Registry) -> None:
    registry.add_job("one", desired=Desired.RUNNING, labels={}, unit="one")
    tables = SharedTables(registry.engine)
    tables.offer("one", 1)
    read_before = jobs_of(registry)
    registry.change_job("one", current_version=1)
    tables.take_offer("one", 1)
    supervisor = Supervisor("one")
    units: Any = SharedUnits(supervisor, SimpleNamespace(registry=registry), SimpleNamespace(tables=tables))  # type: ignore[arg-type]
    units.roll_out_offers(read_before, ["one"])
    assert supervisor.rolled_out == []
    tables.offer("one", 2)
    units.roll_out_offers(jobs_of(registry), ["one"])
    assert supervisor.rolled_out == [{"one": 2}]
