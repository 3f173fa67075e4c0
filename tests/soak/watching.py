"""What a soak uses: memory, threads, open files and connections of each instance, bytes of checkpoints; a sample a minute."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil


@dataclass
class Usage:
    """Of one instance with all processes that it has started."""

    rss_mb: float = 0.0
    threads: int = 0
    files: int = 0
    processes: int = 0


@dataclass
class Sample:
    """One look."""

    seconds: float
    events: int
    rows: Mapping[str, int]
    usage: Mapping[str, Usage]
    mysql_connections: int
    checkpoint_mb: float
    #: Percentiles of latency since the last sample, seconds, by what was written.
    latency: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def usage_of(pid: int) -> Usage:
    """Return what a process and those below it use; nothing if it is gone."""
    found = Usage()
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                found.rss_mb += process.memory_info().rss / 1e6
                found.threads += process.num_threads()
                found.files += process.num_fds()
                found.processes += 1
    return found


def bytes_below(directories: Iterable[Path]) -> int:
    """Return the bytes of all files below directories; files that vanish meanwhile count nothing."""
    total = 0
    for directory in directories:
        for path in directory.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file():
                    total += path.stat().st_size
    return total


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p99 and the most of some seconds; nothing of none."""
    if not values:
        return {}
    ordered = sorted(values)
    return {
        "p50": round(ordered[len(ordered) // 2], 3),
        "p99": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 3),
        "max": round(ordered[-1], 3),
    }


def growth(values: Sequence[float]) -> float:
    """Return how many times the median of the last quarter is that of the second one: about 1 where nothing grows."""
    quarter = len(values) // 4
    if quarter < 2:
        return 1.0
    second, last = sorted(values[quarter : 2 * quarter]), sorted(values[-quarter:])
    return last[len(last) // 2] / max(second[len(second) // 2], 1e-9)
