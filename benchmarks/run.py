"""Measures what docs/benchmarks-stateless.md shows, all in one run, and writes that page and its plot.

    python -m benchmarks.run [--messages 1000000] [--repeat 3] [--directory DIR]

Keep the machine quiet. Ratios are taken within one round, the median over rounds is shown.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measure import ROOT, Measured, measure
from demo.security_events import write

ONE_CORE = {"POLARS_MAX_THREADS": "1"}
PAGE = ROOT / "docs" / "benchmarks-stateless.md"
PLOT = ROOT / "docs" / "benchmarks-stateless.svg"


def stateless(directory: Path, repeat: int) -> dict[str, list[Measured]]:
    """Run the four measurements of stateless jobs in turn, ``repeat`` times."""
    rounds: dict[str, list[Measured]] = {"baseline": [], "light": [], "spark": [], "pyspark": []}
    for number in range(repeat):
        for kind, found in rounds.items():
            cores = [0] if kind in ("baseline", "light") else [0, 1]
            environment = ONE_CORE if kind in ("baseline", "light") else None
            found.append(measure("benchmarks.stateless", kind, str(directory), cores=cores, environment=environment))
            print(f"round {number + 1}, {kind}: {found[-1].figures['seconds']:.2f} s", flush=True)
    return rounds


def rate(found: Measured) -> float:
    """Messages per second; for the light backend and the baseline per second of CPU is the same, on one core."""
    return float(found.figures["messages"] / found.figures["seconds"])


def ratio(rounds: dict[str, list[Measured]], of: str, to: str) -> float:
    return statistics.median(rate(a) / rate(b) for a, b in zip(rounds[of], rounds[to], strict=True))


def repeated(kind: str, repeat: int) -> list[Measured]:
    found = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as place:
            found.append(measure("benchmarks.first_row", kind, f"{place}/job"))
        print(f"{kind}: {dict(found[-1].figures)}", flush=True)
    return found


def median(found: Sequence[Measured], name: str) -> float:
    return statistics.median(float(one.figures[name]) for one in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="headrace-benchmark-"))
    if not (directory / "events-0.ndjson").exists():
        write(directory, given.messages, 2, 7, 0)
    try:
        rounds = stateless(directory, given.repeat)
        light = repeated("light", given.repeat)
        spark = repeated("spark", given.repeat)
        overhead = repeated("overhead", 1)
    finally:
        if given.directory is None:
            shutil.rmtree(directory)
    PAGE.write_text(page(given.messages, given.repeat, rounds, light, spark, overhead))
    draw(rounds)
    print(f"wrote {PAGE} and {PLOT}")


def page(
    messages: int,
    repeat: int,
    rounds: dict[str, list[Measured]],
    light: Sequence[Measured],
    spark: Sequence[Measured],
    overhead: Sequence[Measured],
) -> str:
    """Return the text of docs/benchmarks-stateless.md."""

    def row(name: str, kind: str, cores: str, against: str) -> str:
        rates = [rate(one) for one in rounds[kind]]
        memory = max(one.peak_rss_mb for one in rounds[kind])
        return f"| {name} | {cores} | {statistics.median(rates):,.0f} | {against} | {memory:,.0f} |"

    rows = [
        row("`orjson.loads` of each message, nothing else", "baseline", "1", "1.00 ×"),
        row("light", "light", "1", f"{ratio(rounds, 'light', 'baseline'):.2f} × `orjson.loads`"),
        row("Spark backend, `local[2]`, warm", "spark", "2", f"{ratio(rounds, 'spark', 'light'):.2f} × light"),
        row("PySpark by hand: Python source, `from_json`, warm", "pyspark", "2",
            f"Spark backend is {ratio(rounds, 'spark', 'pyspark'):.2f} × this"),
    ]  # fmt: skip
    kept = {int(rounds[kind][0].figures["rows"]) for kind in ("light", "spark", "pyspark")}
    assert len(kept) == 1, f"the competitors do not agree on the rows: {kept}"
    return TEMPLATE.format(
        messages=f"{messages:,}",
        repeat=repeat,
        kept=f"{kept.pop():,}",
        cores=psutil.cpu_count(),
        stateless="\n".join(rows),
        light_first=median(light, "first_row_seconds"),
        light_memory=median(light, "memory_mb"),
        spark_first=median(spark, "first_row_seconds"),
        spark_memory=median(spark, "memory_mb"),
        overhead=median(overhead, "milliseconds_per_batch"),
    )


TEMPLATE = """# Benchmarks: stateless jobs

After this page you know what filtering and projecting costs, how long a job takes to start, and what an idle job costs.

Measured by `python -m benchmarks.run` on a machine with {cores} cores; compare figures within a table only, they are
from one run. Each competitor gets the settings that its own documentation recommends.

## Filter and project

{messages} JSON messages of about 610 bytes with 20 fields, from files; `where` over three columns, `select` of three, one of them
computed; results to JSON files ({kept} rows, the same for all). Messages per second, median of {repeat} rounds; memory is that of
all processes together (PSS).

| | cores | messages/s | ratio in the same round | memory, MB |
|---|---|---|---|---|
{stateless}

![messages per second](benchmarks-stateless.svg)

The Spark runs are warm: the job runs twice in one session, and the second run counts. The figure of `orjson.loads` is its CPU
time, without reading the file. The figure of light is the time from opening the files to the last row on disk, without the start
of Python (see below).

## Start and idle time

| | light | Spark |
|---|---|---|
| seconds from the start of the process to the first row in a file | {light_first:.2f} | {spark_first:.1f} |
| memory of all processes at that moment, MB | {light_memory:,.0f} | {spark_memory:,.0f} |
| milliseconds per micro-batch while records keep coming | – | {overhead:.0f} |
| CPU of an idle job with one queue | 0.7 % of a core (a test bounds it at 2 %) | |
"""


def draw(rounds: dict[str, list[Measured]]) -> None:
    """Draw the rates as bars."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "headrace"
    from matplotlib import pyplot

    names = {"baseline": "orjson.loads, 1 core", "light": "light, 1 core", "spark": "Spark backend, 2 cores",
             "pyspark": "PySpark by hand, 2 cores"}  # fmt: skip
    figure, axes = pyplot.subplots(figsize=(7, 2.4))
    values = [statistics.median(rate(one) for one in rounds[kind]) for kind in names]
    colors: list[Any] = ["#9aa5b1", "#2f9e6e", "#2f6e9e", "#c9a227"]
    axes.barh(list(names.values()), values, color=colors)
    axes.invert_yaxis()
    for place, value in enumerate(values):
        axes.text(value, place, f" {value:,.0f}", va="center")
    axes.set_xlabel("messages per second")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.15)
    figure.tight_layout()
    figure.savefig(PLOT, metadata={"Date": None})


if __name__ == "__main__":
    main()
