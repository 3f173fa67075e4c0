"""One large file, read by one task of Spark and by several: what more cores give.

    python -m benchmarks.spark_one_file [--gigabytes 2]               # JSON lines, a table and what 16 tasks would take on paper
    python -m benchmarks.spark_one_file run BACKEND MASTER JOB PLACE  # one job, as JSON

``where`` filters and projects, ``rules`` has 41 rules; both read the same file of security events and write files. A job is run twice in
one process and the second run counts. CPU seconds are those of all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import cpu_seconds, measure
from benchmarks.rule_sets import COLUMNS, rule_set

JOBS = ("where", "rules")
#: Backend, master and cores.
SIDES = (("light", "", [0]), ("spark", "local[1]", [0]), ("spark", "local[2]", [0, 1]))
PAPER_TASKS = 16
_EVENTS_IN_A_COPY = 200_000


def make(place: Path, gigabytes: float) -> None:
    """Write the file: the same events again and again."""
    from demo.security_events import write

    write(place / "few", _EVENTS_IN_A_COPY, 1, 7, 0)
    (source,) = (place / "few").glob("events-*.ndjson")
    content = source.read_bytes()
    (place / "one").mkdir()
    with (place / "one" / "events.ndjson").open("wb") as file:
        for _ in range(round(gigabytes * 1e9 / len(content))):
            file.write(content)


def job_of(name: str, place: Path, out: Path) -> Any:
    import headrace as hr

    stream = hr.stream("benchmark", f"one-file-{name}").from_file(
        f"{place}/one/*.ndjson", format="json", schema=COLUMNS
    )
    if name == "rules":
        return stream.rules(rule_set("selective", 41)).to_file(out, format="json")
    return stream.where("exit_code = 0").select("host", "user", code="exit_code + 1").to_file(out, format="json")


def run(backend: str, master: str, name: str, place: Path) -> dict[str, Any]:
    """Run a job twice; return what the second run took."""
    options: dict[str, Any] = {"master": master} if backend == "spark" else {}
    figures: dict[str, Any] = {}
    for turn in range(2):
        out = place / f"out-{os.getpid()}-{turn}"
        begun, begun_cpu = time.perf_counter(), cpu_seconds()
        report = job_of(name, place, out).run(backend, show_progress=False, **options)
        figures = {
            "seconds": time.perf_counter() - begun, "cpu_seconds": cpu_seconds() - begun_cpu,
            "read": report.records_read, "rows": sum(report.rows_written.values()),
        }  # fmt: skip
        shutil.rmtree(out)
    return figures


def on_paper(one: float, two: float, tasks: int) -> float:
    """Return the seconds of ``tasks`` tasks, each on a core of its own, from those of one and two tasks.

    Amdahl's law: what two tasks do not halve is taken as work that no further task shares. Cores that share memory and
    disk take longer than that.
    """
    shared = 2 * (one - two)
    return one - shared + shared / tasks


def everything(gigabytes: float) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-one-file-") as directory:
        place = Path(directory)
        make(place, gigabytes)
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for name in JOBS:
            for backend, master, cores in SIDES:
                environment = {"POLARS_MAX_THREADS": "1"} if backend == "light" else None
                module, arguments = "benchmarks.spark_one_file", ("run", backend, master, name, str(place))
                taken = measure(module, *arguments, cores=cores, environment=environment)
                found[name, master] = taken.figures
                more = {"peak_mb": taken.peak_rss_mb, "load": os.getloadavg()[0]}
                print(json.dumps({"job": name, "side": master or "light", **taken.figures, **more}), flush=True)
            assert len({found[name, master]["rows"] for _, master, _ in SIDES}) == 1, name
    print("\n| job | light, 1 core, s | 1 task, s | 2 tasks, s | 16 tasks, on paper, s | CPU of 2 tasks, light = 1 |")
    print("|---|---|---|---|---|---|")
    for name in JOBS:
        light, one, two = (found[name, master] for _, master, _ in SIDES)
        paper = on_paper(one["seconds"], two["seconds"], PAPER_TASKS)
        cpu = two["cpu_seconds"] / light["cpu_seconds"]
        seconds = " | ".join(f"{each['seconds']:.1f}" for each in (light, one, two))
        print(f"| {name} | {seconds} | {paper:.1f} | {cpu:.2f} |")


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        print(json.dumps(run(sys.argv[2], sys.argv[3], sys.argv[4], Path(sys.argv[5]))))
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--gigabytes", type=float, default=2.0)
        everything(parser.parse_args().gigabytes)


if __name__ == "__main__":
    main()
