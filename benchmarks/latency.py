"""How long a record takes through a light job that passes it on: from a line in a file to ``batch_insert``.

    python -m benchmarks.latency [--rates 100,1000,50000] [--seconds 10] [--workers 1,2]   # JSON lines; keep the machine quiet

A process of its own appends records, each with its time, in steps of a millisecond (at 100 a second: of ten). The job filters them and
gives them to a sink that notes how old each row is; ``flush_interval`` is 0 (or as told), so nothing waits for time. The first two
seconds do not count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from datetime import timedelta
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import headrace as hr
import numpy as np

_WARM_SECONDS = 2.0
_NS = 1_000_000_000


class AgeSink(hr.Sink):
    """Notes the age of each row when it comes, in milliseconds, and when it came."""

    def __init__(self, flush_interval: timedelta) -> None:
        self.settings = self.Settings(flush_interval=flush_interval)
        self.ages: list[Any] = []

    def batch_insert(self, batch: hr.SinkBatch) -> None:
        now = time.time_ns()
        self.ages.append((now, (now - batch.frame["sent"].to_numpy()) / 1e6))


def feed(path: Path, rate: int, seconds: float, begin: Event) -> None:
    """Append records with the time at which they are written."""
    begin.wait()
    step = max(0.001, 1.0 / rate)
    per_step = max(1, round(rate * step))
    filler = "x" * 100
    with path.open("ab", buffering=0) as file:
        due = time.perf_counter()
        end = due + seconds
        while due < end:
            now = time.time_ns()
            file.write(
                b"".join(b'{"sent": %d, "n": %d, "t": "%s"}\n' % (now, n, filler.encode()) for n in range(per_step))
            )
            due += step
            time.sleep(max(0.0, due - time.perf_counter()))


def measured(rate: int, seconds: float, workers: int, flush_interval: timedelta) -> dict[str, Any]:
    """Return percentiles of the age of rows at a rate."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        path, begin = Path(place) / "records.ndjson", context.Event()
        path.touch()
        writer = context.Process(target=feed, args=(path, rate, seconds + _WARM_SECONDS, begin))
        writer.start()
        sink = AgeSink(flush_interval)
        stream = hr.stream("benchmark", "latency").from_file(
            str(path), format="json", schema={"sent": "int64", "n": "int64", "t": "string"}
        )
        handle = stream.where("n >= 0").to(sink).start("light", workers=workers, show_progress=False)
        begun = time.time_ns()
        begin.set()
        writer.join()
        time.sleep(1.0)  # what is still on its way
        handle.stop()
        counted = np.concatenate([age for now, age in sink.ages if now > begun + _WARM_SECONDS * _NS])
        p50, p99, p999 = np.percentile(counted, [50, 99, 99.9]).round(2).tolist()
        return {
            "rate": rate, "workers": workers, "rows": len(counted), "p50_ms": p50, "p99_ms": p99, "p99.9_ms": p999,
            "histogram_ms": {f"<{edge}": int((counted < edge).sum()) for edge in (1, 2, 5, 10, 20, 50, 100, 1_000)},
            "max_ms": round(float(counted.max()), 2), "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="100,1000,50000")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--flush-interval-ms", type=float, default=0.0)
    given = parser.parse_args()
    flush_interval = timedelta(milliseconds=given.flush_interval_ms)
    for rate in map(int, given.rates.split(",")):
        for workers in map(int, given.workers.split(",")):
            print(json.dumps(measured(rate, given.seconds, workers, flush_interval)), flush=True)


if __name__ == "__main__":
    main()
