"""Mermaid flowcharts as pictures of the page, drawn with the layout of ``headrace explain``.

GitHub draws the fences itself. In a site the usual way is a script of 2.5 MB that runs in each reader's browser; the
flowcharts of the docs are small, and the layout is there. What this cannot read is an error, so that it is seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from headrace_console.picture.layout import Edge, Layout, Size, arrange
from headrace_console.picture.text_width import text_width

_FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NODE = re.compile(r'(\w+)(?:\["?(.*?)"?\])?')
_FONT_SIZE, _LINE_HEIGHT, _PADDING = 13.0, 19.0, 12.0


def with_pictures(markdown: str) -> str:
    """Return the page with each Mermaid fence replaced by its picture."""
    return _FENCE.sub(lambda fence: picture(fence[1]), markdown)


def picture(text: str) -> str:
    """Draw a flowchart. Colours are those of the site's theme, so it fits light and dark."""
    head, *lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if head not in ("flowchart LR", "flowchart TD"):
        raise ValueError(f"website/mermaid.py draws flowcharts from left to right and from top to bottom, not {head!r}")
    labels, edges = _read(lines)
    sizes = {name: _size(lines) for name, lines in labels.items()}
    if head == "flowchart TD":
        return _drawn(labels, sizes, arrange(sizes, edges), down=True)
    # The layout goes from top to bottom, so the boxes are laid on their sides, and the result is turned back.
    turned = {name: Size(size.height, size.width) for name, size in sizes.items()}
    return _drawn(labels, sizes, arrange(turned, edges, column_gap=12.0, layer_gap=48.0), down=False)


def _read(lines: Sequence[str]) -> tuple[dict[str, list[str]], list[Edge]]:
    """Read ``a["label"]`` and ``a --> b & c["label"] --> d``."""
    labels: dict[str, list[str]] = {}
    edges = []
    for line in lines:
        groups = [[_NODE.fullmatch(node) for node in group.split(" & ")] for group in line.split(" --> ")]
        names = []
        for group in groups:
            nodes = [node for node in group if node is not None]
            if len(nodes) < len(group):
                raise ValueError(f"website/mermaid.py cannot read {line!r}")
            for node in nodes:
                if node[2] is not None or node[1] not in labels:
                    labels[node[1]] = re.split(r"<br */?>", node[2] or node[1])
            names.append([node[1] for node in nodes])
        edges += [Edge(start, end) for before, after in pairwise(names) for start in before for end in after]
    return _in_order(labels, edges), edges


def _in_order(labels: Mapping[str, list[str]], edges: Sequence[Edge]) -> dict[str, list[str]]:
    """Return the nodes in topological order, as the layout wants them."""
    left, ordered = dict(labels), {}
    while left:
        ready = [name for name in left if not any(edge.end == name and edge.start in left for edge in edges)]
        if not ready:
            raise ValueError(f"a flowchart of the docs has a cycle: {', '.join(left)}")
        ordered.update({name: left.pop(name) for name in ready})
    return ordered


def _plain(line: str) -> str:
    return re.sub(r"</?b>", "", line)


def _size(lines: Sequence[str]) -> Size:
    width = max(text_width(_plain(line), _FONT_SIZE) for line in lines)
    return Size(width * 1.06 + 2 * _PADDING, len(lines) * _LINE_HEIGHT + 2 * _PADDING - 6)


def _drawn(labels: Mapping[str, Sequence[str]], sizes: Mapping[str, Size], layout: Layout, *, down: bool) -> str:
    def at(point: tuple[float, float]) -> str:
        return f"{point[0]:.0f} {point[1]:.0f}" if down else f"{point[1]:.0f} {point[0]:.0f}"

    parts = []
    for (x, y), *rest in layout.paths.values():
        path = f"M{at((x, y))}"
        for end in rest:
            middle = (y + end[1]) / 2
            path += f" C{at((x, middle))} {at((end[0], middle))} {at(end)}"
            x, y = end
        parts.append(f'<path class="edge" d="{path}"/>')
        parts.append(f'<path class="tip" d="M{at((x - 4, y - 8))} L{at((x + 4, y - 8))} L{at((x, y))} Z"/>')
    for name, corner in layout.corners.items():
        left, top = corner if down else (corner[1], corner[0])
        size = sizes[name]
        box = f'x="{left:.0f}" y="{top:.0f}" width="{size.width:.0f}" height="{size.height:.0f}" rx="6"'
        parts.append(f'<rect class="box" {box}/>')
        for number, line in enumerate(labels[name]):
            height = top + _PADDING + 10 + number * _LINE_HEIGHT
            weight = ' class="strong"' if number == 0 else ""
            place = f'x="{left + size.width / 2:.0f}" y="{height:.0f}"'
            parts.append(f"<text {place}{weight}>{escape(_plain(line))}</text>")
    width, height = (layout.size.width, layout.size.height) if down else (layout.size.height, layout.size.width)
    view = f'viewBox="-2 -2 {width + 4:.0f} {height + 4:.0f}" style="width: {width + 4:.0f}px"'
    return f'<div class="diagram"><svg role="img" {view}>{"".join(parts)}</svg></div>'
