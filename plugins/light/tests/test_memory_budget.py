"""The budget of memory: a warning with the culprit, back-pressure, and an end with a reason instead of a kill."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import headrace as hr
import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import JobFailedError, OptionError
from headrace.foundation.freed_memory import trim_freed_memory
from headrace.interfaces.meter import Meter
from headrace.interfaces.metrics import MEMORY_PART, MEMORY_USED
from headrace.testing import MemorySink, MemorySource
from headrace_light.memory_budget import MemoryBudget
from headrace_light.process_memory import resident_bytes

MIB = 2**20


class Process:
    """A process of which tests say how much memory it takes."""

    def __init__(self, *, freed: int = 0, enabled: bool = False) -> None:
        self.used, self.waiting, self.freed, self.written = 10 * MIB, 0, freed, 0
        self.clock = ManualClock()
        self.meter = Meter(enabled=enabled)
        self.budget = MemoryBudget(
            "test.job", 100 * MIB, self.clock, self.meter,
            waiting=lambda: {"out": self.waiting}, write_out=self.write_out, used=lambda: self.used,
        )  # fmt: skip

    def write_out(self) -> None:
        self.written += 1
        self.used -= min(self.freed, self.waiting)
        self.waiting -= min(self.freed, self.waiting)

    def at(self, megabytes: int, *, waiting: int = 0, held: Held | None = None) -> None:
        self.used, self.waiting = megabytes * MIB, waiting * MIB
        self.clock.advance(0.6)
        self.budget.check(held)


def test_a_warning_names_the_culprit_once(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.at(79)
    assert not caplog.records
    process.at(81, waiting=60)
    process.at(85, waiting=60)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "81 MiB of the 100 MiB" in record.getMessage()
    assert "rows that wait for sink out: 60 MiB" in record.getMessage()
    process.at(50)
    process.at(82, waiting=1)
    assert "most of it by rules, libraries and the rest: 81 MiB" in caplog.records[-1].getMessage()
    assert process.written == 0


class Held:
    """Tells what parts of a job hold."""

    def __init__(self, *, workers: int = 0, ahead: int = 0, nodes: dict[str, int] | None = None) -> None:
        self.workers, self.ahead, self.nodes, self.looks = workers, ahead, nodes or {}, 0

    def in_workers(self) -> int:
        return self.workers * MIB

    def read_ahead(self) -> int:
        return self.ahead * MIB

    def by_node(self) -> dict[str, int]:
        self.looks += 1
        return {name: size * MIB for name, size in self.nodes.items()}


def test_a_node_and_the_workers_can_be_the_culprit(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.at(60, held=Held(nodes={"agg": 50}))
    assert not caplog.records
    held = Held(workers=15, nodes={"agg": 40, "join": 10})
    process.at(70, held=held)
    assert "85 MiB of the 100 MiB" in caplog.records[-1].getMessage()
    assert "most of it by node agg: 40 MiB" in caplog.records[-1].getMessage()
    for _ in range(3):
        process.at(70, held=held)
    assert held.looks == 1
    process.at(20)
    process.at(30, held=Held(workers=55))
    assert "most of it by worker processes: 55 MiB" in caplog.records[-1].getMessage()
    process.at(10, held=Held(workers=85))
    assert process.budget.max_records("s", 20_000) == 10_000


@pytest.fixture(autouse=True)
def _few_objects() -> Iterator[None]:
    """Near its budget a job collects garbage, which would look through all that other tests have left, each time."""
    gc.freeze()
    yield
    gc.unfreeze()


def test_near_the_budget_caches_are_written_out_and_less_is_read() -> None:
    process = Process(freed=100 * MIB)
    assert process.budget.max_records("s", 20_000) == 20_000
    process.at(95, waiting=30)
    assert (process.written, process.used) == (1, 65 * MIB)
    assert process.budget.max_records("s", 20_000) == 10_000
    process.at(95)
    process.at(96)
    assert process.budget.max_records("s", 20_000) == 2_500
    process.at(70)
    assert process.budget.max_records("s", 20_000) == 20_000
    for _ in range(40):
        process.at(95)
    assert process.budget.max_records("s", 20_000) == 1


def test_batches_of_large_records_have_fewer() -> None:
    process = Process()
    process.budget.came("large", 10, 10 * MIB)
    assert process.budget.max_records("large", 20_000) == 3
    assert process.budget.max_records("other", 20_000) == 20_000
    process.budget.came("large", 1, 100 * MIB)
    assert process.budget.max_records("large", 20_000) == 1


def test_a_job_that_needs_more_ends_and_says_so() -> None:
    process = Process()
    process.at(101)
    process.clock.advance(14)
    process.at(99)  # it came down
    process.clock.advance(14)
    process.at(103)
    process.clock.advance(16)
    with pytest.raises(JobFailedError, match="104 MiB of the 100 MiB of memory_max_bytes") as caught:
        process.at(104)
    assert caught.value.option == "memory_max_bytes"


def test_figures_tell_the_parts() -> None:
    process = Process(enabled=True)
    process.at(30, waiting=7, held=Held(workers=5, nodes={"agg": 9}))
    taken = {(name, *labels): value for name, labels, value in process.meter.take()["gauges"]}
    assert taken[MEMORY_USED.name,] == 35 * MIB
    assert taken[MEMORY_PART.name, "node agg"] == 9 * MIB
    assert taken[MEMORY_PART.name, "worker processes"] == 5 * MIB
    assert taken[MEMORY_PART.name, "rows that wait for sink out"] == 7 * MIB


def test_the_memory_of_this_process_is_known() -> None:
    trim_freed_memory()
    assert 20 * MIB < resident_bytes() < 100_000 * MIB


def test_a_job_with_a_budget_gives_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_bytes(b"".join(b'{"n": %d}\n' % n for n in range(3000)))
    for workers in (1, 2):
        sink = MemorySink()
        stream = hr.stream("test", "budget").from_file(path, format="json", schema={"n": "int64"})
        stream.where("n >= 0").to(sink).run("light", memory_max_bytes="8 GiB", workers=workers, max_batch_records=500)
        assert [row["n"] for row in sink.rows] == list(range(3000))


def test_a_budget_that_is_spent_already_is_refused_before_anything_is_read() -> None:
    job = hr.stream("test", "budget").from_(MemorySource({"q": []}), format="raw").to(MemorySink())
    with pytest.raises(OptionError, match="before the job begins"):
        job.run("light", memory_max_bytes="64 MiB")
