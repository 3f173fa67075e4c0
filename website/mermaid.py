"""Mermaid flowcharts as pictures of the page, drawn with the layout of ``headrace explain``.

GitHub draws the fences itself. In a site the usual way is a script of 2.5 MB that runs in each reader's browser; the
flowcharts of the docs are small, and the layout is there. What this cannot read is an error, so that it is seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from headrace_console.picture.layout import Edge, Layout, Size, arrange
from headrace_console.picture.text_width import text_width

_FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NODE = re.compile(r'(\w+)\["?(.*?)"?\]')
_EDGE = re.compile(r"(\w+) --> (\w+)")
_FONT_SIZE, _LINE_HEIGHT, _PADDING = 13.0, 19.0, 12.0


def with_pictures(markdown: str) -> str:
    """Return the page with each Mermaid fence replaced by its picture."""
    return _FENCE.sub(lambda fence: picture(fence[1]), markdown)


def picture(text: str) -> str:
    """Draw a flowchart. Colours are those of the site's theme, so it fits light and dark."""
    head, *lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if head != "flowchart LR":
        raise ValueError(f"website/mermaid.py draws flowcharts from left to right only, not {head!r}")
    labels, edges = _read(lines)
    sizes = {name: _size(lines) for name, lines in labels.items()}
    # The layout goes from top to bottom, so the boxes are laid on their sides, and the result is turned back.
    turned = {name: Size(size.height, size.width) for name, size in sizes.items()}
    return _drawn(labels, sizes, arrange(turned, edges, column_gap=12.0, layer_gap=48.0))


def _read(lines: Sequence[str]) -> tuple[dict[str, list[str]], list[Edge]]:
    labels: dict[str, list[str]] = {}
    edges = []
    for line in lines:
        if node := _NODE.fullmatch(line):
            labels[node[1]] = re.split(r"<br */?>", node[2])
        elif arrow := _EDGE.fullmatch(line):
            edges.append(Edge(arrow[1], arrow[2]))
        else:
            raise ValueError(f"website/mermaid.py cannot read {line!r}")
    for edge in edges:
        labels.setdefault(edge.start, [edge.start])
        labels.setdefault(edge.end, [edge.end])
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


def _drawn(labels: Mapping[str, Sequence[str]], sizes: Mapping[str, Size], layout: Layout) -> str:
    parts = []
    for points in layout.paths.values():
        (y, x), *rest = points
        path = f"M{x:.0f} {y:.0f}"
        for py, px in rest:
            middle = (x + px) / 2
            path += f" C{middle:.0f} {y:.0f} {middle:.0f} {py:.0f} {px:.0f} {py:.0f}"
            x, y = px, py
        parts.append(f'<path class="edge" d="{path}"/>')
        parts.append(f'<path class="tip" d="M{x - 8:.0f} {y - 4:.0f} L{x - 8:.0f} {y + 4:.0f} L{x:.0f} {y:.0f} Z"/>')
    for name, (top, left) in layout.corners.items():
        size = sizes[name]
        box = f'x="{left:.0f}" y="{top:.0f}" width="{size.width:.0f}" height="{size.height:.0f}" rx="6"'
        parts.append(f'<rect class="box" {box}/>')
        for number, line in enumerate(labels[name]):
            at = top + _PADDING + 10 + number * _LINE_HEIGHT
            weight = ' class="strong"' if number == 0 else ""
            parts.append(f'<text x="{left + size.width / 2:.0f}" y="{at:.0f}"{weight}>{escape(_plain(line))}</text>')
    # The layout's width and height are those of the picture on its side.
    width, height = layout.size.height + 4, layout.size.width + 4
    view = f'viewBox="-2 -2 {width:.0f} {height:.0f}" style="width: {width:.0f}px"'
    return f'<div class="diagram"><svg role="img" {view}>{"".join(parts)}</svg></div>'
