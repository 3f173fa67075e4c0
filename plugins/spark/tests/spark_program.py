"""A driver program of its own, for tests that kill it: ``python spark_program.py DIRECTORY`` copies into a database.

``python spark_program.py DIRECTORY keyed`` counts windows of windows instead. With ``ui`` it copies with Spark's UI and event log
(``DIRECTORY/events``) on, and waits for the end of its standard input then.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import headrace as hr
from keyed_parts import timed, windowed
from spark_parts import CountingSource, DatabaseSink, WindowSink


def run(directory: Path, what: str) -> hr.JobReport:
    """Run the job that keeps all of it in a directory; ``what``: "copy", "keyed" or "ui"."""
    source = CountingSource(directory / "queues")
    stream = hr.stream("test", "killed").from_(source, format="json", schema={"n": "int64", "queue": "string"})
    if what == "keyed":
        first = windowed(timed(stream.with_columns(k="n % 7")))
        job = windowed(first.with_columns(k="k % 2"), seconds=500).to(WindowSink(directory / "rows.db"))
    else:
        job = stream.where("n % 3 <> 0").to(DatabaseSink(directory / "rows.db"))
    options: dict[str, Any] = {}
    if what == "ui":
        (directory / "events").mkdir()
        events = {"enabled": "true", "compress": "false", "dir": (directory / "events").as_uri()}
        options = {"ui": True, "conf": {f"spark.eventLog.{name}": value for name, value in events.items()}}
    return job.run(
        "spark",
        checkpoint=directory / "state",
        max_micro_batch_records=400,
        max_batch_records=50,
        show_progress=False,
        **options,
    )


if __name__ == "__main__":
    print(run(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "copy"), flush=True)
    if sys.argv[2:] == ["ui"]:
        sys.stdin.read()
