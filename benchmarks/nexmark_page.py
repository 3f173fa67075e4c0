"""Makes docs/benchmarks-sql.md and its plot of what ``python -m benchmarks.nexmark`` and ``first_row`` printed.

python -m benchmarks.nexmark_page RESULTS.jsonl [...]

Lines with ``"for": "seconds"``, of a run on a quiet machine, make the table of seconds, and are in no other figure then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.measure import ROOT
from benchmarks.nexmark_queries import PATTERNS, QUERIES

PAGE = ROOT / "docs" / "benchmarks-sql.md"
PLOT = ROOT / "docs" / "benchmarks-sql.svg"
NAMES = {
    "light": "headrace, light", "flink-1": "PyFlink 2.3, parallelism 1", "flink-2": "PyFlink 2.3, parallelism 2",
    "spark": "headrace, Spark `local[2]`",
}  # fmt: skip
COLORS = {"light": "#2f9e6e", "flink-1": "#9aa5b1", "flink-2": "#5f6b7a"}
ABOUT = {
    "q0": "bids as they are",
    "q1": "a decimal multiplication",
    "q2": "bids on some auctions",
    "q3": "join of auctions and people",
    "q4": "join, maximum per auction, mean per category",
    "q5": "auctions with most bids in sliding windows, a join of windows",
    "q7": "highest bid of windows, joined to the bids",
    "q8": "join of people and auctions in windows",
    "q9": "winning bid of each auction: join and Top-1",
    "q10": "times as texts, to partitioned CSV files",
    "q11": "session windows per bidder",
    "q13": "lookup in a table of 10,000 rows",
    "q14": "CASE, hours, a user function",
    "q15": "12 aggregates per day, 8 of them DISTINCT",
    "q16": "13 aggregates per channel and day, 8 of them DISTINCT",
    "q17": "8 aggregates per auction and day",
    "q18": "last bid per bidder and auction",
    "q19": "Top-10 of each auction",
    "q20": "join of bids and auctions without bound",
    "q21": "CASE, LOWER, REGEXP_EXTRACT",
    "q22": "SPLIT_INDEX three times",
    "cep_q0": "prices of a bidder that fall and rise again",
    "cep_q1": "bids whose mean stays low, SKIP PAST LAST ROW",
    "cep_q2": "bids whose mean stays low, SKIP TO NEXT ROW",
    "cep_q3": "a price that drops WITHIN 5 seconds",
}


@dataclass(frozen=True)
class Figure:
    """What one side took for one query, the mean of several runs."""

    seconds: float
    cpu_seconds: float


Figures = dict[str, dict[str, Figure]]


def figures(results: Sequence[Mapping[str, Any]]) -> Figures:
    """Return figures by side and query."""
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for one in results:
        if one["side"] in NAMES:
            found.setdefault(one["side"], {}).setdefault(one["query"], []).append(one)
    return {
        side: {
            name: Figure(mean(each["seconds"] for each in several), mean(each["cpu_seconds"] for each in several))
            for name, several in by_query.items()
        }
        for side, by_query in found.items()
    }


def _queries(given: Figures) -> list[str]:
    return [name for name in QUERIES if name in given["light"] and name in given["flink-1"]]


def _row(label: str, about: str, light: Figure, *flinks: Figure | None) -> str:
    cells = " | ".join("–" if each is None else f"{each.cpu_seconds:.1f}" for each in (light, *flinks))
    least = min(each.cpu_seconds for each in flinks if each is not None)
    return f"| {label} | {about} | {cells} | {light.cpu_seconds / least:.2f} |"


def _sum(parts: Sequence[Figure]) -> Figure:
    return Figure(sum(each.seconds for each in parts), sum(each.cpu_seconds for each in parts))


def table(given: Figures) -> str:
    """Return the lines of the table: a query each, and their sum; a query that a side did not run has a dash there."""
    names = _queries(given)
    flinks = [given.get(side, {}) for side in ("flink-1", "flink-2")]
    lines = [_row(name, ABOUT[name], given["light"][name], *(each.get(name) for each in flinks)) for name in names]
    whole = [_sum([each[name] for name in names]) if set(names) <= set(each) else None for each in flinks]
    return "\n".join([*lines, _row("all", "", _sum([given["light"][name] for name in names]), *whole)])


def seconds_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of seconds: of what was marked to be for it, if something was."""
    measured = [one for one in results if one["side"] in COLORS]
    chosen = [one for one in measured if one.get("for") == "seconds"] or measured
    given = figures(chosen)
    rows = []
    totals = [0.0, 0.0, 0.0]
    for name in _queries(given):
        found = [given[side][name].seconds for side in ("light", "flink-1", "flink-2")]
        totals = [total + one for total, one in zip(totals, found, strict=True)]
        rows.append(_seconds_row(name, found))
    loads = [one["load"] for one in chosen]
    text = "\n".join([*rows, _seconds_row("all", totals)])
    return SECONDS.format(rows=text, least_load=f"{min(loads):.0f}", most_load=f"{max(loads):.0f}")


def _seconds_row(label: str, found: Sequence[float]) -> str:
    cells = " | ".join(f"{one:.1f}" for one in found)
    return f"| {label} | {cells} | {found[0] / min(found[1:]):.2f} |"


def spark_table(given: Figures, events: int) -> str:
    """Return the lines about Spark; queries that it did not run are left out."""
    spark = given.get("spark", {})
    if not spark:
        return ""
    names = [name for name in QUERIES if name in spark]
    cells = "\n".join(f"| {name} | {spark[name].cpu_seconds:.1f} | {spark[name].seconds:.1f} |" for name in names)
    total = _sum([spark[name] for name in names])
    return SPARK.format(events=f"{events:,}", rows=f"{cells}\n| all | {total.cpu_seconds:.1f} | {total.seconds:.1f} |")


def patterns_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the lines about MATCH_RECOGNIZE: of the queries that both light and Flink ran."""
    ran = [one for one in results if one["query"] in PATTERNS and one["side"] in COLORS] if results else []
    given = figures(ran)
    names = [name for name in PATTERNS if name in given.get("light", {}) and name in given.get("flink-1", {})]
    if not names:
        return ""
    events = {one["query"]: one["events"] for one in ran}
    light, flinks = given["light"], [given.get(side, {}) for side in ("flink-1", "flink-2")]
    rows = "\n".join(
        _row(
            name.removeprefix("cep_"),
            f"{ABOUT[name]} | {events[name]:,}",
            light[name],
            *(each.get(name) for each in flinks),
        )
        for name in names
    )
    loads = [one["load"] for one in ran]
    return PATTERN.format(rows=rows, least_load=f"{min(loads):.0f}", most_load=f"{max(loads):.0f}")


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the page."""
    given = figures([one for one in results if one.get("for") != "seconds"])
    events = next(one["events"] for one in results if one["side"] == "light" and one["query"] not in PATTERNS)
    checked = [one for one in results if one["side"] == "check"]
    loads = [one["load"] for one in results if one["side"] in COLORS and "for" not in one]
    first = [one for one in results if one["side"] == "first-row"]
    spark_events = next((one["events"] for one in results if one["side"] == "spark"), 0)
    notes = "\n".join(f"* {one['text']}" for one in results if one["side"] == "note")
    return TEMPLATE.format(
        events=f"{events:,}",
        table=table(given),
        checked=len(checked),
        checked_events=f"{checked[0]['events']:,}" if checked else "0",
        least_load=f"{min(loads):.0f}",
        most_load=f"{max(loads):.0f}",
        first_row=f"{median(one['first_row_seconds'] for one in first):.1f}" if first else "–",
        first_cpu=f"{median(one['cpu_seconds'] for one in first):.1f}" if first else "–",
        first_load=f"{max(one['load'] for one in first):.0f}" if first else "–",
        seconds=seconds_table([one for one in results if one.get("query") not in PATTERNS]),
        patterns=patterns_table([one for one in results if "query" in one]),
        spark=spark_table(given, spark_events),
        notes=f"\n\n{notes}" if notes else "",
    )


TEMPLATE = """# Benchmarks: SQL

After this page you know what the Nexmark queries cost on headrace and on PyFlink.

Made by `make bench-sql`. The published [Nexmark](https://github.com/nexmark/nexmark) queries, from their own texts, over {events}
events in one file (people, auctions and bids in 1 : 3 : 46, 340 bytes of JSON each), on headrace's light backend in one process
and on PyFlink 2.3.0 with parallelism 1 and 2. Seconds of CPU are those of all processes and threads. The machine has 2 cores (load
{least_load} to {most_load}, that of the queries included): seconds of CPU say more than seconds. light ran twice, before and after
PyFlink, and the mean counts.

* Results go into a blackhole on both sides, as published, so that nobody's encoder is measured; only q10 writes files.
* A query runs over 100,000 events before it is measured, in the same process: the JVM is warm. Measured is all from the text to the
  end of the input.
* PyFlink runs its generated Java code only: the user function of q14 is the published Java class. It has object reuse, mini-batches
  (2 s, 50,000 rows) for all queries, state on its heap of 3 GB and no checkpoints. Flink gives a file to one reader as a whole, so
  with parallelism 2 it has the same events in two files.
* headrace has its default settings; the function of q14 is a Python function over columns.
* Flink 2 has no source that looks up in a file, so for q13 it has [one of 80 lines](../benchmarks/peers/java/SideInputFactory.java).
* q6 is not run by Flink; q12 depends on the clock.
* Final results of {checked} queries are compared before (over {checked_events} events): the number of rows, and sums of all
  numbers and of the lengths of all texts, are the same.

Seconds of CPU for {events} events, and what light takes of what the better of both Flinks takes:

| | | light | PyFlink, 1 | PyFlink, 2 | ratio |
|---|---|---|---|---|---|
{table}

![seconds of CPU per query](benchmarks-sql.svg)

light does nearly all of its work in one thread, so it takes about as many seconds as seconds of CPU. Flink reads, computes and collects
garbage in several threads, so **by the clock light is less far ahead, and with more cores Flink would overtake it**. For more cores
light has [several instances](several-instances.md).

{seconds}{patterns}{spark}## The first row

`headrace run job.sql --backend light` over 1,000 records, `python -m benchmarks.first_row sql`, takes {first_row} seconds from the start
of the process to the first row in a file (median of 5 runs, load {first_load}) and {first_cpu} seconds of CPU from start to end, most of
it to load Python's modules.

## What is not in these figures

Memory, latency and clusters. Flink updates results row by row or by mini-batch, and can use several machines; headrace returns the
changes of a batch (20,000 records) at once. Flink's start (10 s and more) is left out; so is headrace's.{notes}
"""
SECONDS = """Seconds from the text to the end of the input, at load {least_load} to {most_load}:

| | light | PyFlink, 1 | PyFlink, 2 | ratio |
|---|---|---|---|---|
{rows}

"""
PATTERN = """## Patterns

The four published queries with MATCH_RECOGNIZE, at load {least_load} to {most_load}, all else as above: seconds of CPU. q3 runs over
fewer events, because PyFlink takes 6 minutes for 500,000. How light matches: [ADR 034](adr/034-patterns-as-functions.md).

| | | events | light | PyFlink, 1 | PyFlink, 2 | ratio |
|---|---|---|---|---|---|---|
{rows}

"""
SPARK = """## Spark backend

The same texts on `local[2]` over {events} events, warm (each query ran before in the same session). One file is one task of Spark,
and each query is started and stopped; state is in Python workers.

| | CPU s | s |
|---|---|---|
{rows}

"""


def draw(given: Figures, place: Path) -> None:
    """Draw seconds of CPU per query as bars."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "headrace"
    from matplotlib import pyplot

    names = _queries(given)
    figure, axes = pyplot.subplots(figsize=(9, 3.2))
    for at, (side, color) in enumerate(COLORS.items()):
        made = {place_: given[side][name] for place_, name in enumerate(names) if name in given.get(side, {})}
        places = [place_ + (at - 1) * 0.27 for place_ in made]
        axes.bar(places, [each.cpu_seconds for each in made.values()], 0.27, color=color, label=NAMES[side])
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("seconds of CPU", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(place, metadata={"Date": None})


def main() -> None:
    results = []
    for name in sys.argv[1:]:
        results += [json.loads(line) for line in Path(name).read_text().splitlines() if line.startswith("{")]
    PAGE.write_text(page(results))
    draw(figures([one for one in results if one.get("for") != "seconds"]), PLOT)
    print(f"wrote {PAGE} and {PLOT}")


if __name__ == "__main__":
    main()
