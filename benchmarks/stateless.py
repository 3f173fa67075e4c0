"""Stateless where + select over one million JSON messages of about 650 bytes from a file, results to files.

    python -m benchmarks.stateless baseline|light|spark|pyspark DIRECTORY

``baseline`` is ``orjson.loads`` of every message in a plain loop; ``pyspark`` is what one would write by hand: a Python
data source that gives the lines, ``from_json``, the same filter and columns, written as JSON. The Spark runs are warm:
the whole job is run twice in one session and the second run counts.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PREDICATE = "lower(cmdline) LIKE '%curl%' AND user <> 'root' AND exit_code = 0"
COLUMNS = {"host": "string", "user": "string", "cmdline": "string", "ts": "timestamp", "exit_code": "int64"}


def baseline(directory: Path) -> dict[str, Any]:
    """Parse each line and do nothing with it; reading the files is not counted."""
    import orjson

    count, seconds = 0, 0.0
    loads = orjson.loads
    for file in sorted(directory.glob("events-*.ndjson")):
        lines = file.read_bytes().splitlines()
        begun = time.process_time()
        for line in lines:
            loads(line)
        seconds += time.process_time() - begun
        count += len(lines)
    return {"messages": count, "seconds": seconds}


def _job(directory: Path, output: Path) -> Any:
    import headrace as hr

    return (
        hr.stream("benchmark", "stateless")
        .from_file(f"{directory}/events-*.ndjson", format="json", schema=COLUMNS)
        .where(PREDICATE)
        .select("host", "ts", cmd="lower(cmdline)")
        .to_file(output, format="json")
    )


def _timed(run: Callable[[], int]) -> tuple[float, int]:
    begun = time.perf_counter()
    rows = run()
    return time.perf_counter() - begun, rows


def light(directory: Path) -> dict[str, Any]:
    output = directory / "out-light"
    shutil.rmtree(output, ignore_errors=True)
    begun_cpu = time.process_time()
    report = _job(directory, output).run("light", show_progress=False)
    cpu_seconds = time.process_time() - begun_cpu
    figures = {"messages": report.records_read, "seconds": report.seconds, "cpu_seconds": cpu_seconds}
    return {**figures, "rows": _count(output)}


def spark(directory: Path) -> dict[str, Any]:
    seconds = 0.0
    messages = 0
    output = directory / "out-spark"
    for _ in range(2):
        shutil.rmtree(output, ignore_errors=True)
        seconds, messages = _timed(
            lambda: _job(directory, output).run("spark", show_progress=False, master="local[2]").records_read
        )
    return {"messages": messages, "seconds": seconds, "rows": _count(output)}


def pyspark(directory: Path) -> dict[str, Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    from pyspark.sql import functions as f

    from benchmarks.handwritten_source import LinesSource, session

    spark_session = session("local[2]")
    spark_session.dataSource.register(LinesSource)
    output = directory / "out-pyspark"
    seconds = 0.0
    messages = 0
    for attempt in range(2):
        shutil.rmtree(output, ignore_errors=True)

        def run(attempt: int = attempt) -> int:
            lines = spark_session.readStream.format("lines").option("path", str(directory)).load()
            parsed = lines.select(
                f.from_json("value", "host string, user string, cmdline string, ts timestamp, exit_code long").alias(
                    "e"
                )
            ).select("e.*")
            chosen = parsed.where(PREDICATE).selectExpr("host", "ts", "lower(cmdline) AS cmd")
            query = (
                chosen.writeStream.format("json")
                .option("path", str(output))
                .option("checkpointLocation", str(directory / f"checkpoint-pyspark-{attempt}-{time.time_ns()}"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            return sum(progress["numInputRows"] for progress in query.recentProgress)

        seconds, messages = _timed(run)
    return {"messages": messages, "seconds": seconds, "rows": _count(output)}


def _count(output: Path) -> int:
    return sum(part.read_bytes().count(b"\n") for part in output.glob("*.json"))


def main() -> None:
    kind, directory = sys.argv[1], Path(sys.argv[2])
    print(json.dumps({"baseline": baseline, "light": light, "spark": spark, "pyspark": pyspark}[kind](directory)))


if __name__ == "__main__":
    main()
