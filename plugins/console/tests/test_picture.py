"""The picture of a plan: everything is in it, nothing overlaps, and it is the same each time."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import headrace as hr
from headrace.flow.dead_letters import dead_letter_schema
from headrace.plan.explain import describe_nodes
from headrace.plan.graph import DeadLettersNode, Input, Node, OperatorNode, Plan, SinkNode, SourceNode, UnionNode
from headrace.testing import MemorySink, MemorySource
from headrace_console.picture import boxes, plan_as_svg
from headrace_console.picture.layout import Edge, Layout, Size, arrange
from headrace_console.picture.text_width import monospace_width, text_width
from hypothesis import given, settings
from hypothesis import strategies as st

SVG = "{http://www.w3.org/2000/svg}"
SCHEMA = hr.Schema.of({"host": "string", "ts": "timestamp"})


class Step(hr.OperatorSpec):
    outputs = ("", "errors")

    def __init__(self, text: str, gives: hr.Schema | None = SCHEMA) -> None:
        self.text = text
        self.gives = gives

    def output_schema(self, schema: hr.Schema | None, output: str = "") -> hr.Schema | None:
        return self.gives

    def required_columns(self, wanted: Collection[str] | None, schema: hr.Schema) -> Collection[str] | None:
        return ["host"]

    def open(self, schema: hr.Schema | None) -> hr.Operator:
        raise AssertionError("a picture must not run the plan")

    def describe(self) -> str:
        return self.text


def source(label: str = "file") -> SourceNode:
    return SourceNode(label=label, schema=SCHEMA, source=MemorySource(), format="json", body_schema=SCHEMA)


def step(before: Node, label: str = "where", text: str = "x > 1", gives: hr.Schema | None = SCHEMA) -> OperatorNode:
    return OperatorNode(label=label, schema=gives, spec=Step(text, gives), input=Input(before))


def sink(before: Node, label: str = "to_file", output: str = "") -> SinkNode:
    return SinkNode(label=label, schema=before.schema, sink=MemorySink(), input=Input(before, output))


def plan(*sinks: SinkNode) -> Plan:
    return Plan("security", "suspicious-commands", sinks)


def parsed(drawn: Plan, **options: Any) -> ET.Element:
    return ET.fromstring(plan_as_svg(drawn, **options))


def texts(root: ET.Element, kind: str) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text") if element.get("class") == kind]


# ------------------------------------------------------------------------------------------------------------ picture


def test_every_node_has_a_box_with_its_name_arguments_and_columns() -> None:
    chosen = hr.Schema.of({"host": "string", "cmd": "string"})
    bad = DeadLettersNode(label="dead_letters", schema=dead_letter_schema())
    drawn = plan(
        sink(step(step(source(), text="user <> 'root'"), "select", "host, lower(c) AS cmd", chosen)),
        sink(bad, "bad_file"),
    )
    root = parsed(drawn)
    assert texts(root, "title") == ["file", "where", "select", "to_file", "dead_letters", "bad_file"]
    assert texts(root, "job") == ["security.suspicious-commands"]
    assert texts(root, "summary") == ["1 source  ·  2 operators  ·  1 sink  ·  bad records go to bad_file"]
    assert {"user <> 'root'", "host, lower(c) AS cmd"} <= set(texts(root, "line"))
    assert texts(root, "chip-text") == ["host", "host", "cmd"]
    assert texts(root, "chip-text faint") == ["ts"]  # nothing needs it: it is not decoded
    assert texts(root, "weak-text") == ["at least once"] * 2
    assert texts(root, "panel-title") == [
        "stage 1  ·  one lane per queue of file",
        "stage 2  ·  the way of bad records",
    ]
    assert texts(root, "bad-text") == ["bad records"]


def test_a_job_that_bad_records_stop_says_so() -> None:
    root = parsed(plan(sink(source())))
    assert texts(root, "summary") == ["1 source  ·  1 sink  ·  bad records stop the job"]
    assert texts(root, "bad-text") == []


def test_outputs_are_named_on_their_edges() -> None:
    split = step(source(), "split")
    root = parsed(plan(sink(split, "to_errors", "errors"), sink(split, "to_rest")))
    assert texts(root, "edge-label-text") == ["errors"]


def test_foreign_text_is_escaped_and_characters_that_xml_forbids_are_replaced() -> None:
    text = 'a < b && c > "d" \x00\x1b[31m \ud800 <script>alert(1)</script>'
    root = parsed(plan(sink(step(source(), text=text))))
    shown = " ".join(texts(root, "line"))
    assert 'a < b && c > "d" \ufffd\ufffd[31m' in shown
    assert not list(root.iter(f"{SVG}script"))


def test_long_texts_and_many_columns_are_shortened_and_complete_in_the_tip() -> None:
    many = hr.Schema.of({f"column_with_a_long_name_{number}": "string" for number in range(50)})
    text = " AND ".join(f"column_{number} > {number}" for number in range(100))
    root = parsed(plan(sink(step(source(), text=text, gives=many))))
    assert len(texts(root, "line")) < 10
    assert any(line.endswith("…") for line in texts(root, "line"))
    (more,) = [chip for chip in texts(root, "chip-text faint") if chip.startswith("+")]
    assert int(more) + len([chip for chip in texts(root, "chip-text") if chip.startswith("column")]) == 50
    assert any(title.text and text in title.text for title in root.iter(f"{SVG}title"))


def test_texts_stay_in_their_boxes() -> None:
    wide = "one_very_long_word_" * 12 + " 漢字" * 40
    drawn = plan(sink(step(source("a_source_with_quite_a_long_name"), text=wide), "sink_" * 12))
    root = parsed(drawn)
    for group in root.iter(f"{SVG}g"):
        box = next((r for r in group.findall(f"{SVG}rect") if r.get("class") == "box"), None)
        if box is None:
            continue
        width = float(box.get("width", "0"))
        for text in group.findall(f"{SVG}text"):
            kind, begin, shown = text.get("class", ""), float(text.get("x", "0")), text.text or ""
            if kind == "line":
                assert begin + monospace_width(shown, boxes.LINE_SIZE) <= width, shown
            elif kind == "title":
                assert begin + text_width(shown, boxes.TITLE_SIZE, bold=True) <= width, shown
            elif kind == "subtitle":
                assert begin + text_width(shown, boxes.SUBTITLE_SIZE) <= width, shown


def test_light_dark_and_auto() -> None:
    drawn = plan(sink(source()))
    auto, light, dark = (plan_as_svg(drawn, theme=theme) for theme in ("auto", "light", "dark"))
    assert "prefers-color-scheme: dark" in auto
    assert "prefers-color-scheme" not in light + dark
    assert ".paper { fill: #ffffff;" in light
    assert ".paper { fill: #0d1117;" in dark


def test_it_needs_nothing_else_and_is_the_same_each_time() -> None:
    def drawn() -> str:
        first = source()
        merged = UnionNode(label="union", schema=SCHEMA, merged=(Input(first), Input(step(first))))
        return plan_as_svg(plan(sink(merged), sink(first, "raw")))

    assert drawn() == drawn()
    assert not re.search(r"href|url\(|@import|<image|<foreignObject", drawn())
    assert drawn().count("http") == 1  # the name space


# ------------------------------------------------------------------------------------------------------------- layout


def boxes_of(layout: Layout, sizes: dict[str, Size]) -> dict[str, tuple[float, float, float, float]]:
    return {name: (x, y, x + sizes[name].width, y + sizes[name].height) for name, (x, y) in layout.corners.items()}


def test_a_chain_stands_straight() -> None:
    names = ["a", "b", "c", "d"]
    layout = arrange(
        dict.fromkeys(names, Size(100, 40)), [Edge(one, other) for one, other in pairwise(names)], layer_gap=10
    )
    assert layout.corners == {"a": (0, 0), "b": (0, 50), "c": (0, 100), "d": (0, 150)}
    assert layout.size == Size(100, 190)
    assert all(x == 50 for path in layout.paths.values() for x, _ in path)


def test_a_source_that_joins_late_stands_near_what_it_joins() -> None:
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("late", "c")]
    layout = arrange(dict.fromkeys(["a", "b", "late", "c"], Size(100, 40)), edges)
    assert layout.corners["late"][1] == layout.corners["b"][1]


def test_branches_are_ordered_so_that_edges_do_not_cross() -> None:
    names = ["root", "x", "y", "z", "of_z", "of_y", "of_x"]
    edges = [*(Edge("root", name) for name in "xyz"), *(Edge(name, f"of_{name}") for name in "zyx")]
    corners = arrange(dict.fromkeys(names, Size(100, 40)), edges).corners
    assert corners["of_x"][0] < corners["of_y"][0] < corners["of_z"][0]
    assert all(corners[name][0] == corners[f"of_{name}"][0] for name in "xyz")


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, Size], list[Edge]]:
    count = draw(st.integers(1, 12))
    sizes = {
        f"n{at}": Size(draw(st.sampled_from([60, 100, 140])), draw(st.sampled_from([30, 90]))) for at in range(count)
    }
    pairs = [(one, other) for other in range(count) for one in range(other)]
    chosen: Sequence[tuple[int, int]] = (
        draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    )
    return sizes, [Edge(f"n{one}", f"n{other}") for one, other in chosen]


@settings(deadline=None)
@given(graphs())
def test_boxes_never_overlap_and_edges_always_go_down(graph: tuple[dict[str, Size], list[Edge]]) -> None:
    sizes, edges = graph
    layout = arrange(sizes, edges, column_gap=10, layer_gap=20)
    placed = boxes_of(layout, sizes)
    for name, (left, top, right, bottom) in placed.items():
        assert left >= -0.5
        assert right <= layout.size.width + 0.5
        assert bottom <= layout.size.height
        for other, (other_left, other_top, other_right, other_bottom) in placed.items():
            apart = right < other_left or other_right < left or bottom < other_top or other_bottom < top
            assert name == other or apart
    for edge in edges:
        path = layout.paths[edge]
        assert path[0] == ((placed[edge.start][0] + placed[edge.start][2]) / 2, placed[edge.start][3])
        assert path[-1] == ((placed[edge.end][0] + placed[edge.end][2]) / 2, placed[edge.end][1])
        assert all(above[1] <= below[1] for above, below in pairwise(path))


@settings(deadline=None)
@given(graphs())
def test_edges_do_not_run_through_boxes(graph: tuple[dict[str, Size], list[Edge]]) -> None:
    """An edge turns only in the gap between two layers, where no box is; within a layer it is vertical."""
    sizes, edges = graph
    layout = arrange(sizes, edges, column_gap=10, layer_gap=20)
    placed = boxes_of(layout, sizes)
    for edge in edges:
        for (x, y), (next_x, next_y) in pairwise(layout.paths[edge]):
            for name, (left, top, right, bottom) in placed.items():
                if name in (edge.start, edge.end):
                    continue
                if x == next_x:
                    assert not (left < x < right and max(top, y) < min(bottom, next_y))
                else:
                    assert not max(top, y) < min(bottom, next_y)


def test_description_and_picture_agree_on_the_order_of_nodes() -> None:
    drawn = plan(sink(step(source())))
    assert texts(parsed(drawn), "title") == list(describe_nodes(drawn))
