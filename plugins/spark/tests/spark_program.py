"""A driver program of its own, for tests that kill it: ``python spark_program.py DIRECTORY`` counts into a database."""

from __future__ import annotations

import sys
from pathlib import Path

import headrace as hr
from spark_parts import CountingSource, DatabaseSink


def main() -> None:
    directory = Path(sys.argv[1])
    source, sink = CountingSource(directory / "queues"), DatabaseSink(directory / "rows.db")
    job = (
        hr.stream("test", "killed")
        .from_(source, format="json", schema={"n": "int64", "queue": "string"})
        .where("n % 3 <> 0")
        .to(sink)
    )
    report = job.run(
        "spark", checkpoint=directory / "state", max_micro_batch_records=400, max_batch_records=50, show_progress=False
    )
    print(report)


if __name__ == "__main__":
    main()
