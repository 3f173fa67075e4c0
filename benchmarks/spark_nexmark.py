"""Nexmark on light with one core and on Spark with two, warm, in one run: each query, and all of them together.

    python -m benchmarks.spark_nexmark [--events 2000000] [--files 2] [--queries q0 q1 …]    # JSON lines and then a table
    python -m benchmarks.spark_nexmark run DESCRIPTION                           # one backend, as JSON

The queries are those of benchmarks.nexmark, over the same events: in two files, as benchmarks.nexmark gives them to two cores of the
other engine, or with ``--files 1`` in one. Each query runs once over fewer events before it is measured, in one process
for all queries of a backend. CPU seconds are those of all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import nexmark_queries
from benchmarks.measure import measure
from benchmarks.nexmark import Places
from benchmarks.nexmark_headrace import run


def all_queries(given: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Run the queries of a description, each warm; return what each took."""
    found = {}
    for name in given["queries"]:
        run(name, given, given["warm_up"])
        found[name] = run(name, given, given["events"])
    return found


def beside(places: Places, queries: Sequence[str], events: str) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """Run all queries on both backends, one after the other; return what each took, by backend and query."""
    found = {}
    for backend, cores in (("light", [0]), ("spark", [0, 1])):
        given = {
            "texts": str(places.texts), "events": events, "warm_up": str(places.warm_up),
            "side_input": str(places.side_input), "output": f"{places.directory}/out-{backend}",
            "queries": list(queries), "backend": backend,
        }  # fmt: skip
        environment = {"POLARS_MAX_THREADS": "1"} if backend == "light" else None
        taken = measure("benchmarks.spark_nexmark", "run", json.dumps(given), cores=cores, environment=environment)
        found[backend] = taken.figures
        for name, figures in taken.figures.items():
            print(json.dumps({"query": name, "backend": backend, **figures}), flush=True)
        print(json.dumps({"backend": backend, "peak_mb": taken.peak_rss_mb, "load": os.getloadavg()[0]}), flush=True)
    return found


def table(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Return the figures as a table, the sums last."""
    lines = [
        "| query | light, 1 core, s | Spark, 2 cores, s | Spark is | CPU, light = 1 |",
        "|---|---|---|---|---|",
    ]
    light, spark = found["light"], found["spark"]

    def row(name: str, queries: Sequence[str]) -> str:
        def total(side: Mapping[str, Mapping[str, float]], what: str) -> float:
            return sum(side[query][what] for query in queries)

        seconds = total(light, "seconds"), total(spark, "seconds")
        cpu = total(spark, "cpu_seconds") / total(light, "cpu_seconds")
        return f"| {name} | {seconds[0]:.2f} | {seconds[1]:.2f} | {seconds[0] / seconds[1]:.2f} × | {cpu:.2f} |"

    return "\n".join([*lines, *(row(name, [name]) for name in light), row("**all**", list(light))])


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        print(json.dumps(all_queries(json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    base = Path(tempfile.gettempdir()) / "headrace-peers"
    parser.add_argument("--environments", type=Path, default=base / "environments")
    parser.add_argument("--directory", type=Path, default=base / "nexmark")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--files", type=int, choices=(1, 2), default=2)
    parser.add_argument("--queries", nargs="*", default=nexmark_queries.QUERIES)
    given = parser.parse_args()
    places = Places(given.directory, given.environments, given.events)
    events = str(places.events) if given.files == 1 else f"{places.halves()}/*"
    print("\n" + table(beside(places, given.queries, events)))


if __name__ == "__main__":
    main()
