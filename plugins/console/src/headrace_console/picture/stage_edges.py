"""Ways of the edges between stages: straight from box to box, or around the boxes that stand between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

#: Room below the panels for the lanes of edges that go around, and the distance between two lanes, in pixels.
LANES_TOP, LANE_STEP = 14.0, 10.0
#: How far an edge keeps from boxes; from panels at least, and more by lane, so that edges in one gap do not lie on each other.
_CLEARANCE = 12.0
_ASIDE, _ASIDE_STEP = 8.0, 3.0
_SAMPLES = 24
_RADIUS = 8.0


@dataclass(frozen=True, slots=True)
class Place:
    """A rectangle in the picture, in pixels."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def middle(self) -> float:
        return self.top + self.height / 2

    def has(self, x: float, y: float) -> bool:
        """Return whether a point lies in it."""
        return self.left < x < self.right and self.top < y < self.bottom


@dataclass(frozen=True, slots=True)
class Way:
    """An edge's points. ``curved``: there are two, with a curve between them; else lines go from one to the next."""

    points: Sequence[tuple[float, float]]
    curved: bool


class StageEdges:
    """Finds the way of each edge between two stages. Edges that cannot be straight get a separate lane below the panels."""

    def __init__(self, boxes: Mapping[str, Place], panels: Sequence[Place], panel_of: Mapping[str, int]) -> None:
        self._boxes = boxes
        self._panels = panels
        self._panel_of = panel_of
        self._lanes_top = max(panel.bottom for panel in panels) + LANES_TOP
        self.lanes = 0

    def way(self, start: str, end: str) -> Way:
        """Return the way from the right side of a box to the left side, or the top, of one in a later stage."""
        first, last = self._boxes[start], self._boxes[end]
        straight = (first.right, first.middle), (last.left, last.middle)
        others = [place for name, place in self._boxes.items() if name not in (start, end)]
        if not any(place.has(x, y) for x, y in _along(*straight) for place in others):
            return Way(straight, curved=True)
        return Way(self._around(start, end), curved=False)

    def _around(self, start: str, end: str) -> list[tuple[float, float]]:
        first, last = self._boxes[start], self._boxes[end]
        aside = _ASIDE + _ASIDE_STEP * (self.lanes % 4)
        lane = self._lanes_top + LANE_STEP * self.lanes
        self.lanes += 1
        out_x = self._panels[self._panel_of[start]].right + aside
        in_x = self._panels[self._panel_of[end]].left - aside
        row = [place for name, place in self._boxes.items() if self._is_beside(name, start)]
        points = [(first.right, first.middle), (out_x, first.middle)]
        if any(place.left >= first.right and place.top < first.middle < place.bottom for place in row):
            # Boxes of a layer have the same top, so below the highest of them nothing is in the way.
            below = max(place.bottom for place in [first, *row]) + _CLEARANCE
            centre = first.left + first.width / 2 + _CLEARANCE
            points = [(centre, first.bottom), (centre, below), (out_x, below)]
        points += [(out_x, lane), (in_x, lane)]
        row = [place for name, place in self._boxes.items() if self._is_beside(name, end)]
        if any(place.right <= last.left and place.top < last.middle < place.bottom for place in row):
            above, centre = last.top - _CLEARANCE, last.left + last.width / 2
            return [*points, (in_x, above), (centre, above), (centre, last.top)]
        return [*points, (in_x, last.middle), (last.left, last.middle)]

    def _is_beside(self, name: str, other: str) -> bool:
        place, beside = self._boxes[name], self._boxes[other]
        return name != other and self._panel_of[name] == self._panel_of[other] and place.top == beside.top


def _along(start: tuple[float, float], end: tuple[float, float]) -> list[tuple[float, float]]:
    """Return points of the curve between two boxes: a cubic Bézier curve that is horizontal at both ends."""
    (x0, y0), (x1, y1) = start, end
    found = []
    for step in range(1, _SAMPLES):
        t = step / _SAMPLES
        u = 1 - t
        # Both control points lie in the middle, at the height of their end.
        found.append(
            (
                u**3 * x0 + 3 * u * t * (x0 + x1) / 2 + t**3 * x1,
                (u**3 + 3 * u * u * t) * y0 + (3 * u * t * t + t**3) * y1,
            )
        )
    return found


def rounded(points: Sequence[tuple[float, float]], number: Callable[[float], str]) -> str:
    """Return an SVG path along horizontal and vertical lines, with round corners. ``number`` writes a number."""
    path = f"M{number(points[0][0])} {number(points[0][1])}"
    for (x0, y0), (x, y), (x1, y1) in zip(points, points[1:], points[2:], strict=False):
        radius = min(_RADIUS, (abs(x - x0) + abs(y - y0)) / 2, (abs(x1 - x) + abs(y1 - y)) / 2)
        before = (x - _sign(x - x0) * radius, y - _sign(y - y0) * radius)
        after = (x + _sign(x1 - x) * radius, y + _sign(y1 - y) * radius)
        path += (
            f"L{number(before[0])} {number(before[1])}Q{number(x)} {number(y)} {number(after[0])} {number(after[1])}"
        )
    return path + f"L{number(points[-1][0])} {number(points[-1][1])}"


def _sign(value: float) -> float:
    return (value > 0) - (value < 0)
