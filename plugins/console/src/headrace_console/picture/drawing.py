"""Draws a plan as SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # only written here, never read
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.plan.explain import StageDescription, describe_nodes, describe_stages
from headrace.plan.graph import Plan

from headrace_console.picture import boxes, theme
from headrace_console.picture.boxes import Box, Chip, box_of, chip_width
from headrace_console.picture.icons import icon_of
from headrace_console.picture.layout import Edge, Layout, arrange
from headrace_console.picture.stage_edges import LANE_STEP, LANES_TOP, Place, StageEdges, rounded
from headrace_console.picture.text_width import monospace_width, text_width

_MARGIN, _HEAD = 28.0, 66.0
_PANEL_PADDING, _PANEL_HEAD, _PANEL_GAP = 24.0, 44.0, 40.0
#: Gap between the main flow and the dead letters, in pixels: it has the arrow of bad records.
_BAD_RECORDS_GAP = 116.0
_ARROW = 7.0

Theme = Literal["auto", "light", "dark"]


@dataclass(frozen=True, slots=True)
class EdgeFigures:
    """The label of an edge of a running job, such as ``1,200/s``. ``slow``: the edge is drawn in the colour of errors."""

    text: str
    slow: bool = False


def plan_as_svg(
    plan: Plan, *, theme: Theme = "auto", figures: Mapping[tuple[str, str], EdgeFigures] | None = None
) -> str:
    """Return a picture of the plan as an SVG document that ends with a newline.

    ``figures`` are labels of the edges, which are named by the ids of the nodes at their begin and end.

    A box is a node, with its arguments, options, guarantee and, if they change, its columns; a panel is a stage.
    ``theme`` is light or dark; auto follows the setting of the program that shows the picture, and is light if it has none.
    """
    return _Picture(plan, theme, figures or {}).text()


class _Picture:
    def __init__(self, plan: Plan, theme_name: Theme, figures: Mapping[tuple[str, str], EdgeFigures]) -> None:
        self._plan = plan
        self._figures = figures
        self._theme = theme_name
        self._boxes = {node_id: box_of(node) for node_id, node in describe_nodes(plan).items()}
        self._width = max(box.width() for box in self._boxes.values())
        #: The upper left corners of the boxes in the picture.
        self._corners: dict[str, tuple[float, float]] = {}
        self._root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
        self._paper: ET.Element | None = None

    def text(self) -> str:
        stages = describe_stages(self._plan)
        layouts = [self._arranged(stage) for stage in stages]
        widths = [
            self._panel_width(stage, number, layout)
            for number, (stage, layout) in enumerate(zip(stages, layouts, strict=True), 1)
        ]
        x = _MARGIN
        lefts: list[float] = []
        for stage, width in zip(stages, widths, strict=True):
            x += _BAD_RECORDS_GAP - _PANEL_GAP if stage.dead_letters and lefts else 0
            lefts.append(x)
            x += width + _PANEL_GAP
        head_width = text_width(self._plan.job_name, 20, bold=True)
        total_width = max(x - _PANEL_GAP, _MARGIN + max(head_width, text_width(self._summary(), 12.5))) + _MARGIN
        panel_height = max(layout.size.height for layout in layouts) + _PANEL_HEAD + _PANEL_PADDING
        total_height = _MARGIN + _HEAD + panel_height + _MARGIN
        self._frame(total_width, total_height)
        panels = [
            Place(left, _MARGIN + _HEAD, width, layout.size.height + _PANEL_HEAD + _PANEL_PADDING)
            for layout, left, width in zip(layouts, lefts, widths, strict=True)
        ]
        for number, (stage, layout, left, width) in enumerate(zip(stages, layouts, lefts, widths, strict=True), 1):
            height = layout.size.height + _PANEL_HEAD + _PANEL_PADDING
            self._panel(number, stage, layout, (left, _MARGIN + _HEAD), (width, height))
        lanes = self._shuffles(panels, {node: at for at, stage in enumerate(stages) for node in stage.nodes})
        if lanes:
            self._set_size(total_width, total_height + LANES_TOP + LANE_STEP * (lanes - 1))
        self._bad_records(stages, lefts, widths)
        ET.indent(self._root)
        return ET.tostring(self._root, encoding="unicode") + "\n"

    def _arranged(self, stage: StageDescription) -> Layout:
        sizes = {node_id: box.size(self._width) for node_id, box in self._boxes.items() if node_id in stage.nodes}
        return arrange(sizes, self._edges(stage), layer_gap=46.0)

    def _edges(self, stage: StageDescription) -> list[Edge]:
        return [
            Edge(parent, node_id, output)
            for node_id, box in self._boxes.items()
            if node_id in stage.nodes
            for parent, output in box.node.inputs
            if parent in stage.nodes
        ]

    def _panel_width(self, stage: StageDescription, number: int, layout: Layout) -> float:
        title = text_width(_panel_title(stage, number), 12) + 2 * _PANEL_PADDING
        return max(title, layout.size.width + 2 * _PANEL_PADDING)

    def _summary(self) -> str:
        plan = self._plan
        dead_letters_id = plan.dead_letters_id
        behind = set() if dead_letters_id is None else set(plan.reachable(plan.nodes[dead_letters_id]))
        kinds = [box.node.kind for node_id, box in self._boxes.items() if node_id not in behind]
        counts = [_counted(kinds.count(kind), kind) for kind in ("source", "operator", "sink") if kind in kinds]
        bad = [node_id for node_id in plan.sinks if node_id in behind]
        counts.append(f"bad records go to {', '.join(bad)}" if bad else "bad records stop the job")
        return "  ·  ".join(counts)

    # ------------------------------------------------------------------------------------------------------- parts

    def _frame(self, width: float, height: float) -> None:
        self._set_size(width, height)
        ET.SubElement(self._root, "title").text = _clean(f"Plan of job {self._plan.job_name}")
        ET.SubElement(self._root, "desc").text = _clean(self._summary())
        ET.SubElement(self._root, "style").text = theme.style(self._theme, live=bool(self._figures))
        self._paper = _rectangle(self._root, "paper", 0, 0, width, height, radius=12)
        _text(self._root, "job", _MARGIN, _MARGIN + 20, self._plan.job_name)
        _text(self._root, "summary", _MARGIN, _MARGIN + 42, self._summary())

    def _set_size(self, width: float, height: float) -> None:
        self._root.set("viewBox", f"0 0 {_number(width)} {_number(height)}")
        for element in (self._root, self._paper):
            if element is not None:
                element.set("width", _number(width))
                element.set("height", _number(height))

    def _panel(
        self,
        number: int,
        stage: StageDescription,
        layout: Layout,
        corner: tuple[float, float],
        size: tuple[float, float],
    ) -> None:
        (x, y), (width, height) = corner, size
        group = ET.SubElement(self._root, "g")
        kind = "panel bad-panel" if stage.dead_letters else "panel"
        _rectangle(group, kind, x, y, width, height, radius=12)
        _text(group, "panel-title", x + _PANEL_PADDING, y + 27, _panel_title(stage, number))
        # Boxes that are narrower than the title of their panel are centred.
        left = x + (width - layout.size.width) / 2
        top = y + _PANEL_HEAD
        for edge, path in layout.paths.items():
            self._edge(group, edge, [(left + px, top + py) for px, py in path])
        for node_id, (box_x, box_y) in layout.corners.items():
            self._corners[node_id] = (left + box_x, top + box_y)
            self._box(group, self._boxes[node_id], left + box_x, top + box_y)

    def _edge(self, group: ET.Element, edge: Edge, points: Sequence[tuple[float, float]]) -> None:
        end_x, end_y = points[-1]
        shortened = [*points[:-1], (end_x, end_y - _ARROW)]
        figures = self._figures.get((edge.start, edge.end))
        slow = " slow" if figures is not None and figures.slow else ""
        ET.SubElement(group, "path", {"class": f"edge{slow}", "d": _curve(shortened)})
        _arrow_down(group, end_x, end_y)
        text = "  ·  ".join(part for part in (edge.key, figures.text if figures else "") if part)
        if text:
            (x0, y0), (x1, y1) = points[-2:]
            self._edge_label(group, text, (x0 + x1) / 2, (y0 + y1) / 2 - 2, slow=slow)

    def _edge_label(self, group: ET.Element, text: str, x: float, y: float, *, slow: str = "") -> None:
        width = text_width(text, 11) + 16
        _rectangle(group, f"edge-label{slow}", x - width / 2, y - 10, width, 20, radius=10)
        _text(group, f"edge-label-text{slow}", x, y + 4, text)

    def _box(self, group: ET.Element, box: Box, x: float, y: float) -> None:
        size = box.size(self._width)
        kind = box.node.kind.replace(" ", "-")
        own = ET.SubElement(group, "g", {"class": kind, "transform": f"translate({_number(x)} {_number(y)})"})
        ET.SubElement(own, "title").text = _clean(box.tip)
        _rectangle(own, "box", 0, 0, size.width, size.height, radius=10)
        _rectangle(own, "tile", boxes.PADDING, boxes.PADDING, boxes.ICON, boxes.ICON, radius=8)
        inset = boxes.PADDING + (boxes.ICON - 18) / 2
        icon = {"class": "icon", "d": icon_of(box.node), "transform": f"translate({inset:g} {inset:g}) scale(1.125)"}
        ET.SubElement(own, "path", icon)
        middle = boxes.PADDING + boxes.ICON / 2
        _text(own, "title", boxes.TITLE_X, middle - 3 if box.subtitle else middle + 5, box.title)
        if box.subtitle:
            _text(own, "subtitle", boxes.TITLE_X, middle + 13, box.subtitle)
        if box.badge:
            self._badge(own, box, size.width)
        y = boxes.PADDING + boxes.ICON + 20
        for line in box.lines:
            # Two texts rather than spans in one: white space between spans would show.
            if line.name:
                _text(own, "line option", boxes.PADDING, y, line.name)
            _text(own, "line", boxes.PADDING + monospace_width(line.name, boxes.LINE_SIZE), y, line.text)
            y += boxes.LINE_HEIGHT
        self._chips(own, box.chip_rows(size.width), size.height)

    def _badge(self, own: ET.Element, box: Box, box_width: float) -> None:
        width = text_width(box.badge, boxes.BADGE_SIZE) + 16
        kind = "badge weak" if box.badge == "at least once" else "badge"
        x = box_width - boxes.PADDING - width
        _rectangle(own, kind, x, boxes.PADDING, width, 18, radius=9)
        _text(
            own, "weak-text" if kind.endswith("weak") else "badge-text", x + width / 2, boxes.PADDING + 12.7, box.badge
        )

    @staticmethod
    def _chips(own: ET.Element, rows: Sequence[Sequence[Chip]], box_height: float) -> None:
        step = boxes.CHIP_HEIGHT + boxes.CHIP_GAP
        y = box_height - boxes.PADDING - len(rows) * step + boxes.CHIP_GAP
        for row in rows:
            x = boxes.PADDING
            for chip in row:
                group = ET.SubElement(own, "g")
                if chip.tip:
                    ET.SubElement(group, "title").text = _clean(chip.tip)
                faint = " faint" if chip.faint else ""
                _rectangle(group, f"chip{faint}", x, y, chip_width(chip), boxes.CHIP_HEIGHT, radius=5)
                _text(group, f"chip-text{faint}", x + chip_width(chip) / 2, y + 14, chip.text)
                x += chip_width(chip) + boxes.CHIP_GAP
            y += step

    def _shuffles(self, panels: Sequence[Place], panel_of: Mapping[str, int]) -> int:
        """Draw the edges from a stage to the shuffle that begins another stage. Return how many go around below the panels."""
        places = {
            name: Place(*corner, self._boxes[name].size(self._width).width, self._boxes[name].size(self._width).height)
            for name, corner in self._corners.items()
        }
        edges = StageEdges(places, panels, panel_of)
        for node_id, box in self._boxes.items():
            for parent, _ in box.node.inputs if box.node.kind == "shuffle" else ():
                way = edges.way(parent, node_id)
                (x, y), (end_x, end_y) = way.points[0], way.points[-1]
                figures = self._figures.get((parent, node_id))
                slow = " slow" if figures is not None and figures.slow else ""
                if way.curved:
                    middle = _number((x + end_x) / 2)
                    path = f"M{_number(x)} {_number(y)}C{middle} {_number(y)} {middle} {_number(end_y)}"
                    path += f" {_number(end_x - _ARROW)} {_number(end_y)}"
                    label = (x + end_x) / 2, (y + end_y) / 2 - 2
                else:
                    path = rounded(way.points, _number)
                    (lane_x, lane_y) = max(way.points, key=lambda point: point[1])
                    label = (lane_x + way.points[-3][0]) / 2, lane_y
                ET.SubElement(self._root, "path", {"class": f"edge{slow}", "d": path})
                if figures is not None:
                    self._edge_label(self._root, figures.text, *label, slow=slow)
                if way.points[-2][0] == end_x:
                    _arrow_down(self._root, end_x, end_y)
                    continue
                _arrow_right(self._root, end_x, end_y, "arrow")
        return edges.lanes

    def _bad_records(self, stages: Sequence[StageDescription], lefts: Sequence[float], widths: Sequence[float]) -> None:
        """Draw the arrow from the main flow to the beginning of the dead letters, if they have a separate panel."""
        if len(stages) < 2 or not stages[-1].dead_letters:
            return
        root = self._boxes[stages[-1].roots[0]]
        y = _MARGIN + _HEAD + _PANEL_HEAD + root.size(self._width).height / 2
        start, end = lefts[-2] + widths[-2], lefts[-1]
        ET.SubElement(
            self._root, "path", {"class": "bad-edge", "d": f"M{_number(start)} {_number(y)}H{_number(end - _ARROW)}"}
        )
        _arrow_right(self._root, end, y, "bad-arrow")
        _text(self._root, "bad-text", (start + end) / 2 - 2, y - 8, "bad records")


def _panel_title(stage: StageDescription, number: int) -> str:
    return f"stage {number}  ·  {stage.title}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _number(value: float) -> str:
    return f"{round(value, 1):g}"


def _rectangle(
    parent: ET.Element, kind: str, x: float, y: float, width: float, height: float, *, radius: float
) -> ET.Element:
    places: Mapping[str, float] = {"x": x, "y": y, "width": width, "height": height, "rx": radius}
    return ET.SubElement(parent, "rect", {"class": kind, **{name: _number(value) for name, value in places.items()}})


def _text(parent: ET.Element, kind: str, x: float, y: float, text: str) -> ET.Element:
    element = ET.SubElement(parent, "text", {"class": kind, "x": _number(x), "y": _number(y), "xml:space": "preserve"})
    element.text = _clean(text) or None
    return element


def _arrow_down(parent: ET.Element, x: float, y: float) -> None:
    points = f"{_number(x)},{_number(y)} {_number(x - 4)},{_number(y - _ARROW)} {_number(x + 4)},{_number(y - _ARROW)}"
    ET.SubElement(parent, "polygon", {"class": "arrow", "points": points})


def _arrow_right(parent: ET.Element, x: float, y: float, kind: str) -> None:
    points = f"{_number(x)},{_number(y)} {_number(x - _ARROW)},{_number(y - 4)} {_number(x - _ARROW)},{_number(y + 4)}"
    ET.SubElement(parent, "polygon", {"class": kind, "points": points})


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """Return a path that is vertical at every point."""
    (x, y), *rest = points
    path = f"M{_number(x)} {_number(y)}"
    for next_x, next_y in rest:
        if next_x == x:
            path += f"V{_number(next_y)}" if next_y != y else ""
        else:
            middle = _number((y + next_y) / 2)
            path += f"C{_number(x)} {middle} {_number(next_x)} {middle} {_number(next_x)} {_number(next_y)}"
        x, y = next_x, next_y
    return path


def _clean(text: str) -> str:
    """Replace the characters that XML 1.0 does not allow (section 2.2)."""
    return re.sub("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
