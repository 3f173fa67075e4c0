"""Keyed windows: two million small JSON events from a file, 100,000 Zipf keys, count and sum per key and 10 s of event time.

    python -m benchmarks.keyed make|plain|light|session|spark|native|pandas DIRECTORY

``plain`` is a loop of orjson and a dict that closes windows as the watermark passes, ``native`` Spark's own
``groupBy(window, key)`` on the same file, ``pandas`` its ``applyInPandasWithState``. The Spark runs are warm: the second
run in one session counts.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

EVENTS = int(os.environ.get("HEADRACE_BENCHMARK_EVENTS", "2000000"))
KEYS = int(os.environ.get("HEADRACE_BENCHMARK_KEYS", "100000"))
START_MS = 1_700_000_000_000
#: Event time that passes from one event to the next on average, in milliseconds.
STEP_MS = 0.05
DELAY_MS = 5_000
WINDOW_MS = 10_000
SCHEMA = {"key": "string", "ts": "timestamp", "v": "int64"}


def make(directory: Path) -> dict[str, Any]:
    """Write the events, the same ones every time: keys by Zipf's law, times out of order by up to four seconds."""
    import numpy as np

    random = np.random.default_rng(20261121)
    directory.mkdir(parents=True, exist_ok=True)
    weights = 1.0 / np.arange(1, KEYS + 1)
    keys = np.searchsorted(np.cumsum(weights / weights.sum()), random.random(EVENTS))
    times = START_MS + (np.arange(EVENTS) * STEP_MS - random.integers(0, 4_000, EVENTS)).astype(np.int64)
    values = random.integers(0, 1_000, EVENTS)
    stamps = np.datetime_as_string(times.astype("datetime64[ms]"), unit="ms")
    with open(directory / "events.ndjson", "w", encoding="ascii") as file:
        for key, stamp, value in zip(keys.tolist(), stamps.tolist(), values.tolist(), strict=True):
            file.write(f'{{"key":"user-{key}","ts":"{stamp}Z","v":{value}}}\n')
    return {"events": EVENTS}


def plain(directory: Path) -> dict[str, Any]:
    """Count and add up in a dict, closing windows behind the watermark; the output is written as JSON lines."""
    from datetime import datetime

    import orjson

    loads, dumps, parse = orjson.loads, orjson.dumps, datetime.fromisoformat
    windows: dict[int, dict[str, list[int]]] = {}
    watermark, rows = -(2**62), 0
    begun, begun_cpu = time.perf_counter(), time.process_time()
    with open(directory / "events.ndjson", "rb") as file, open(directory / "plain.ndjson", "wb") as out:

        def close(before: int) -> None:
            nonlocal rows
            for start in sorted(start for start in windows if start + WINDOW_MS <= before):
                for key, (count, total) in windows.pop(start).items():
                    out.write(dumps({"key": key, "window_start": start, "n": count, "s": total}) + b"\n")
                    rows += 1

        for line in file:
            event = loads(line)
            ms = int(parse(event["ts"]).timestamp() * 1000)
            start = ms - ms % WINDOW_MS
            if start + WINDOW_MS > watermark:
                window = windows.setdefault(start, {})
                sums = window.get(event["key"])
                if sums is None:
                    window[event["key"]] = [1, event["v"]]
                else:
                    sums[0] += 1
                    sums[1] += event["v"]
            if ms - DELAY_MS > watermark:
                watermark = ms - DELAY_MS
                if watermark % WINDOW_MS < 10:
                    close(watermark)
        close(2**62)
    return {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - begun_cpu, "rows": rows}


def _job(directory: Path, output: Path, window: Any = None) -> Any:
    import headrace as hr

    return (
        hr.stream("benchmark", "keyed")
        .from_file(f"{directory}/events.ndjson", format="json", schema=SCHEMA)
        .key_by("key")
        .window(window or hr.tumbling("10 s", on="ts"), late="5 s")
        .agg(n="count(*)", s="sum(v)")
        .to_file(output, format="json")
    )


def light(directory: Path, window: Any = None) -> dict[str, Any]:
    """Run the job on the light backend."""
    output = directory / "out-light"
    shutil.rmtree(output, ignore_errors=True)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    report = _job(directory, output, window).run("light", show_progress=False)
    return {
        "seconds": report.seconds,
        "cpu_seconds": time.process_time() - begun_cpu,
        "with_start": time.perf_counter() - begun,
        "rows": sum(report.rows_written.values()),
        "late": report.late_rows,
    }


def session(directory: Path) -> dict[str, Any]:
    """Run session windows with a gap of two seconds on the light backend."""
    import headrace as hr

    return light(directory, hr.session("2 s", on="ts"))


def spark(directory: Path) -> dict[str, Any]:
    """Run the job on Spark, twice; the second run counts."""
    figures: dict[str, Any] = {}
    for _ in range(2):
        output = directory / "out-spark"
        shutil.rmtree(output, ignore_errors=True)
        begun = time.perf_counter()
        report = _job(directory, output).run("spark", show_progress=False, master="local[2]", shards=2)
        figures = {"seconds": time.perf_counter() - begun, "rows": sum(report.rows_written.values())}
    return figures


def native(directory: Path) -> dict[str, Any]:
    """Run Spark's own streaming aggregation over the same file, twice; the second run counts."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    # A session as its users make it: headrace's own is set up for other work.
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    figures: dict[str, Any] = {}
    for attempt in range(2):
        output = directory / "out-native"
        shutil.rmtree(output, ignore_errors=True)
        begun = time.perf_counter()
        events = (
            spark.readStream.schema("key string, ts timestamp, v long")
            .option("maxFilesPerTrigger", 1)
            .json(str(directory) + "/events.ndjson*")
        )
        query = (
            events.withWatermark("ts", "5 seconds")
            .groupBy(f.window("ts", "10 seconds"), "key")
            .agg(f.count("*").alias("n"), f.sum("v").alias("s"))
            .writeStream.format("json")
            .option("path", str(output))
            .option("checkpointLocation", str(directory / f"native-checkpoint-{attempt}-{os.getpid()}"))
            .outputMode("append")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        figures = {"seconds": time.perf_counter() - begun}
    return figures


def pandas(directory: Path) -> dict[str, Any]:
    """Run the windows as a function of ``applyInPandasWithState``, called for every key, twice; the second run counts."""
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.state import GroupStateTimeout

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", rocksdb)
    figures: dict[str, Any] = {}
    for attempt in range(2):
        output = directory / "out-pandas"
        shutil.rmtree(output, ignore_errors=True)
        begun = time.perf_counter()
        query = (
            spark.readStream.schema("key string, ts timestamp, v long")
            .json(str(directory) + "/events.ndjson*")
            .withWatermark("ts", "5 seconds")
            .groupBy("key")
            .applyInPandasWithState(
                _windows_of_key, "key string, window_start long, n long, s long", "windows string", "append",
                GroupStateTimeout.EventTimeTimeout,
            )
            .writeStream.format("json")
            .option("path", str(output))
            .option("checkpointLocation", str(directory / f"pandas-checkpoint-{attempt}-{os.getpid()}"))
            .outputMode("append")
            .trigger(availableNow=True)
            .start()
        )  # fmt: skip
        query.awaitTermination()
        figures = {"seconds": time.perf_counter() - begun}
    return figures


def _windows_of_key(key: tuple[str], frames: Any, state: Any) -> Any:
    """Add up a key's new rows and give the windows that the watermark has passed."""
    import pandas as pd  # type: ignore[import-untyped]

    held: dict[int, list[int]] = (
        {int(start): sums for start, sums in json.loads(state.get[0]).items()} if state.exists else {}
    )
    for frame in frames:
        starts = frame["ts"].astype("int64") // 1_000_000_000 // 10 * 10_000
        for start, group in frame.groupby(starts)["v"]:
            sums = held.setdefault(int(start), [0, 0])
            sums[0] += len(group)
            sums[1] += int(group.sum())
    watermark = state.getCurrentWatermarkMs()
    closed = [start for start in sorted(held) if start + WINDOW_MS <= watermark]
    rows = [(key[0], start, *held.pop(start)) for start in closed]
    if held:
        state.update((json.dumps(held),))
        state.setTimeoutTimestamp(min(held) + WINDOW_MS)
    elif state.exists:
        state.remove()
    yield pd.DataFrame(rows, columns=["key", "window_start", "n", "s"])


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))))
