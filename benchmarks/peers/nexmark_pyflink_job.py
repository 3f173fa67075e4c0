"""Nexmark queries in PyFlink's SQL, see benchmarks.nexmark. Runs in an environment of its own, see requirements-pyflink.txt.

    python nexmark_pyflink_job.py JOB.json

``JOB.json`` has ``queries`` (name to scripts, each a list of statements of which the last is an INSERT), ``parallelism``, ``settings`` and
``jars``. The scripts of a query run in turn in this JVM, and what the last took is printed. With ``check`` it is not written to its sink,
but rows, numbers and lengths of texts of its final result are added up, by Flink too.
All work is done by Flink's generated Java code. CPU time is that of the JVM and this process together.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc"
from __future__ import annotations

import json
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from pyflink.table import EnvironmentSettings, TableEnvironment


def environment(job: dict[str, Any]) -> Any:
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "parallelism.default": str(job["parallelism"]),
        "pipeline.object-reuse": "true",
        "rest.port": "0",
        **({"pipeline.jars": ";".join(job["jars"])} if job["jars"] else {}),
        **job["settings"],
    }.items():
        made.get_config().set(name, value)
    return made


def cpu_seconds() -> float:
    found = 0.0
    for one in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        times = one.cpu_times()
        found += times.user + times.system
    return found


def run(job: dict[str, Any], statements: list[str]) -> dict[str, Any]:
    """Run a query once, from its text to the end of its input."""
    for output in job.get("outputs", []):
        shutil.rmtree(output, ignore_errors=True)
    begun, begun_cpu = time.perf_counter(), cpu_seconds()
    made = environment(job)
    for statement in statements[:-1]:
        made.execute_sql(statement)
    made.execute_sql(statements[-1]).wait()
    return {"seconds": time.perf_counter() - begun, "cpu_seconds": cpu_seconds() - begun_cpu}


def check(job: dict[str, Any], statements: list[str]) -> dict[str, Any]:
    """Return sums of the final result of a query: its rows, and by column its numbers, or lengths of its texts."""
    made = environment(job)
    for statement in statements[:-1]:
        made.execute_sql(statement)
    query = re.sub(r"(?is)^\s*INSERT INTO \S+", "", statements[-1])
    result = made.sql_query(query)
    schema = result.get_resolved_schema()
    names = [f"c{place}" for place in range(len(schema.get_column_names()))]
    sums = ["COUNT(*) AS n"]
    for name, kind in zip(names, schema.get_column_data_types(), strict=True):
        text = type(kind).__name__ in ("VarCharType", "CharType")
        if type(kind).__name__ not in ("TimestampType", "LocalZonedTimestampType"):
            sums.append(f"SUM(CAST({f'CHAR_LENGTH({name})' if text else name} AS DECIMAL(38, 3))) AS {name}")
    made.create_temporary_view("checked", result.alias(*names))
    last: Any = None
    with made.execute_sql(f"SELECT {', '.join(sums)} FROM checked").collect() as rows:  # noqa: S608  # our own names
        for row in rows:
            last = row
    values = [] if last is None else list(last)
    return {"sums": [None if value is None else str(value) for value in values]}


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    for name, scripts in job["queries"].items():
        for statements in scripts[:-1]:
            run(job, statements)
        found = check(job, scripts[-1]) if job["check"] else run(job, scripts[-1])
        print(json.dumps({"query": name, **found}), flush=True)
