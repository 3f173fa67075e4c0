"""The job that the file tests kill: numbered records from files, some rows changed, some dropped, written to files.

python -m tests.chaos.file_job BACKEND DIRECTORY end|never
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import headrace as hr


def double(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Two rows from every tenth record, to have more than one index."""
    return [{**row, "copy": copy} for copy in range(2 if row["id"] % 10 == 0 else 1)]


def build(directory: Path) -> hr.Job:
    """Return the job; its output is known: see ``expected``."""
    job: hr.Job = (
        hr.stream("chaos", "files")
        .from_file(f"{directory}/in/*.ndjson", format="json", schema={"id": "int64", "text": "string"})
        .where("id % 7 <> 3")
        .flat_map(double, schema={"id": "int64", "text": "string", "copy": "int64"})
        .dead_letters(lambda bad: bad.to_file(f"{directory}/dead", format="json", flush_interval="20 ms"))
        .to_file(f"{directory}/out", format="json", flush_interval="20 ms", max_cached_rows=500)
    )
    return job


def expected(identifiers: range) -> list[tuple[int, int]]:
    """Return (id, copy) of every row that the job writes for these records."""
    return [(n, copy) for n in identifiers if n % 7 != 3 for copy in range(2 if n % 10 == 0 else 1)]


def main(backend: str, directory: str, until: str) -> None:
    options: dict[str, Any] = {"checkpoint": f"{directory}/checkpoint", "max_batch_records": 500}
    if backend == "light":
        options["checkpoint_interval"] = "50 ms"
    job = build(Path(directory))
    if until == "end":
        print(job.run(backend, show_progress=False, **options))
    else:
        handle = job.start(backend, discovery_interval="200 ms", **options)
        print("started", flush=True)
        handle.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
