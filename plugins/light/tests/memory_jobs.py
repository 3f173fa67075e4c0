"""Jobs that take much memory, for processes with a limit: ``python memory_jobs.py KIND DIRECTORY BUDGET``; prints rows and peak (kB)."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Collection
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import numpy as np
import polars as pl
from headrace.flow.messages import Queue, ReadPosition
from headrace.flow.schema import Schema
from headrace_sql.operators.range_reader import RangeReader

QUEUES, QUEUE_RECORDS = 10_000, 20
LARGE_RECORDS, LARGE_BYTES = 3, 100_000_000
WINDOW_KEYS, WINDOW_SECONDS, WINDOW_RECORDS = 50, 1_000, 10_000
SLOW_RECORDS = 200_000
JOIN_ROWS = 500_000
KEY_ROWS = 600_000


class CountingSink(hr.Sink):
    """Counts rows, changed ones too; takes its time for each insert."""

    accepts = "changelog"

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
    if kind in ("join", "keys"):
        return
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


class KeyedSource(hr.Source):
    """Gives rows with a key each, in no order, as columns."""

    bounded = True

    def __init__(self, value: str, count: int, keys: int) -> None:
        self.settings, self._value, self._count, self._keys = hr.Settings(), value, count, keys

    def schema(self) -> Schema | None:
        return Schema.of({"k": "int64", self._value: "int64"})

    def queues(self) -> Collection[Queue]:
        return [Queue(self._value)]

    def _rows(self, begin: int, end: int) -> pl.DataFrame:
        numbers = np.arange(begin, end, dtype=np.int64)
        return pl.DataFrame({"k": numbers * 2_654_435_761 % self._keys, self._value: numbers})

    def open(self, queue: Queue, start: Any) -> Any:
        return RangeReader(self._rows, start.offset if isinstance(start, ReadPosition) else 0, self._count)


def join(stream: Any) -> tuple[Any, CountingSink]:
    """Rows of two sides, four to one: what is kept of them does not fit in the memory that the process has."""
    pipe, sink = hr.stream("test", "join"), CountingSink()
    orders, people = (
        pipe.from_(KeyedSource("v", 4 * JOIN_ROWS, 4 * JOIN_ROWS)),
        pipe.from_(KeyedSource("w", JOIN_ROWS, 4 * JOIN_ROWS)),
    )
    return orders.join(people, "k").to(sink), sink


def keys(stream: Any) -> tuple[Any, CountingSink]:
    """Counts and sums by key, row by row on the disk: each key once, in no order."""
    sink = CountingSink()
    read = hr.stream("test", "keys").from_(KeyedSource("v", KEY_ROWS, KEY_ROWS))
    return read.key_by("k").agg(n="count(*)", s="sum(v)").to(sink), sink


KINDS: dict[str, Callable[[Any], tuple[Any, CountingSink]]] = {
    "queues": queues, "records": records, "windows": windows, "slow": slow, "join": join, "keys": keys,
}  # fmt: skip


def main(kind: str, directory: str, budget: str) -> None:
    pipe = hr.stream("test", kind, bad_records="stop")
    job, sink = KINDS[kind](lambda **options: pipe.from_file(f"{directory}/*", format="json", **options))
    options: dict[str, Any] = {"memory_max_bytes": budget} if budget != "none" else {}
    if kind in ("join", "keys"):
        shards = 32 if kind == "join" else 1
        options = {
            "checkpoint": f"{directory}-state",
            "shards": shards,
            "checkpoint_interval": "5 s",
            "state_memory": budget,
        }
    job.run("light", show_progress=False, **options)
    print(sink.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


if __name__ == "__main__":
    main(*sys.argv[1:])
