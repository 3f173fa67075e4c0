"""The tables and the plot of the measurements of rules."""

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


TABLE = "<!-- {name}: made by python -m benchmarks.rules -->"
TABLE_END = "<!-- end of table -->"
COUNTS = (41, 1_000, 10_000)


def with_tables(
    page: str, found: Found, swap: Mapping[str, Mapping[str, Any]], jobs: Sequence[Mapping[str, Any]]
) -> str:
    """Return the text of docs/benchmarks-rules.md with new tables. The text between them is written by hand."""

    def kind(name: str, *engines: str) -> str:
        rows = [_row(found, engine, name) for engine in engines]
        return "\n".join([f"| {name} | 41 | 1,000 | 10,000 |", "|---|---|---|---|", *rows])

    tables = {
        "selective rules": kind("selective", "columns", "raw", "polars", "python", "spark"),
        "rules with numbers": kind("numbers", "columns", "raw"),
        "fragments": kind("fragments", "columns", "raw"),
        "whole jobs": "\n".join(["| selective rules | 41 | 1,000 |", "|---|---|---|", job_rows(jobs)]),
        "replacing rules": "\n".join(
            [REPLACING_HEAD, *(_replacing(name, swap[how]) for how, name in REPLACED.items())]
        ),
    }
    for name, text in tables.items():
        begin = TABLE.format(name=name)
        before, there, rest = page.partition(begin)
        _, ended, after = rest.partition(TABLE_END)
        if not there or not ended:
            raise ValueError(f"the page has no markers of the table {name}")
        page = f"{before}{begin}\n{text}\n{TABLE_END}{after}"
    return page


REPLACING_HEAD = (
    "| | all batches: 50 % | 99 % | longest | while rules are replaced: 50 % | 99 % | longest | lost | doubled |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def _row(found: Found, engine: str, kind: str) -> str:
    figures = [found.get((engine, kind, count)) for count in COUNTS]
    cells = [f"{one['ratio']:.3g} ({one['messages_per_second']:,.0f}/s)" if one else "–" for one in figures]
    return f"| {NAMES[engine]} | {' | '.join(cells)} |"


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
