"""What nobody reads is neither decoded nor computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.plan.graph import Plan

SCHEMA = {"id": "int64", "part": "struct<a: int64, b: string, c: int64>", "other": "struct<x: int64, y: int64>"}


def _stream(directory: Path, *rows: Any) -> Any:
    (directory / "in.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return hr.stream("tests", "pruning").from_file(directory / "in.ndjson", format="json", schema=SCHEMA, name="source")


def _written(job: Any, directory: Path) -> list[dict[str, Any]]:
    job.run("light", show_progress=False)
    texts = [path.read_text() for path in sorted((directory / "out").glob("*.json"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def _fields(plan: Plan, column: str) -> list[str]:
    schema = plan.sources["source"].body_schema
    assert schema is not None
    kind = schema[column]
    assert isinstance(kind, pl.Struct)
    return [field.name for field in kind.fields]


def test_only_the_fields_that_are_read_are_decoded(tmp_path: Path) -> None:
    row = {"id": 1, "part": {"a": 2, "b": "three", "c": 4}, "other": {"x": 5, "y": 6}}
    stream = _stream(tmp_path, row, {"id": 2, "part": None}, {"id": 3, "part": {"b": "six"}})
    job = stream.where("part.a IS NULL OR part.a > 1").select("id", text="part.b").to_file(
        tmp_path / "out", format="json"
    )  # fmt: skip
    plan = job.plan()
    assert _fields(plan, "part") == ["a", "b"]
    assert plan.decode_columns()["source"] == ["id", "part"]
    assert _written(job, tmp_path) == [{"id": 1, "text": "three"}, {"id": 2, "text": None}, {"id": 3, "text": "six"}]


@pytest.mark.parametrize(
    "verbs",
    [
        lambda stream: stream.select("part"),
        lambda stream: stream.with_columns(d="part.a"),
        lambda stream: stream.with_columns(d="part.a").select("d", again="part"),
        lambda stream: stream.map(lambda row: row),
        lambda stream: stream.where("part IS NOT NULL").where("part.a > 1"),
    ],
)
def test_a_struct_that_is_wanted_whole_stays_whole(tmp_path: Path, verbs: Any) -> None:
    job = verbs(_stream(tmp_path, {"id": 1})).to_file(tmp_path / "out", format="json")
    assert _fields(job.plan(), "part") == ["a", "b", "c"]


def test_items_that_nobody_reads_are_left_out_unless_they_can_fail(tmp_path: Path) -> None:
    stream = _stream(tmp_path, {"id": 0, "part": {"a": 1, "b": "no number"}}, {"id": 1, "part": {"a": 2, "b": "7"}})
    made = stream.select("id", a="part.a", number="CAST(part.b AS BIGINT)", c="part.c").with_columns(
        twice="id * 2", sum="a + c"
    )
    job = made.select("id").to_file(tmp_path / "out", format="json")
    plan = job.plan()
    select: Any = plan.nodes["select"]
    assert "number" in select.spec.items
    assert _fields(plan, "part") == ["b"]
    # The first row cannot be cast: that nobody reads the number does not let it through.
    assert _written(job, tmp_path) == [{"id": 1}]


def test_renamed_and_dropped_columns_are_followed_to_their_source(tmp_path: Path) -> None:
    stream = _stream(tmp_path, {"id": 1, "part": {"a": 2, "b": "x", "c": 3}, "other": {"x": 4, "y": 5}})
    job = stream.rename({"part": "i", "other": "part"}).drop("id").select(c="i.c", y="part.y").to_file(
        tmp_path / "out", format="json"
    )  # fmt: skip
    plan = job.plan()
    assert (_fields(plan, "part"), _fields(plan, "other")) == (["c"], ["y"])
    assert _written(job, tmp_path) == [{"c": 3, "y": 5}]


def test_two_ways_through_one_source_add_up(tmp_path: Path) -> None:
    stream = _stream(tmp_path, {"id": 1, "part": {"a": 2, "b": "x", "c": 3}})
    first = stream.select(a="part.a").to_file(tmp_path / "out", format="json")
    second = stream.where("part.c > 0").select(c="part.c").to_file(tmp_path / "more", format="json")
    plan = first.also(second).plan()
    assert _fields(plan, "part") == ["a", "c"]


def test_a_union_takes_branches_of_one_type(tmp_path: Path) -> None:
    stream = _stream(tmp_path, {"id": 1, "part": {"a": 2, "b": "x", "c": 3}})
    small, large = stream.where("part.a < 2"), stream.where("part.c > 1")
    job = small.union(large).select(b="part.b").to_file(tmp_path / "out", format="json")
    assert _fields(job.plan(), "part") == ["a", "b", "c"]
    assert _written(job, tmp_path) == [{"b": "x"}]


def test_keyed_results_are_the_same(tmp_path: Path) -> None:
    rows = [{"id": number % 3, "part": {"a": number, "b": str(number), "c": 1}} for number in range(10)]
    made = _stream(tmp_path, *rows).select("id", a="part.a", b="part.b", c="part.c")
    counted = made.key_by("id").agg(total="sum(a)")
    job = counted.to_file(tmp_path / "out", format="json", changes="column")
    plan = job.plan()
    assert _fields(plan, "part") == ["a"]
    assert sorted((row["id"], row["total"]) for row in _written(job, tmp_path)) == [(0, 18), (1, 12), (2, 15)]
