"""What figures cost a light job: CPU time with and without ``metrics``, run after run in turns, in one process.

    python -m benchmarks.metrics_cost [--records 2000000] [--rounds 7]

CPU time, not time: neighbours on the machine disturb it less. ``endpoint`` also serves Prometheus and is scraped every second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

# One thread of polars: threads that wait for each other on a busy machine use CPU time, and not always as much.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import headrace as hr
from headrace.runtime import lane_figures, sink_writer
from headrace.runtime.lane_figures import LaneFigures
from headrace_metrics import PrometheusExporter

SCHEMA = {"k": "string", "v": "int64", "ts": "timestamp"}
_RECORDS_PER_SECOND = 2_000
_HOSTS = 500


def write_input(path: Path, records: int) -> None:
    """Write NDJSON: a key of 500, a number, an event time that grows."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(records):
            second = number // _RECORDS_PER_SECOND
            stamp = f"2026-05-06 {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
            file.write(f'{{"k": "host-{number * 7919 % _HOSTS}", "v": {number}, "ts": "{stamp}"}}\n')


def stateless(source: Path, target: Path) -> hr.Job:
    """where and select."""
    stream = hr.stream("cost", "stateless").from_file(str(source), format="json", schema=SCHEMA)
    job: hr.Job = stream.where("v % 3 <> 0").select("k", "ts", double="v * 2").to_file(str(target), format="json")
    return job


def windows(source: Path, target: Path) -> hr.Job:
    """A tumbling window by key."""
    stream = hr.stream("cost", "windows").from_file(str(source), format="json", schema=SCHEMA)
    counted = stream.key_by("k").window(hr.tumbling("1 min", on="ts")).agg(n="count(*)", total="sum(v)")
    job: hr.Job = counted.to_file(str(target), format="json")
    return job


def cpu_seconds(build: Callable[[Path, Path], hr.Job], source: Path, records: int, metrics: Any) -> float:
    """Return the CPU time of this process for one run."""
    with tempfile.TemporaryDirectory() as directory:
        job = build(source, Path(directory) / "out")
        begun = time.process_time()
        report = job.run("light", metrics=metrics, show_progress=False)
        spent = time.process_time() - begun
    assert report.records_read == records
    return spent


def counting_seconds(build: Callable[[Path, Path], hr.Job], source: Path, records: int) -> tuple[float, float]:
    """Return the CPU time of one run, and how much of it was spent in what counts: timed call by call.

    The clock itself takes a part of the second: it is too high rather than too low.
    """
    spent = 0.0

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal spent
            begun = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                spent += time.thread_time() - begun

        return call

    names = ("begin", "decoded", "worked", "through", "read", "entry")
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch.object(LaneFigures, name, timed(getattr(LaneFigures, name))))
        stack.enter_context(mock.patch.object(sink_writer, "stored", timed(lane_figures.stored)))
        whole = cpu_seconds(build, source, records, True)
    return whole, spent


class _Scraped:
    """An endpoint that is read every second."""

    def __enter__(self) -> PrometheusExporter:
        self._exporter = PrometheusExporter(port=0)
        self._exporter.open()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._scrape)
        self._thread.start()
        return self._exporter

    def _scrape(self) -> None:
        while not self._ending.wait(1.0):
            with urllib.request.urlopen(f"http://127.0.0.1:{self._exporter.port}/metrics") as answer:
                assert answer.read()

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._exporter.close()


def main() -> None:
    """Print a table: per job the median CPU time without figures, and what figures add.

    What they add is that of the run that was disturbed least with them, beside that without; in parentheses the pairs.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "in.ndjson"
        write_input(source, given.records)
        columns = ["off, CPU s", "counted", "endpoint, scraped every second", "timed alone"]
        print(f"| job, {given.records:,} records | {' | '.join(columns)} |\n|---|---|---|---|---|")
        for build in (stateless, windows):
            cpu_seconds(build, source, given.records, None)  # imports, caches of the disk
            off, counted, endpoint = [], [], []
            for _ in range(given.rounds):
                off.append(cpu_seconds(build, source, given.records, None))
                counted.append(cpu_seconds(build, source, given.records, True))
                with _Scraped() as exporter:
                    endpoint.append(cpu_seconds(build, source, given.records, exporter))
            cells = [f"{_more(off, each)} ({_spread(off, each)})" for each in (counted, endpoint)]
            name = (build.__doc__ or "").rstrip(".")
            parts = [counting_seconds(build, source, given.records) for _ in range(3)]
            cells.append(f"{100 * min(spent / whole for whole, spent in parts):.2f} %")
            print(f"| {name} | {statistics.median(off):.2f} | {' | '.join(cells)} |", flush=True)


def _more(off: list[float], on: list[float]) -> str:
    return f"{100 * (min(on) / min(off) - 1):+.1f} %"


def _spread(off: list[float], on: list[float]) -> str:
    ratios = [100 * (b / a - 1) for a, b in zip(off, on, strict=True)]
    return f"{min(ratios):+.1f} to {max(ratios):+.1f}"


if __name__ == "__main__":
    main()
