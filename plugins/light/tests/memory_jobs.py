"""Jobs that take much memory, for processes with a limit: ``python memory_jobs.py KIND DIRECTORY BUDGET``; prints rows and peak (kB)."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr

QUEUES, QUEUE_RECORDS = 10_000, 20
LARGE_RECORDS, LARGE_BYTES = 3, 100_000_000
WINDOW_KEYS, WINDOW_SECONDS, WINDOW_RECORDS = 50, 1_000, 10_000
SLOW_RECORDS = 200_000


class CountingSink(hr.Sink):
    """Counts rows; takes its time for each insert."""

    def __init__(self, *, pause_seconds: float = 0.0, **settings: Any) -> None:
        self.settings = self.Settings(**settings)
        self.rows = 0
        self.pause_seconds = pause_seconds

    def batch_insert(self, batch: hr.SinkBatch) -> None:
        time.sleep(self.pause_seconds)
        self.rows += batch.frame.height


def write_input(kind: str, directory: Path) -> None:
    """Write the input of a job."""
    directory.mkdir(parents=True)
    if kind == "queues":
        lines = b"".join(b'{"n": %d, "t": "%s"}\n' % (n, b"x" * 1000) for n in range(QUEUE_RECORDS))
        for number in range(QUEUES):
            (directory / f"{number:05d}.ndjson").write_bytes(lines)
    elif kind == "records":
        with (directory / "large.ndjson").open("wb") as file:
            for n in range(LARGE_RECORDS):
                file.write(b'{"n": %d, "t": "%s"}\n' % (n, b"x" * LARGE_BYTES))
    elif kind == "windows":
        with (directory / "events.ndjson").open("w") as file:
            for n in range(WINDOW_RECORDS):
                second = n * 3000 // WINDOW_RECORDS
                at = f"2026-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
                file.write(json.dumps({"k": n % WINDOW_KEYS, "ts": at}) + "\n")
    else:
        with (directory / "slow.ndjson").open("wb") as file:
            for n in range(SLOW_RECORDS):
                file.write(b'{"n": %d, "t": "%s"}\n' % (n, b"x" * 1000))


def queues(stream: Any) -> tuple[Any, CountingSink]:
    sink = CountingSink(flush_interval=timedelta(hours=1))
    return stream(schema={"n": "int64", "t": "string"}).where("n >= 0").to(sink), sink


def records(stream: Any) -> tuple[Any, CountingSink]:
    sink = CountingSink(flush_interval=timedelta(hours=1))
    large = 2 * LARGE_BYTES
    read = stream(schema={"n": "int64", "t": "string"}, max_record_bytes=large, max_body_bytes=large)
    return read.where("n >= 0").to(sink), sink


def windows(stream: Any) -> tuple[Any, CountingSink]:
    sink = CountingSink()
    read = stream(schema={"k": "int64", "ts": "timestamp"}).key_by("k")
    sliding = hr.sliding(f"{WINDOW_SECONDS} s", "1 s", on="ts")
    return read.window(sliding).agg(n="count(*)").to(sink), sink


def slow(stream: Any) -> tuple[Any, CountingSink]:
    sink = CountingSink(pause_seconds=0.002, flush_interval=timedelta(hours=1), batch_size=500)
    return stream(schema={"n": "int64", "t": "string"}).where("n >= 0").to(sink), sink


KINDS: dict[str, Callable[[Any], tuple[Any, CountingSink]]] = {
    "queues": queues, "records": records, "windows": windows, "slow": slow,
}  # fmt: skip


def main(kind: str, directory: str, budget: str) -> None:
    pipe = hr.stream("test", kind, bad_records="stop")
    job, sink = KINDS[kind](lambda **options: pipe.from_file(f"{directory}/*", format="json", **options))
    job.run("light", show_progress=False, **({"memory_max_bytes": budget} if budget != "none" else {}))
    print(sink.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


if __name__ == "__main__":
    main(*sys.argv[1:])
