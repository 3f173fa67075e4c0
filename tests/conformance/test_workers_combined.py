"""Worker processes with what users combine: merged jobs, state on disk, savepoints, other numbers of workers and shards, kills."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from headrace_light.workers import reading_ahead
from headrace_light.workers.lane_workers import LaneWorkers

from tests.conformance.combined_job import CombinedJob
from tests.eventually import eventually
from tests.waiting_workers import start_and_wait

RECORDS = 1_500
#: Workers before and after, shards after, memory for state.
OFTEN = [(2, 1, 1, "1 MB"), (1, 3, 3, None)]
OTHERS = [(2, 3, 1, None), (3, 2, 4, "1 MB"), (3, 1, 2, None), (1, 2, 1, "1 MB"), (2, 2, 2, "1 MB")]
CHANGES = [*OFTEN, *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS)]


@pytest.fixture(autouse=True)
def _workers_that_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_ahead, "RECORDS_MIN", 0)  # the inputs are small
    monkeypatch.setattr(LaneWorkers, "start", start_and_wait)


def _options(memory: str | None, **more: Any) -> dict[str, Any]:
    return {"show_progress": False, "max_batch_records": 53, **({"state_memory": memory} if memory else {}), **more}


@pytest.mark.parametrize(("before", "after", "shards", "memory"), CHANGES)
def test_a_job_goes_on_from_a_savepoint_with_other_workers_and_shards(
    before: int, after: int, shards: int, memory: str | None, tmp_path: Path
) -> None:
    made = CombinedJob(tmp_path, keys=37)
    made.write(0, RECORDS)
    handle = made.job().start("light", workers=before, checkpoint=tmp_path / "first", **_options(memory))
    eventually(lambda: made.kept() > 0, "the first rows", seconds=60)
    handle.stop(savepoint=tmp_path / "savepoint")
    made.write(RECORDS, 2 * RECORDS)
    goes_on: dict[str, Any] = {"checkpoint": tmp_path / "second", "from_savepoint": tmp_path / "savepoint"}
    made.job().run("light", workers=after, shards=shards, **goes_on, **_options(memory))
    assert made.outputs() == made.wanted(2 * RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after", "shards", "memory"), [*OFTEN, *OTHERS])
def test_a_job_goes_on_from_its_checkpoint_with_other_workers(
    before: int, after: int, shards: int, memory: str | None, tmp_path: Path
) -> None:
    made = CombinedJob(tmp_path, keys=37)
    for last, workers in ((RECORDS, before), (2 * RECORDS, after)):
        made.write(last - RECORDS, last)
        made.job().run("light", workers=workers, shards=shards, checkpoint=tmp_path / "state", **_options(memory))
    assert made.outputs() == made.wanted(2 * RECORDS)


@contextmanager
def _killing(running: list[LaneWorkers], killed: list[int]) -> Iterator[None]:
    """Kill a worker that is ready, now and then."""
    ended, chosen = threading.Event(), random.Random(5)

    def kill() -> None:
        while not ended.wait(chosen.uniform(0.5, 0.9)):
            # A batch that ends three processes ends the job, and on a busy machine one may take longer than the time between two kills.
            ready = [
                each.process
                for workers in running
                for each in workers._workers
                if each.ready and not any(work.tries for _, _, work in tuple(each.waiting))
            ]
            found = [each.pid for each in ready if each is not None and each.poll() is None]
            if found:
                killed.append(chosen.choice(found))
                os.kill(killed[-1], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
def test_workers_are_killed_while_checkpoints_are_made_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill costs those batches a try that a worker had begun, not those that waited behind them: no kill ends the job."""
    running: list[LaneWorkers] = []
    killed: list[int] = []

    def start(workers: LaneWorkers) -> None:
        running[:] = [workers]
        start_and_wait(workers)

    monkeypatch.setattr(LaneWorkers, "start", start)
    made = CombinedJob(tmp_path, keys=15_000)
    made.write(0, 8 * RECORDS)
    often = _options("1 MB", checkpoint_interval="1 ms", max_batch_records=30)
    with _killing(running, killed):
        made.job().run("light", workers=3, checkpoint=tmp_path / "state", **often)
    assert killed, "the job ended before a worker was killed"
    assert made.outputs() == made.wanted(8 * RECORDS)
