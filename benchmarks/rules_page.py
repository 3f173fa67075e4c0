"""The page and the plot of the measurements of rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Found = Mapping[tuple[str, str, int], Mapping[str, Any]]

NAMES = {
    "columns": "headrace, scan of columns",
    "raw": "headrace, scan before parsing",
    "polars": "polars expressions",
    "python": "Python, a lambda per rule",
    "spark": "Spark expressions, `local[1]`",
}


def job_rows(jobs: Sequence[Mapping[str, Any]]) -> str:
    """Return the lines of the table of whole jobs."""
    names = {
        ("light", "kafka"): "light, from Kafka", ("spark", "kafka"): "Spark backend, from Kafka",
        ("light", "file"): "light, from files", ("spark", "file"): "Spark backend, from files",
    }  # fmt: skip
    lines = []
    for (backend, source), name in names.items():
        cells = []
        for count in (41, 1_000):
            found = [one for one in jobs if (one["backend"], one["source"], one["rules"]) == (backend, source, count)]
            cells += [
                f"{one['read'] / one['cpu_seconds']:,.0f} ({one['read'] / one['seconds']:,.0f})" for one in found
            ] or ["–"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


REPLACED = {
    "never": "nothing is replaced",
    "handle": "`handle.update_rules`",
    "files": "a YAML file that is watched",
}


def _replacing(name: str, figures: Mapping[str, Any]) -> str:
    every, meanwhile = figures["all_ms"], figures["meanwhile_ms"]
    parts = [f"{one[key]:.1f} ms" if one else "–" for one in (every, meanwhile) for key in ("p50", "p99", "max")]
    return f"| {name} | {' | '.join(parts)} | {figures['lost']} | {figures['doubled']} |"


def page(
    found: Found, swap: Mapping[str, Mapping[str, Any]], jobs: Sequence[Mapping[str, Any]], messages: int, rounds: int
) -> str:
    """Return the text of docs/benchmarks-rules.md."""

    def row(engine: str, kind: str) -> str:
        cells = []
        for count in (41, 1_000, 10_000):
            one = found.get((engine, kind, count))
            cells.append(f"{one['ratio']:.3g} ({one['messages_per_second']:,.0f}/s)" if one else "–")
        return f"| {NAMES[engine]} | {' | '.join(cells)} |"

    peers = ("polars", "python", "spark")
    best = {
        count: max(found[peer, "selective", count]["ratio"] for peer in peers if (peer, "selective", count) in found)
        for count in (41, 1_000)
    }
    times = {
        (engine, count): found[engine, "selective", count]["ratio"] / best[count]
        for engine in ("columns", "raw")
        for count in best
    }
    met = {key: found["columns", *key]["triggers_per_row"] for key in _keys()}
    return TEMPLATE.format(
        messages=f"{messages:,}",
        rounds=rounds,
        selective="\n".join(row(engine, "selective") for engine in ("columns", "raw", "polars", "python", "spark")),
        fragments="\n".join(row(engine, "fragments") for engine in ("columns", "raw")),
        met_fragments=", ".join(f"{met['fragments', count]:.2f}" for count in (41, 1_000, 10_000)),
        columns_41=times["columns", 41], columns_1000=times["columns", 1_000],
        raw_41=times["raw", 41], raw_1000=times["raw", 1_000],
        load_min=min(one["load"] for one in found.values()), load_max=max(one["load"] for one in found.values()),
        jobs=job_rows(jobs), job_messages=f"{jobs[0]['read']:,}",
        job_load_min=min(one["load"] for one in jobs), job_load_max=max(one["load"] for one in jobs),
        replaced=swap["handle"]["replaced"],
        replacing="\n".join(_replacing(name, swap[how]) for how, name in REPLACED.items()),
    )  # fmt: skip


def _keys() -> list[tuple[str, int]]:
    return [(kind, count) for kind in ("selective", "fragments") for count in (41, 1_000, 10_000)]


TEMPLATE = """# Benchmarks of rules

After this page you know what a rule costs, from 41 to 10,000 of them, on headrace and on other engines.

Made by `python -m benchmarks.rules`. {messages} JSON security events of about 610 bytes with 20 fields, one in a hundred of them
an attack; message bodies in, rows with the ids of the rules that match out, in batches of 10,000. Each measurement is a process of
its own on one pinned core; the figure is CPU time of `orjson.loads` of the same bodies, in the same process and round, divided by the
CPU time of the whole work: 1 means as fast as parsing with the fastest parser and doing nothing, more is faster. Best of {rounds}
rounds for both, messages per second of CPU in brackets; the load average of the machine (2 cores) was {load_min:.0f} to {load_max:.0f},
so other work disturbed the caches. All engines must find the same matches.

Rules whose conditions normal traffic rarely meets, as most detection rules:

| selective rules | 41 | 1,000 | 10,000 |
|---|---|---|---|
{selective}

Against the best of the others the scan of columns is {columns_41:.1f} times as fast at 41 rules and {columns_1000:.0f} times at 1,000;
the scan before parsing {raw_41:.1f} and {raw_1000:.0f} times. Spark is measured by the clock instead of CPU time, warm, and is given
fewer messages, as are Python and polars.

Rules that are made of fragments of normal traffic, the worst case for an engine that looks for texts: here {met_fragments} triggers are
met per message with 41, 1,000 and 10,000 rules, and each has to be verified.

| fragments | 41 | 1,000 | 10,000 |
|---|---|---|---|
{fragments}

![cost per message against the number of rules](benchmarks-rules.svg)

## Whole jobs

{job_messages} of these events through a whole job: read, `rules`, matches to files. The time counts from building the job and
compiling its rules to the last row on disk. From a real Kafka topic of four partitions, and from two files. The second run in a
process counts, so Spark is warm; light has one core, Spark two (`local[2]`). Messages per second of CPU of all processes of the
job, without the broker, and in brackets by the clock. The run is short, so that starting is a good part of it, on Spark most of it;
the load of the machine was {job_load_min:.0f} to {job_load_max:.0f}.

| selective rules | 41 | 1,000 |
|---|---|---|
{jobs}

## Replacing rules under load

A job on light that gets a batch of 1,000 messages every 20 ms, in a process that holds a million other objects; {replaced} times
all 1,000 rules are replaced by others. Latency is the time from when a batch is due until the job asks for the next one.
`python -m benchmarks.rule_replace`.

| | all batches: 50 % | 99 % | longest | while rules are replaced: 50 % | 99 % | longest | lost | doubled |
|---|---|---|---|---|---|---|---|---|
{replacing}

"Lost" and "doubled" count rows that differ from the result of the rule version that is valid at their offset.
"""


def draw(found: Found, place: Path) -> None:
    """Draw cost against the number of rules."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "headrace"
    from matplotlib import pyplot

    lines = [
        ("columns", "selective", "headrace, selective rules", "#2f9e6e", "-"),
        ("columns", "fragments", "headrace, fragments of traffic", "#2f9e6e", "--"),
        ("raw", "selective", "headrace, scan before parsing, selective", "#2f6e9e", "-"),
        ("polars", "selective", "polars expressions", "#c9a227", "-"),
        ("python", "selective", "Python, a lambda per rule", "#9aa5b1", "-"),
        ("spark", "selective", "Spark expressions", "#c2553f", "-"),
    ]
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for engine, kind, name, color, style in lines:
        counts = [count for count in (41, 1_000, 10_000) if (engine, kind, count) in found]
        costs = [1e6 / found[engine, kind, count]["messages_per_second"] for count in counts]
        axes.plot(counts, costs, style, color=color, marker="o", markersize=4, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("rules")
    axes.set_ylabel("microseconds per message")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(place, metadata={"Date": None})
