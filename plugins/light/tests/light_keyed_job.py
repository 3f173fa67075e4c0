"""A job with keyed state in a process of its own, for tests that kill it: ``python light_keyed_job.py DIRECTORY``."""

from __future__ import annotations

import sys
from pathlib import Path

import headrace as hr
from headrace.jobs.keyed import shuffled, with_watermark
from light_counting import Count


def keyed_job(directory: Path) -> hr.Job:
    """Return a job that counts the keys of the files in ``input`` and writes each step to ``output``."""
    stream = hr.stream("test", "keyed").from_file(
        str(directory / "input" / "*.ndjson"), format="json", schema={"k": "string", "n": "int64", "ts": "timestamp"}
    )
    stream = with_watermark(stream.where("n >= 0"), "ts", "1 s")
    keyed = shuffled(stream, ("k",)).apply(Count("k"))
    job: hr.Job = keyed.to_file(str(directory / "output"), format="json")
    return job


def run(directory: Path) -> hr.JobReport:
    """Run the job to its end, from its checkpoint, in small steps."""
    return keyed_job(directory).run(
        "light",
        checkpoint=directory / "state",
        checkpoint_interval="20 ms",
        max_batch_records=7,
        shards=2,
        show_progress=False,
    )


if __name__ == "__main__":
    run(Path(sys.argv[1]))
