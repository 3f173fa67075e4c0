"""Makes docs/benchmarks-peers.md and its plot of what ``python -m benchmarks.peers.run`` printed.

python -m benchmarks.peers.page RESULTS.jsonl [...]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT

PAGE = ROOT / "docs" / "benchmarks-peers.md"
PLOT = ROOT / "docs" / "benchmarks-peers.svg"
NAMES = {
    "headrace": "headrace, light", "plain": "a loop of Python and orjson", "bytewax": "Bytewax 0.21.1",
    "pyflink": "PyFlink 2.3.0, SQL", "quix": "Quix Streams 3.28.1",
}  # fmt: skip
Result = Mapping[str, Any]


def table(results: Sequence[Result]) -> str:
    """Return the lines of a table; ratios are to headrace, per second of CPU."""
    own = next(one for one in results if one["peer"] == "headrace")
    lines = []
    for one in results:
        name = NAMES[one["peer"]]
        if "error" in one:
            lines.append(f"| {name} | {one['messages']:,} | – | – | it failed, see below | |")
            continue
        times = own["per_cpu_second"] / one["per_cpu_second"]
        ratio = "1" if one is own else f"1 / {times:.1f}" if times < 10 else f"1 / {times:.0f}"
        lines.append(
            f"| {name} | {one['messages']:,} | {one['seconds']:.1f} | {one['cpu_seconds']:.2f} "
            f"| {one['per_cpu_second']:,.0f} | {ratio} |"
        )
    return "\n".join(lines)


def page(results: Sequence[Result]) -> str:
    """Return the text of the page."""
    parts = {
        "rules_41": [one for one in results if one["job"] == "rules" and one["rules"] == 41],
        "rules_1000": [one for one in results if one["job"] == "rules" and one["rules"] == 1_000],
        "windows": [one for one in results if one["job"] == "windows"],
        "kafka": [one for one in results if one["job"] == "kafka"],
    }
    notes = "\n".join(f"* {one['text']}" for one in results if one["job"] == "note")
    return TEMPLATE.format(notes=f"\n\n{notes}" if notes else "", **{name: table(part) for name, part in parts.items()})


HEAD = """| | messages | seconds | CPU seconds | messages per CPU second | rate |
|---|---|---|---|---|---|
"""
TEMPLATE = (
    """# Benchmarks: other stream processors

After this page you know how headrace compares with Bytewax, PyFlink and Quix Streams on rules and windows.

Made by `python -m benchmarks.peers.run`; `benchmarks/peers` has each peer's job as a script, with the settings that its docs
advise, and its pinned requirements. All run on the same data on one pinned core of a machine with 2 cores, which others used at the
same time: compare CPU seconds, not seconds. headrace, the loop and PyFlink run a job twice in one process and the second run counts;
Bytewax and Quix Streams have nothing to warm. Peers that are slow are given the first part of the data. CPU seconds are those of
all processes and threads of the job; those of the Kafka broker are not in it.

## Job A: rules

JSON security events of about 610 bytes from a file, those that match any of the rules to a file, with the ids of the rules. All find
the same rows in the same messages. The plain loop and Bytewax have the rules as compiled lambdas, PyFlink as expressions of its SQL,
which it turns into Java. What headrace takes to build the job and its rules is in its figures.

41 rules:

"""
    + HEAD
    + """{rules_41}

1,000 rules:

"""
    + HEAD
    + """{rules_1000}

![messages per second of CPU](benchmarks-peers.svg)

## Job B: windows

2,000,000 small JSON events from a file, 100,000 keys by Zipf's law, count and sum per key in tumbling windows of 10 s of event time,
watermark 5 s behind, results to files. All give the same number of rows.

"""
    + HEAD
    + """{windows}

## Job B from Kafka to Kafka

200,000 of these events in a topic of one partition, results to a topic. Quix Streams reads nothing but Kafka; it keeps state in
RocksDB and a changelog topic, its default, and so may run as several instances; headrace is one instance here and keeps state in
memory and a checkpoint directory. headrace decodes and aggregates batches, Quix Streams calls Python for each message.

"""
    + HEAD
    + """{kafka}

## What is not in these figures

Memory, latency and more than one core. Bytewax, Quix Streams and PyFlink call Python functions per message or key. With such
functions headrace is as slow as they are: the figures here are for work that headrace does on whole columns. PyFlink scales to
clusters; its start (10 s and more on one core) is left out. With its default clock Bytewax drops events with old timestamps as late,
so the benchmark gives it a clock that stands still.{notes}
"""
)


def draw(results: Sequence[Result], place: Path) -> None:
    """Draw rates per second of CPU as bars, a panel for each job."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "headrace"
    from matplotlib import pyplot

    jobs: list[tuple[str, Callable[[Result], bool]]] = [
        ("41 rules", lambda one: one["job"] == "rules" and one["rules"] == 41),
        ("1,000 rules", lambda one: one["job"] == "rules" and one["rules"] == 1_000),
        ("windows", lambda one: one["job"] == "windows"),
    ]
    figure, panels = pyplot.subplots(3, 1, figsize=(7, 5))
    for axes, (title, chosen) in zip(panels, jobs, strict=True):
        part = [one for one in results if chosen(one) and "error" not in one]
        values = [one["per_cpu_second"] for one in part]
        colors = ["#2f9e6e" if one["peer"] == "headrace" else "#9aa5b1" for one in part]
        axes.barh([NAMES[one["peer"]] for one in part], values, color=colors)
        axes.invert_yaxis()
        for place_, value in enumerate(values):
            axes.text(value, place_, f" {value:,.0f}", va="center", fontsize=8)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xticks([])
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.margins(x=0.15)
    panels[-1].set_xlabel("messages per second of CPU", fontsize=8)
    figure.tight_layout()
    figure.savefig(place, metadata={"Date": None})


def main() -> None:
    results = []
    for name in sys.argv[1:]:
        for line in Path(name).read_text().splitlines():
            if line.startswith("{"):
                results.append(json.loads(line))
    PAGE.write_text(page(results))
    draw(results, PLOT)
    print(f"wrote {PAGE} and {PLOT}")


if __name__ == "__main__":
    main()
