"""A job that a test kills while a savepoint is written: ``light_savepoint_job.py DIRECTORY savepoint|end``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import headrace as hr

SCHEMA = {"k": "string", "v": "int64", "ts": "timestamp"}


def main(directory: Path, what: str) -> None:
    stream = hr.stream("savepoints", "killed").from_file(f"{directory}/in.ndjson", format="json", schema=SCHEMA)
    windowed = stream.key_by("k").window(hr.tumbling("10 s", on="ts"), late="5 s")
    job = windowed.agg(n="count(*)", s="sum(v)").to_file(f"{directory}/out", format="json")
    options = {"checkpoint": str(directory / "checkpoint"), "shards": 3}
    if what == "end":
        job.run("light", **options)
        return
    with job.start("light", checkpoint_interval="0.5 s", **options) as handle:
        while handle.status().records_read < 60:
            time.sleep(0.01)
        handle.savepoint(directory / "savepoint")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
