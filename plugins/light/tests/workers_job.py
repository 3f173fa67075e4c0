"""A job with worker processes in a process of its own, for tests that kill it: ``python workers_job.py DIRECTORY``."""

from __future__ import annotations

import sys
from pathlib import Path

import headrace as hr
from headrace_light.workers import reading_ahead
from headrace_light.workers.lane_workers import LaneWorkers

from tests.waiting_workers import start_and_wait


def workers_job(directory: Path) -> hr.Job:
    """Return a job that filters the files in ``input`` and writes them to ``output``."""
    stream = hr.stream("test", "workers").from_file(
        str(directory / "input" / "*.ndjson"),
        format="json",
        schema={"k": "string", "n": "int64"},
        metadata={"queue": "queue"},
    )
    stream = stream.dead_letters(lambda letters: letters.to_file(str(directory / "bad"), format="json")).where(
        "n % 3 <> 0"
    )
    job: hr.Job = stream.select("n", file="regexp_replace(queue, '.*/', '')").to_file(
        str(directory / "output"), format="json"
    )
    return job


if __name__ == "__main__":
    reading_ahead.RECORDS_MIN = 0
    LaneWorkers.start = start_and_wait  # type: ignore[assignment]
    workers_job(Path(sys.argv[1])).run(
        "light",
        checkpoint=Path(sys.argv[1]) / "state",
        checkpoint_interval="1 ms",
        max_batch_records=20,
        workers=2,
        show_progress=False,
    )
