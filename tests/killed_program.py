"""The process of a job that ``tests.killed_jobs`` kills. It has a file of its own: each start would import pytest, too.

python -m tests.killed_program DIRECTORY (the sink's name and options as JSON on standard input)
"""

from __future__ import annotations

import json
import sys

import headrace as hr


def main(directory: str) -> None:
    """Run the job to the end of its input."""
    given = json.load(sys.stdin)
    stream = (
        hr.stream("test", "kills")
        .from_file(f"{directory}/in/*.ndjson", format="json", schema={"id": "int64", "text": "string"})
        .where("id % 10 <> 3")
        .dead_letters(lambda bad: bad.to_file(f"{directory}/dead", format="json"))
    )
    job = getattr(stream, f"to_{given['sink']}")(**given["options"])
    report = job.run(
        "light",
        show_progress=False,
        checkpoint=f"{directory}/checkpoint",
        checkpoint_interval="30 ms",
        max_batch_records=70,
    )
    print(report.state.value)


if __name__ == "__main__":
    main(sys.argv[1])
