"""Our side of benchmarks.peers: headrace light, and the loop of Python that anybody could write.

Everything runs twice in one process and the second run counts, as for the peers that have something to warm.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _second(run: Callable[[], int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(2):
        begun, begun_cpu = time.perf_counter(), time.process_time()
        rows = run()
        found = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - begun_cpu, "rows": rows}
    return found


def _run(job: Any, out: str) -> int:
    shutil.rmtree(out, ignore_errors=True)
    report = job.run("light", show_progress=False)
    return sum(report.rows_written.values())


def rules_headrace(count: str, events: str, out: str) -> dict[str, Any]:
    """Job A with the verb ``rules``."""
    import headrace as hr

    from benchmarks.rule_sets import COLUMNS, rule_set

    def run() -> int:
        stream = hr.stream("benchmark", "rules").from_file(events, format="json", schema=COLUMNS)
        return _run(stream.rules(rule_set("selective", int(count))).to_file(out, format="json"), out)

    return _second(run)


def rules_plain(count: str, events: str, out: str) -> dict[str, Any]:
    """Job A as a loop of orjson and compiled lambdas."""
    import orjson

    from benchmarks.python_rules import python_rules
    from benchmarks.rule_sets import COLUMNS, rule_set

    functions = python_rules(rule_set("selective", int(count)))
    loads, dumps = orjson.loads, orjson.dumps

    def run() -> int:
        rows = 0
        with open(events, "rb") as lines, open(out, "wb") as file:
            for line in lines:
                event = loads(line)
                ids = [rule_id for rule_id, function in functions if function(event)]
                if ids:
                    file.write(dumps({**{name: event[name] for name in COLUMNS}, "rule_ids": ids}) + b"\n")
                    rows += 1
        return rows

    return _second(run)


def windows_headrace(events: str, out: str) -> dict[str, Any]:
    """Job B from a file."""
    import headrace as hr

    from benchmarks.keyed import SCHEMA

    def run() -> int:
        stream = hr.stream("benchmark", "keyed").from_file(events, format="json", schema=SCHEMA)
        window = stream.key_by("key").window(hr.tumbling("10 s", on="ts"), late="5 s")
        return _run(window.agg(n="count(*)", s="sum(v)").to_file(out, format="json"), out)

    return _second(run)


def windows_plain(events: str, out: str) -> dict[str, Any]:
    """Job B as a loop of orjson and a dict; ``events`` is ``events.ndjson`` of a directory of benchmarks.keyed."""
    from benchmarks.keyed import plain

    directory = Path(out)
    directory.mkdir(exist_ok=True)
    (directory / "events.ndjson").symlink_to(events)
    return _second(lambda: int(plain(directory)["rows"]))


def kafka_headrace(servers: str, topic: str, out: str) -> dict[str, Any]:
    """Job B from a topic to a topic, as one instance, with a checkpoint."""
    import headrace as hr

    from benchmarks.keyed import SCHEMA

    stream = hr.stream("benchmark", f"keyed{topic[-4:]}").from_kafka(
        topic, servers=servers, format="json", schema=SCHEMA
    )
    window = stream.key_by("key").window(hr.tumbling("10 s", on="ts"), late="5 s").agg(n="count(*)", s="sum(v)")
    job = window.to_kafka(f"{topic}-out", servers=servers, format="json", create_topic=True)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    report = job.run("light", show_progress=False, checkpoint=out)
    return {
        "seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - begun_cpu,
        "rows": sum(report.rows_written.values()),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])))
