"""Edges between stages go around the boxes that stand between them."""

from __future__ import annotations

from itertools import pairwise

from headrace_console.picture.stage_edges import Place, StageEdges, rounded
from hypothesis import given
from hypothesis import strategies as st

GAP, PADDING, LAYER_GAP, COLUMN_GAP = 40.0, 24.0, 46.0, 32.0


@st.composite
def stages(draw: st.DrawFn) -> tuple[dict[str, Place], list[Place], dict[str, int]]:
    """Draw panels beside each other. In each are rows of boxes; those of a row have the same top."""
    places, panels, panel_of, left = dict[str, Place](), list[Place](), dict[str, int](), 28.0
    for number in range(draw(st.integers(2, 5))):
        rows = draw(st.lists(st.lists(st.integers(40, 120), min_size=1, max_size=3), min_size=1, max_size=4))
        top, right = 140.0, left
        for at, row in enumerate(rows):
            for column, height in enumerate(row):
                name = f"{number}.{at}.{column}"
                places[name] = Place(left + PADDING + column * (200 + COLUMN_GAP), top, 200, height)
                panel_of[name] = number
                right = max(right, places[name].right)
            top += max(row) + LAYER_GAP
        panels.append(Place(left, 94, right - left + PADDING, top - LAYER_GAP + PADDING - 94))
        left += panels[-1].width + GAP
    return places, panels, panel_of


@given(stages())
def test_no_edge_runs_through_a_box(drawn: tuple[dict[str, Place], list[Place], dict[str, int]]) -> None:
    places, panels, panel_of = drawn
    edges = StageEdges(places, panels, panel_of)
    for start in places:
        for end in places:
            if panel_of[start] >= panel_of[end] or not end.endswith(".0.0"):
                continue
            way = edges.way(start, end)
            for (x0, y0), (x1, y1) in pairwise(way.points) if not way.curved else ():
                assert x0 == x1 or y0 == y1, "lines are horizontal or vertical"
                for name, place in places.items():
                    through = any(place.has(x0 + (x1 - x0) * t / 50, y0 + (y1 - y0) * t / 50) for t in range(51))
                    assert not through, f"{start} to {end} runs through {name}"
            assert way.points[-1] in {(places[end].left, places[end].middle), (places[end].left + 100, places[end].top)}


def test_an_edge_to_the_next_stage_is_a_curve_and_one_over_a_stage_has_a_lane_of_its_own() -> None:
    places = {name: Place(number * 300.0, 100, 200, 80) for number, name in enumerate("abc")}
    panels = [Place(place.left - 24, 60, 248, 144) for place in places.values()]
    edges = StageEdges(places, panels, {"a": 0, "b": 1, "c": 2})
    assert edges.way("a", "b").points == ((200, 140), (300, 140))
    around = edges.way("a", "c")
    assert not around.curved
    assert max(y for _, y in around.points) > panels[1].bottom
    other = edges.way("a", "c")
    assert edges.lanes == 2
    assert max(y for _, y in other.points) > max(y for _, y in around.points)
    path = rounded(around.points, lambda value: f"{value:g}")
    assert path.startswith("M200 140L")
    assert path.count("Q") == len(around.points) - 2
