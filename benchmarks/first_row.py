"""Seconds from the start of the process to the first row that a reader can see, and what a micro-batch costs.

python -m benchmarks.first_row light|spark DIRECTORY
python -m benchmarks.first_row sql DIRECTORY           # `headrace run job.sql`, five times, by lines as those of benchmarks.nexmark
python -m benchmarks.first_row overhead DIRECTORY      # seconds per micro-batch while records keep coming
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil


def job(directory: Path) -> Any:
    import headrace as hr

    return (
        hr.stream("benchmark", "first-row")
        .from_file(f"{directory}/in/*.ndjson", format="json", schema={"id": "int64", "text": "string"})
        .where("id % 2 = 0")
        .to_file(directory / "out", format="json", flush_interval="10 ms")
    )


def first_row(backend: str, directory: Path) -> dict[str, Any]:
    """Run the job over a small file and see when its first part file was there."""
    (directory / "in").mkdir(parents=True)
    lines = b"".join(b'{"id": %d, "text": "x"}\n' % number for number in range(1000))
    (directory / "in" / "a.ndjson").write_bytes(lines)
    job(directory).run(backend, show_progress=False)
    first = min(part.stat().st_mtime for part in (directory / "out").glob("*.json"))
    ended = time.time()
    begun = psutil.Process(os.getpid()).create_time()
    memory = resident_megabytes()
    return {"first_row_seconds": first - begun, "run_seconds": ended - begun, "memory_mb": memory}


SCRIPT = """
CREATE TABLE events (id BIGINT, text VARCHAR) WITH ('connector' = 'filesystem', 'path' = '{place}/in/*.ndjson', 'format' = 'json');
CREATE TABLE chosen (id BIGINT, text VARCHAR) WITH (
  'connector' = 'filesystem', 'path' = '{place}/out', 'format' = 'json', 'flush_interval' = '10 ms'
);
INSERT INTO chosen SELECT id, text FROM events WHERE MOD(id, 2) = 0;
"""


def first_row_of_text(directory: Path) -> dict[str, Any]:
    """Run the job as a SQL text from the shell, and see when its first part file was there."""
    (directory / "in").mkdir(parents=True)
    (directory / "in" / "a.ndjson").write_bytes(
        b"".join(b'{"id": %d, "text": "x"}\n' % number for number in range(1000))
    )
    (directory / "job.sql").write_text(SCRIPT.format(place=directory))
    command = [str(Path(sys.executable).with_name("headrace")), "run", str(directory / "job.sql"), "--backend", "light"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.time()
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    first = min(part.stat().st_mtime for part in (directory / "out").glob("*.json"))
    return {
        "side": "first-row", "first_row_seconds": first - begun, "run_seconds": time.time() - begun,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def resident_megabytes() -> float:
    """Return the proportional set size of this process and all its children."""
    own = psutil.Process()
    total = 0
    for one in [own, *own.children(recursive=True)]:
        try:
            total += one.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total / 1e6


def overhead(directory: Path) -> dict[str, Any]:
    """Keep a file growing by a few records and count Spark's micro-batches."""
    (directory / "in").mkdir(parents=True)
    stop = threading.Event()

    def feed() -> None:
        with open(directory / "in" / "a.ndjson", "ab", buffering=0) as file:
            number = 0
            while not stop.wait(0.005):
                file.write(b'{"id": %d, "text": "x"}\n' % number)
                number += 1

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    with job(directory).start("spark", master="local[2]", checkpoint=directory / "checkpoint") as handle:
        while handle.status().checkpoint_id < 10:
            stop.wait(0.1)
        batches, begun = handle.status().checkpoint_id, time.monotonic()
        stop.wait(15)
        batches, seconds = handle.status().checkpoint_id - batches, time.monotonic() - begun
    stop.set()
    feeder.join()
    return {"batches": batches, "milliseconds_per_batch": 1000 * seconds / batches}


def main() -> None:
    kind, directory = sys.argv[1], Path(sys.argv[2])
    if kind == "sql":
        for number in range(5):
            print(json.dumps(first_row_of_text(directory / str(number))))
        return
    found = overhead(directory) if kind == "overhead" else first_row(kind, directory)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
