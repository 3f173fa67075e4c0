"""Places the nodes of a graph in layers from top to bottom, so that edges point down, cross little and run straight.

The steps are those of Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures"
(1981): layers, helper nodes on long edges, order within layers by barycentres, coordinates. Everything is decided by
the order of the input, so the result is always the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

#: Width that an edge needs where it passes a layer, in pixels.
_PASSING_WIDTH = 28.0
#: Height that a gap gains per pixel that an edge goes to the side, and the most that it gains.
_CURVE_ROOM, _CURVE_ROOM_MAX = 0.07, 34.0
_ORDER_SWEEPS = 8
#: Odd, so that the last sweep goes down: a node with a single predecessor then is straight below it.
_PLACE_SWEEPS = 25
#: Weight of a helper node on a long edge; a box has weight 1. A bend looks worse than a box that is off centre.
_PASSING_WEIGHT = 4.0


@dataclass(frozen=True, slots=True)
class Size:
    """A size in pixels."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Edge:
    """From a node to one below it. ``key`` tells edges between the same two nodes apart."""

    start: str
    end: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """Top-left corners of the nodes, points through which edges go, and the size of the whole."""

    corners: Mapping[str, tuple[float, float]]
    #: From the bottom of the first node to the top of the last; vertical at each point.
    paths: Mapping[Edge, Sequence[tuple[float, float]]]
    size: Size


def arrange(
    sizes: Mapping[str, Size], edges: Sequence[Edge], *, column_gap: float = 32.0, layer_gap: float = 44.0
) -> Layout:
    """Lay out a graph without cycles; ``sizes`` is in topological order. The top-left corner is at (0, 0)."""
    layers_of = _layers(list(sizes), edges)
    chains = {edge: _chain(edge, layers_of) for edge in edges}
    layers: list[list[str]] = [[] for _ in range(max(layers_of.values(), default=0) + 1)]
    for name in sizes:
        layers[layers_of[name]].append(name)
    for edge in edges:
        for at, helper in enumerate(chains[edge][1:-1], layers_of[edge.start] + 1):
            layers[at].append(helper)
    links = [pair for chain in chains.values() for pair in itertools.pairwise(chain)]
    above, below = _neighbours(links)
    layers = _ordered(layers, above, below, links)
    widths = {name: sizes[name].width if name in sizes else _PASSING_WIDTH for layer in layers for name in layer}
    centres = _placed(layers, widths, above, below, column_gap)

    tops: list[float] = []
    heights: list[float] = []
    y = 0.0
    for layer in layers:
        tops.append(y)
        heights.append(max((sizes[name].height for name in layer if name in sizes), default=0.0))
        gap = layer_gap + _room_for_curves([(centres[a], centres[b]) for a, b in links if a in layer])
        y += heights[-1] + gap
    height = tops[-1] + heights[-1] if layers else 0.0
    left = min((centres[name] - widths[name] / 2 for name in centres), default=0.0)
    centres = {name: round(centre - left) for name, centre in centres.items()}
    corners = {name: (centres[name] - size.width / 2, tops[layers_of[name]]) for name, size in sizes.items()}
    paths = {}
    for edge, chain in chains.items():
        first = layers_of[edge.start]
        # An edge leaves its layer before it turns, so that it does not cross a higher box of the layer.
        points = [(centres[edge.start], corners[edge.start][1] + sizes[edge.start].height)]
        points.append((centres[edge.start], tops[first] + heights[first]))
        for at, helper in enumerate(chain[1:-1], first + 1):
            points += [(centres[helper], tops[at]), (centres[helper], tops[at] + heights[at])]
        paths[edge] = [*points, (centres[edge.end], corners[edge.end][1])]
    width = max((centres[name] + widths[name] / 2 for name in centres), default=0.0)
    return Layout(corners, paths, Size(width, height))


def _room_for_curves(spans: Sequence[tuple[float, float]]) -> float:
    """Return how much wider a gap must be so that edges which go far to the side do not look flat."""
    widest = max((abs(end - start) for start, end in spans), default=0.0)
    return round(min(_CURVE_ROOM_MAX, widest * _CURVE_ROOM))


def _layers(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Put every node below all its predecessors, and nodes without predecessors just above their highest successor."""
    layers = dict.fromkeys(names, 0)
    for name in names:
        layers[name] = max((layers[edge.start] + 1 for edge in edges if edge.end == name), default=0)
    has_input = {edge.end for edge in edges}
    for name in names:
        after = [layers[edge.end] for edge in edges if edge.start == name]
        if name not in has_input and after:
            layers[name] = min(after) - 1
    return layers


def _chain(edge: Edge, layers: Mapping[str, int]) -> list[str]:
    """Return the edge's end points with a helper node for each layer between them."""
    between = range(layers[edge.start] + 1, layers[edge.end])
    return [edge.start, *(f"\0{edge.start}\0{edge.end}\0{edge.key}\0{at}" for at in between), edge.end]


def _neighbours(links: Sequence[tuple[str, str]]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for start, end in links:
        below.setdefault(start, []).append(end)
        above.setdefault(end, []).append(start)
    return above, below


def _ordered(
    layers: list[list[str]],
    above: Mapping[str, list[str]],
    below: Mapping[str, list[str]],
    links: Sequence[tuple[str, str]],
) -> list[list[str]]:
    """Order each layer by the mean place of its neighbours, in sweeps down and up. Return the order with fewest crossings."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers, links)
    current = [list(layer) for layer in layers]
    for sweep in range(_ORDER_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for at in range(len(current)) if downwards else range(len(current) - 1, -1, -1):
            places = {name: place for layer in current for place, name in enumerate(layer)}

            def barycentre(
                name: str, neighbours: Mapping[str, list[str]] = neighbours, places: Mapping[str, int] = places
            ) -> float:
                near = neighbours.get(name)
                return sum(places[other] for other in near) / len(near) if near else places[name]

            current[at] = sorted(current[at], key=barycentre)
        crossed = _crossings(current, links)
        if crossed < fewest:
            best, fewest = [list(layer) for layer in current], crossed
    return best


def _crossings(layers: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]) -> int:
    place = {name: (row, at) for row, layer in enumerate(layers) for at, name in enumerate(layer)}
    spans = sorted((place[start][0], place[start][1], place[end][1]) for start, end in links)
    return sum(
        1
        for number, (row, start, end) in enumerate(spans)
        for other_row, other_start, other_end in spans[number + 1 :]
        if row == other_row and start < other_start and end > other_end
    )


def _placed(
    layers: Sequence[Sequence[str]],
    widths: Mapping[str, float],
    above: Mapping[str, list[str]],
    below: Mapping[str, list[str]],
    gap: float,
) -> dict[str, float]:
    """Return centres: each node is as near to the mean of its linked nodes as the other nodes of its layer allow."""
    centres: dict[str, float] = {}
    for layer in layers:
        x = 0.0
        for name in layer:
            centres[name] = x + widths[name] / 2
            x += widths[name] + gap

    def move(layer: Sequence[str], near: Mapping[str, list[str]], *, fixed: Collection[str] = ()) -> None:
        wanted = [
            centres[name] if name in fixed else _mean([centres[other] for other in near.get(name, ())], centres[name])
            for name in layer
        ]
        weights = [_PASSING_WEIGHT if name.startswith("\0") or name in fixed else 1.0 for name in layer]
        distances = [(widths[a] + widths[b]) / 2 + gap for a, b in itertools.pairwise(layer)]
        centres.update(zip(layer, _apart(wanted, weights, distances), strict=True))

    for sweep in range(_PLACE_SWEEPS):
        if sweep % 2 == 0:
            for layer in layers:
                move(layer, above)
        else:
            for layer in reversed(layers):
                move(layer, below)
    for layer in reversed(layers):
        move(layer, below, fixed=above)  # only nodes without predecessors move now, to their successors
    return centres


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _apart(wanted: Sequence[float], weights: Sequence[float], distances: Sequence[float]) -> list[float]:
    """Return places nearest to those wanted (least squares) that keep their order and distances.

    The method is "pool adjacent violators": after the distances are subtracted, the places must not decrease.
    """
    offsets = [0.0]
    for distance in distances:
        offsets.append(offsets[-1] + distance)
    pools: list[tuple[float, float, int]] = []  # (mean, weight, members)
    for want, weight, offset in zip(wanted, weights, offsets, strict=False):
        pools.append((want - offset, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (mean_a, weight_a, count_a), (mean_b, weight_b, count_b) = pools[-2:]
            total = weight_a + weight_b
            pools[-2:] = [((mean_a * weight_a + mean_b * weight_b) / total, total, count_a + count_b)]
    means = [mean for mean, _, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]
