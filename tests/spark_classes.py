"""Writes the archive of Java's classes before the tests, so that no Spark of theirs does:

    python -m tests.spark_classes

Writing it takes Java several times as long as a test does. Without the archive each start of Java takes longer.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

import headrace as hr
from headrace_spark.processes.launch import kept_directory

#: How long Java may take to write the archive, and how often it is looked at.
_ENDS_SECONDS, _LOOK_SECONDS = 120.0, 0.2
_RUNS_A_JOB = "from tests.spark_classes import run_a_job; run_a_job()"


def run_a_job() -> None:
    """Run a job on Spark with what most jobs have: a filter, keys and a window. Java ends with this process."""
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "in.jsonl"
        source.write_text("".join(json.dumps({"n": n, "at": f"2026-01-01 00:00:{n:02}"}) + "\n" for n in range(60)))
        stream = hr.stream("tests", "spark-classes").from_file(
            str(source), format="json", schema={"n": "int64", "at": "timestamp"}
        )
        kept = stream.where("n > 3").watermark("at").with_columns(k="n % 4").key_by("k")
        kept.window(hr.tumbling("10 s", on="at")).agg(n="COUNT(*)").to_file(str(Path(place) / "out")).run("spark")


def main() -> None:
    """Run the job in a process of its own, and wait until Java has ended, which its lock says."""
    subprocess.run([sys.executable, "-c", _RUNS_A_JOB], check=True)
    kept = kept_directory()
    # The Java of a job without an end may have the lock of today or of another version: tests work without the archive too.
    tries = iter(range(round(_ENDS_SECONDS / _LOOK_SECONDS)))
    for lock in [] if kept is None else kept.glob("classes-*.lock"):
        with lock.open("rb") as file:
            while not _is_free(file) and next(tries, None) is not None:
                threading.Event().wait(_LOOK_SECONDS)


def _is_free(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
