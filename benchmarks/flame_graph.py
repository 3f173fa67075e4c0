"""Draws a flame graph of what py-spy has sampled of a job: small enough for a page, and without the frames that only start things.

    py-spy record --pid PID --subprocesses --format raw --output samples.txt
    python -m benchmarks.flame_graph samples.txt PICTURE.svg TITLE

The width of a box is the part of the samples in which the function, or one that it had called, was on a processor. Frames that are less
than half a percent wide are left out.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WIDTH, ROW, LEAST = 960, 15, 0.005
#: Threads that wait are sampled too, where the system counts them as running.
WAITS = re.compile(
    r"^(Condition\.wait|SystemClock\.wait|recv_fds|SocketIO\.readinto|EpollSelector\.select|manager|handed_over|main\.<locals>\.worker|"
    r"OutputRelay\._relay|CallbackServer\.run|FinalizerWorker\.run|UpdateRequestHandler|_worker|<module>) "
)
#: A stack begins behind the last of these: the work of a job.
BEGINS = re.compile(
    r"^(Engine\._poll_all|Engine\._loop|data_source_write_func|_main\.<locals>\.data_source_write_func|LaneReader\.read|Planner\.\w+|"
    r"Job\.run|_Begin\._find_ends) "
)
COLORS = (
    (r"\(polars/", "#8fb8de"), (r"\(numpy/", "#9ed3b6"), (r"\(pyspark/|\(py4j/", "#d9a5a5"), (r"\(headrace_spark/", "#e8c07d"),
    (r"\(headrace", "#f2dfae"), ("", "#cfd4da"),
)  # fmt: skip


@dataclass
class Box:
    """A function, below the one that called it."""

    samples: int = 0
    called: dict[str, Box] = field(default_factory=dict)


def stacks(path: Path) -> Iterator[tuple[Sequence[str], int]]:
    """Yield the stacks of the work of a job, and how often each was met."""
    for line in path.read_text(errors="replace").splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [frame for frame in stack.split(";") if not frame.startswith("process ")]
        begins = [place for place, frame in enumerate(frames) if BEGINS.match(frame)]
        if count.isdigit() and begins and not WAITS.match(frames[-1]):
            yield [re.sub(r":\d+\)$", ")", frame) for frame in frames[begins[0] :]], int(count)


def tree(path: Path) -> Box:
    """Return all stacks as one tree."""
    root = Box()
    for frames, count in stacks(path):
        root.samples += count
        at = root
        for frame in frames:
            at = at.called.setdefault(frame, Box())
            at.samples += count
    return root


def _drawn(box: Box, name: str, left: float, depth: int, scale: float, out: list[str]) -> int:
    """Draw a box and what it called; return how many rows that takes."""
    wide, deepest = box.samples * scale, depth
    color = next(color for pattern, color in COLORS if re.search(pattern, name))
    label = html.escape(name)
    shown = html.escape(name.partition(" (")[0][: int(wide / 6) - 1]) if wide > 30 else ""
    text = f'<text x="{left + 2:.1f}" y="{depth * ROW + 11}">{shown}</text>' if shown else ""
    place = f'x="{left:.1f}" y="{depth * ROW}" width="{max(wide - 0.5, 0.5):.1f}" height="{ROW - 1}"'
    out.append(f'<g><title>{label}: {100 * wide / WIDTH:.1f} %</title><rect {place} fill="{color}"/>{text}</g>')
    for called, one in sorted(box.called.items(), key=lambda item: -item[1].samples):
        if one.samples * scale >= LEAST * WIDTH:
            deepest = max(deepest, _drawn(one, called, left, depth + 1, scale, out))
        left += one.samples * scale
    return deepest


def picture(root: Box, title: str) -> str:
    """Return the tree as SVG, callers above what they called."""
    out: list[str] = []
    rows = _drawn(root, title, 0, 0, WIDTH / max(1, root.samples), out) + 1
    size = f'width="{WIDTH}" height="{rows * ROW}" viewBox="0 0 {WIDTH} {rows * ROW}"'
    style = "<style>text{font:10px sans-serif;fill:#222;pointer-events:none}</style>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{"".join(out)}</svg>\n'


def main() -> None:
    samples, to, title = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    root = tree(samples)
    if not root.samples:
        raise SystemExit(f"{samples} has no stacks of a job")
    to.write_text(picture(root, f"{title}, {root.samples:,} samples"))


if __name__ == "__main__":
    main()
