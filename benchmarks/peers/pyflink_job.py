"""The jobs of benchmarks.peers in PyFlink's SQL. Runs in an environment of its own, see requirements-pyflink.txt.

    python pyflink_job.py rules RULES.json EVENTS OUT
    python pyflink_job.py windows EVENTS OUT

All work is done by Flink's generated Java code, none by Python functions, which are slower. Parallelism 1, objects reused.
The job runs twice in one JVM and the second run counts; CPU time is that of the JVM and this process together.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc"
from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from pyflink.table import EnvironmentSettings, TableEnvironment

EVENT_COLUMNS = "`host` STRING, `user` STRING, `process` STRING, `cmdline` STRING, `exit_code` BIGINT"


def environment() -> Any:
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "parallelism.default": "1",
        "pipeline.object-reuse": "true",
        "rest.port": "0",
        "taskmanager.memory.managed.size": "256m",
    }.items():
        made.get_config().set(name, value)
    return made


def rules(made: Any, rules_file: str, events: str, out: str) -> str:
    listed = json.loads(Path(rules_file).read_text())
    made.execute_sql(
        f"CREATE TEMPORARY TABLE events ({EVENT_COLUMNS}) WITH "
        f"('connector'='filesystem', 'path'='file://{events}', 'format'='json')"
    )
    made.execute_sql(
        f"CREATE TEMPORARY TABLE alerts ({EVENT_COLUMNS}, ids STRING) WITH "
        f"('connector'='filesystem', 'path'='file://{out}', 'format'='json')"
    )
    tags = ", ".join(f"IF({rule['flink']}, '{rule['id']}', CAST(NULL AS STRING))" for rule in listed)
    return f"INSERT INTO alerts SELECT * FROM (SELECT *, CONCAT_WS(',', {tags}) AS ids FROM events) WHERE ids <> ''"  # noqa: S608  # our own seeded text


def windows(made: Any, events: str, out: str) -> str:
    made.execute_sql(
        "CREATE TEMPORARY TABLE events (`key` STRING, ts TIMESTAMP_LTZ(3), v BIGINT, "
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector'='filesystem', "
        f"'path'='file://{events}', 'format'='json', 'json.timestamp-format.standard'='ISO-8601')"
    )
    made.execute_sql(
        "CREATE TEMPORARY TABLE sums (`key` STRING, window_start TIMESTAMP(3), n BIGINT, s BIGINT) WITH "
        f"('connector'='filesystem', 'path'='file://{out}', 'format'='json')"
    )
    return (
        "INSERT INTO sums SELECT `key`, window_start, COUNT(*), SUM(v) FROM "
        "TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY `key`, window_start, window_end"
    )


def cpu_seconds() -> float:
    found = 0.0
    for one in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        times = one.cpu_times()
        found += times.user + times.system
    return found


if __name__ == "__main__":
    jobs: dict[str, Any] = {"rules": rules, "windows": windows}
    out = Path(sys.argv[-1])
    made = environment()
    statement = jobs[sys.argv[1]](made, *sys.argv[2:])
    runs = []
    for _ in range(2):
        shutil.rmtree(out, ignore_errors=True)
        begun, begun_cpu = time.perf_counter(), cpu_seconds()
        made.execute_sql(statement).wait()
        runs.append({"seconds": time.perf_counter() - begun, "cpu_seconds": cpu_seconds() - begun_cpu})
    rows = 0
    for path in out.rglob("part-*"):
        with open(path, "rb") as file:
            rows += sum(1 for _ in file)
    print(json.dumps({**runs[1], "rows": rows, "cold_seconds": runs[0]["seconds"]}))
