"""A job whose state does not fit in its memory, in a process of its own: ``python light_spilling_job.py DIRECTORY``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import headrace as hr
from headrace_light import storing_behind


def spilling_job(directory: Path) -> hr.Job:
    """Return a job that counts and adds by key, into a table of SQLite."""
    stream = hr.stream("test", "spilling").from_file(
        str(directory / "input" / "*.ndjson"), format="json", schema={"k": "string", "v": "int64"}
    )
    job: hr.Job = (
        stream.key_by("k").agg(n="count(*)", s="sum(v)", m="max(v)")
        .to_sqlite("totals", str(directory / "out.db"), create_table=True, mode="upsert", key=["k"])
    )  # fmt: skip
    return job


def run(directory: Path, **options: Any) -> hr.JobReport:
    """Run the job to its end, from its checkpoint, in small steps."""
    given: dict[str, Any] = {
        "state_memory": "1 MB", "checkpoint_interval": "50 ms", "shards": 2, "max_batch_records": 2_000, **options
    }  # fmt: skip
    return spilling_job(directory).run("light", checkpoint=directory / "state", show_progress=False, **given)


if __name__ == "__main__":
    storing_behind.BEHIND_ROWS_MIN = 0  # checkpoints are stored while the job goes on
    run(Path(sys.argv[1]), checkpoint_interval="1 ms", max_batch_records=500)
