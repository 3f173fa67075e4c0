"""The page of a soak, with plots: ``python -m tests.soak.report DIRECTORY PAGE`` makes it again of the samples that a run has kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.soak.watching import growth

#: What grows by more than this from the second quarter of a run to the last one is not bounded.
GROWTH_MAX = 1.5
_SAMPLES_LEAST = 20
#: What is smaller counts as this.
_CHECKPOINT_MB_MIN = 1.0


def bounded(samples: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return by what each used thing grows: about 1 where it is bounded. Empty for a short run."""
    if len(samples) < _SAMPLES_LEAST:
        return {}
    series: dict[str, list[float]] = {
        "connections of MySQL": [each["mysql_connections"] for each in samples],
        # A few files of a kilobyte each are no growth: a version of rules leaves some.
        "checkpoints": [max(_CHECKPOINT_MB_MIN, each["checkpoint_mb"]) for each in samples],
    }
    for job in sorted({job for each in samples for job in each["usage"]}):
        for name in ("rss_mb", "threads", "files", "processes"):
            series[f"{name} of {job}"] = [each["usage"].get(job, {}).get(name, 0) for each in samples]
    return {name: round(growth(values), 2) for name, values in series.items()}


def _plot(samples: Sequence[Mapping[str, Any]], history: Sequence[Sequence[Any]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    minutes = [each["seconds"] / 60 for each in samples]
    figure, axes = plt.subplots(4, 1, figsize=(10, 12), sharex=True)
    for job in sorted({job for each in samples for job in each["usage"]}):
        axes[0].plot(minutes, [each["usage"].get(job, {}).get("rss_mb") for each in samples], label=job)
        axes[1].plot(minutes, [each["usage"].get(job, {}).get("files") for each in samples], label=job)
    axes[0].set_ylabel("memory, MB")
    axes[1].set_ylabel("open files")
    for what in sorted({what for each in samples for what in each["latency"]}):
        for name, style in (("p50", "-"), ("p99", ":")):
            values = [each["latency"].get(what, {}).get(name) for each in samples]
            axes[2].plot(minutes, values, style, label=f"{what}, {name}")
    axes[2].set_ylabel("latency, s")
    axes[2].set_yscale("log")
    axes[3].plot(minutes, [each["checkpoint_mb"] for each in samples], label="checkpoints, MB")
    axes[3].plot(minutes, [each["mysql_connections"] for each in samples], label="connections of MySQL")
    axes[3].set_xlabel("minutes")
    for each in axes:
        each.legend(fontsize=7, loc="upper left")
        for seconds, _ in history:
            each.axvline(seconds / 60, color="0.85", linewidth=0.5, zorder=0)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def write(
    page: Path, about: Mapping[str, Any], samples: Sequence[Mapping[str, Any]], history: Sequence[Sequence[Any]]
) -> None:
    """Write the page and its picture beside it. Called at the end of a run, whatever came of it."""
    page.parent.mkdir(parents=True, exist_ok=True)
    picture = page.with_suffix(".svg")
    if samples:
        _plot(samples, history, picture)
    lines = [
        "# A soak", "",
        "After this page you know what a long run on real servers under faults has shown.", "",
        "| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in about.items()), "",
    ]  # fmt: skip
    if samples:
        lines += [f"![memory, files, latency and sizes over time; grey lines are faults]({picture.name})", ""]
    found = bounded(samples)
    if found:
        lines += [
            "The median of the last quarter by that of the second one (1: nothing grows):",
            "",
            "| | |",
            "|---|---|",
        ]
        lines += [f"| {name} | {value}{' **grows**' if value > GROWTH_MAX else ''} |" for name, value in found.items()]
        lines.append("")
    lines += [
        "What happened, and after how many seconds:",
        "",
        "```",
        *(f"{at:8.1f}  {what}" for at, what in history),
        "```",
    ]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    directory, page = Path(sys.argv[1]), Path(sys.argv[2])
    samples = [json.loads(line) for line in (directory / "samples.jsonl").read_text().splitlines()]
    about, history = json.loads((directory / "about.json").read_text())
    write(page, about, samples, history)


if __name__ == "__main__":
    main()
