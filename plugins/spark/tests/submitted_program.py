"""A program for spark-submit: ``submitted_program.py DIRECTORY`` runs a job with options twice, and once with other options."""

from __future__ import annotations

import sys
from pathlib import Path

import headrace as hr
from headrace.foundation.errors import OptionError


def run(directory: Path, name: str, **options: str) -> int:
    """Run a job over the numbers of a file; return how many rows it has written."""
    stream = hr.stream("test", name).from_file(directory / "numbers.json", format="json", schema={"n": "int64"})
    job = stream.where("n > 1").to_file(directory / name, format="json")
    return sum(job.run("spark", show_progress=False, **options).rows_written.values())


if __name__ == "__main__":
    place = Path(sys.argv[1])
    print(run(place, "first", master="local[1]"), run(place, "second", master="local[1]"), flush=True)
    try:
        run(place, "third", master="local[2]")
    except OptionError as error:
        print(f"refused: {error.option}", flush=True)
