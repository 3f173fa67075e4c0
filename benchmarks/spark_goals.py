"""What Spark takes to start, to run one more query and one more micro-batch, and for the demo; beside the goals, with date and load.

    python -m benchmarks.spark_goals          # after `make setup`; about two minutes; `make bench-spark` calls it

The table is that of docs/benchmarks-spark.md. A figure is of one run, but for the medians of five queries and of three times that
micro-batches were counted. On a machine that does other work it says little: the load is printed before and after.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import demo.run
from benchmarks.measure import measure
from benchmarks.spark_beside_light import make

_FIRST_RUNS = 3
#: Of which the small input is made.
_EVENTS = 2_000_000


@dataclass(frozen=True)
class Goal:
    """A figure and what it is to be at most."""

    name: str
    most: float
    unit: str
    found: float

    def row(self) -> str:
        """Return a line of the table."""
        digits = 0 if self.unit in ("ms", "MB") else 2
        reached = "yes" if self.found <= self.most else "**no**"
        return f"| {self.name} | {self.most:g} {self.unit} | {self.found:.{digits}f} {self.unit} | {reached} |"


def first_row(place: Path) -> Iterator[float]:
    """Yield how long it took from the start of a command to the first row in a file."""
    for number in range(_FIRST_RUNS):
        taken = measure("benchmarks.first_row", "spark", str(place / f"first-{number}"))
        yield taken.figures["first_row_seconds"]


def goals(place: Path) -> Iterator[Goal]:
    """Measure one after the other; nothing else may run."""
    yield Goal("from the command to the first row in a file", 8, "s", statistics.median(first_row(place)))
    make(place, _EVENTS)
    session = measure("benchmarks.spark_beside_light", "start", str(place)).figures
    further = statistics.median(session["further_query_seconds"]) - statistics.median(session["light_query_seconds"])
    yield Goal("a further query of a session takes longer than on light by", 0.4, "s", further)
    yield Goal("one more micro-batch", 120, "ms", session["micro_batch_ms_small"])
    yield Goal("one more micro-batch with a keyed stage", 120, "ms", session["micro_batch_ms_small-windows"])
    shutil.rmtree(place / "events")
    begun = time.perf_counter()
    taken = measure("benchmarks.spark_goals", "demo")
    yield Goal("`make demo` after set-up", 15, "s", time.perf_counter() - begun)
    yield Goal("memory of all processes of the demo", 900, "MB", taken.peak_rss_mb)


def main() -> None:
    if sys.argv[1:] == ["demo"]:
        print(json.dumps({"code": demo.run.main()}))
        return
    print(json.dumps({"date": time.strftime("%Y-%m-%d"), "load": os.getloadavg()[0]}), flush=True)
    with tempfile.TemporaryDirectory(prefix="headrace-goals-") as directory:
        print("| | goal: at most | found | reached |\n|---|---|---|---|", flush=True)
        for goal in goals(Path(directory)):
            print(goal.row(), flush=True)
    print(json.dumps({"load": os.getloadavg()[0]}), flush=True)


if __name__ == "__main__":
    main()
