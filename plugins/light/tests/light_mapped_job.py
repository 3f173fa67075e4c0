"""A job of joins, windows and first rows whose state does not fit in its memory: ``python light_mapped_job.py DIRECTORY``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import headrace as hr
import headrace.interfaces.mapped_memory as mapped_memory
from headrace_light import storing_behind


def mapped_job(directory: Path) -> hr.Job:
    """Return a job whose verbs keep logs of rows, into tables of SQLite."""
    stream = hr.stream("test", "mapped")
    schema = {"k": "string", "v": "int64", "ts": "timestamp"}
    orders = stream.from_file(str(directory / "input" / "orders*.ndjson"), format="json", schema=schema)
    people = stream.from_file(
        str(directory / "input" / "people*.ndjson"), format="json", schema={"k": "string", "name": "string"}
    )

    def table(made: hr.Stream, name: str, *key: str) -> hr.Job:
        options: dict[str, Any] = {"create_table": True, "mode": "upsert", "key": list(key)}
        result: hr.Job = made.to_sqlite(name, str(directory / "out.db"), **options)
        return result

    joined = orders.join(people, "k", how="left", key=["k", "v"])
    windows = orders.key_by("k").window(hr.tumbling("1 min", on="ts"), late="1 h").agg(n="count(*)", s="sum(v)")
    first = orders.key_by("k").deduplicate(by="v", keep="last")
    job: hr.Job = hr.job(
        table(joined, "joined", "k", "v"),
        table(windows.select("k", "n", "s", w="CAST(window_start AS STRING)"), "windows", "k", "w"),
        table(first.select("k", "v"), "latest", "k"),
    )
    return job


def run(directory: Path, **options: Any) -> hr.JobReport:
    """Run the job to its end, from its checkpoint, in small steps; every array lies in a file."""
    mapped_memory._LEAST_BYTES = 1
    storing_behind.BEHIND_ROWS_MIN = 0
    given: dict[str, Any] = {
        "state_memory": "1 MB", "checkpoint_interval": "50 ms", "shards": 2, "max_batch_records": 1_000, **options
    }  # fmt: skip
    return mapped_job(directory).run("light", checkpoint=directory / "state", show_progress=False, **given)


if __name__ == "__main__":
    run(Path(sys.argv[1]), checkpoint_interval="1 ms", max_batch_records=500)
