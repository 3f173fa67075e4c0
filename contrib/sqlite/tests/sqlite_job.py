"""The job that tests kill: numbers of a file into a table. ``python sqlite_job.py DIRECTORY``."""

from __future__ import annotations

import sys

import headrace as hr

SCHEMA = {"n": "int64"}


def main(directory: str) -> None:
    (
        hr.stream("test", "kills")
        .from_file(f"{directory}/in.ndjson", format="json", schema=SCHEMA)
        .where("n % 10 <> 3")
        .to_sqlite("t", f"{directory}/a.db", create_table=True, batch_size=40, flush_interval="10 ms")
        .run(
            "light",
            checkpoint=f"{directory}/checkpoint",
            checkpoint_interval="30 ms",
            max_batch_records=50,
            show_progress=False,
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
