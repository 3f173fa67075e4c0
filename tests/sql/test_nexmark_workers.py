"""The published Nexmark and pattern queries with two workers: the rows of one process.

``HEADRACE_NEXMARK`` names a checkout of github.com/nexmark/nexmark. The events are those of ``benchmarks.nexmark_events``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from headrace_light.workers import reading_ahead
from headrace_light.workers.lane_workers import LaneWorkers, Work

from benchmarks import nexmark_events
from benchmarks.nexmark_headrace import job_of
from benchmarks.nexmark_queries import PATTERNS, QUERIES, make_side_input
from tests.waiting_workers import start_and_wait

CHECKOUT = os.environ.get("HEADRACE_NEXMARK")
EVENTS = 20_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHECKOUT, reason="HEADRACE_NEXMARK is not set"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("nexmark")
    nexmark_events.make(directory / "events.ndjson", EVENTS)
    make_side_input(directory / "side_input.csv")
    named = {"events": "events.ndjson", "side_input": "side_input.csv"}
    return {"texts": str(CHECKOUT), **{name: str(directory / each) for name, each in named.items()}}


@pytest.mark.parametrize("name", [*QUERIES, *PATTERNS])
def test_workers_change_no_row(
    name: str, places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Work] = []
    give = LaneWorkers.give
    monkeypatch.setattr(reading_ahead, "RECORDS_MIN", 0)
    monkeypatch.setattr(LaneWorkers, "start", start_and_wait)

    def noted(workers: LaneWorkers, work: Work) -> None:
        given.append(work)
        give(workers, work)

    monkeypatch.setattr(LaneWorkers, "give", noted)

    def rows(workers: int) -> list[tuple[Any, ...]]:
        job = job_of(name, {**places, "output": str(tmp_path / str(workers))}, places["events"])
        frame: pl.DataFrame = job.collect(backend="light", workers=workers, max_batch_records=2_000)
        return sorted(frame.rows(), key=repr)

    alone = rows(1)
    assert not given
    assert rows(2) == alone
    assert given, "the worker had nothing to do"
    assert alone


def test_files_by_partition_have_the_rows_of_one_process(places: dict[str, str], tmp_path: Path) -> None:
    """q10 writes its rows to files; the queries above only collect them."""
    found = []
    for workers in (1, 2):
        output = tmp_path / str(workers)
        job_of("q10", {**places, "output": str(output)}, places["events"]).run(
            "light", workers=workers, max_batch_records=2_000, show_progress=False
        )
        lines: dict[str, list[str]] = {}
        for path in sorted(output.rglob("part-*")):
            lines.setdefault(str(path.parent.relative_to(output)), []).extend(path.read_text().splitlines())
        found.append({folder: sorted(each) for folder, each in lines.items()})
    assert found[0] == found[1]
    assert sum(map(len, found[0].values())) > EVENTS // 2
