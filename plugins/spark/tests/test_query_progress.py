"""Figures in Spark's progress and names in its UI, without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import headrace as hr
from headrace.testing import MemorySink, MemorySource
from headrace_spark.queries.query_progress import JobFigures
from headrace_spark.queries.stage_names import query_name, source_name, stage_names
from headrace_spark.shards.topology import Topology
from headrace_spark.transit.run_directory import RunDirectory
from headrace_spark.transit.totals import KEY, Totals
from keyed_parts import timed, windowed
from test_planner import begun, bodies, planner_of


def shard(watermark_us: int | None, rows: int = 0, size: int = 0, late: int = 0) -> dict[str, int | None]:
    return {"watermark_us": watermark_us, "state_rows": rows, "state_bytes": size, "late_rows": late}


def batch(number: int, **counts: Any) -> dict[str, Any]:
    nothing = {"written": {}, "skipped": 0, "records": {}, "dead_letters": {}, "shards": {}}
    return {"kind": "batch", "batch_id": number, "tasks": [{**nothing, **counts}]}


def shown(totals: Totals, **lag: int) -> JobFigures:
    """Return the figures as who looks at Spark's progress gets them."""
    latest = json.dumps({"s/q": 17, KEY: totals.to_json(lag)})
    found = JobFigures.of(SimpleNamespace(sources=[SimpleNamespace(latestOffset=latest)]))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_figures_of_micro_batches_are_added_up_each_once() -> None:
    totals = Totals(["key_by"])
    first = batch(0, records={"s/a": 3, "s/b": 2, "t/a": 1}, written={"out": 4}, dead_letters={"s/a": 1, "key_by/0": 1})
    for event in (first, first, {"kind": "latest", "offsets": {}}, batch(1, records={"s/a": 5}, skipped=2)):
        totals.take(event)
    found = shown(totals, s=7, t=0)
    assert (found.batch_id, found.records_read, found.rows_written) == (1, {"s": 10, "t": 1}, {"out": 4})
    assert (found.rows_skipped, found.dead_letters, found.lag) == (2, 2, {"s": 7, "t": 0})


def test_state_is_that_of_the_last_micro_batch_and_late_rows_are_added() -> None:
    totals = Totals(["key_by"])
    totals.take(batch(0, shards={"key_by/0": shard(5_000_000, 10, 100, 1), "key_by/1": shard(3_000_000, 20, 200, 1)}))
    totals.take(batch(1, shards={"key_by/0": shard(9_000_000, 4, 150, 2), "key_by-2/0": shard(0, 1, 10)}))
    found = shown(totals)
    assert (found.state_rows, found.state_bytes, found.late_rows) == (25, 360, 4)
    assert found.watermark == datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC), "the least behind the first shuffle"
    totals.take(batch(2, shards={"key_by/1": shard(None)}))
    assert shown(totals).watermark is None


def test_progress_of_other_queries_has_no_figures() -> None:
    for latest in (None, "null", "17", '{"topic": {"0": 5}}', "no JSON"):
        progress = SimpleNamespace(sources=[SimpleNamespace(latestOffset=latest)])
        assert JobFigures.of(progress) is None  # type: ignore[arg-type]


def test_the_planner_tells_what_is_completed_and_what_will_be_left(tmp_path: Path) -> None:
    planner = planner_of(tmp_path, MemorySource({"a": bodies(50), "b": bodies(10)}))
    planner.next_end(begun(planner), 20)
    before = planner.figures()
    assert (before["batchId"], before["recordsRead"], before["lag"]) == (-1, {}, {"memory": 40})
    RunDirectory(tmp_path).add_event(**batch(0, records={"memory/a": 10, "memory/b": 10}))
    after = planner.figures()
    assert (after["batchId"], after["recordsRead"], after["lag"]) == (0, {"memory": 20}, {"memory": 40})


def plan_with_shuffles() -> Any:
    source = MemorySource({"a": []})
    stream = hr.stream("test", "names").from_(source, format="json", schema={"n": "int64", "k": "int64"})
    return windowed(windowed(timed(stream)).with_columns(k="k % 2")).to(MemorySink()).plan()


def test_stages_are_called_after_their_nodes() -> None:
    plan = plan_with_shuffles()
    names = stage_names(plan, Topology(plan, 2).levels)
    assert [name.split(", ")[0] for name in names] == ["memory", "key_by", "key_by-2"]
    assert "window_count" in names[1].split(", ")
    assert "key_by-2" not in names[1].split(", ")
    assert "to_memory" in names[2].split(", ")
    assert source_name(plan, "memory") == names[0]
    assert query_name("a.b", "t", ["x, y", "z"]) == "a.b t: [x, y] → [z]"


def test_a_job_without_keyed_stages_has_one_stage_or_a_second_one_for_its_sinks() -> None:
    stream = hr.stream("test", "names").from_(MemorySource({"a": []}), format="json", schema={"n": "int64"})
    plan = stream.with_columns(m="n + 1").to(MemorySink()).plan()
    (only,) = stage_names(plan, ())
    first, second = stage_names(plan, (), cuts_ranges=True)
    assert first == "memory, with_columns"
    assert second.split(", ")[0] == "to_memory"
    assert only == f"{first}, {second}"


def test_long_names_are_cut() -> None:
    stream = hr.stream("test", "names").from_(MemorySource({"a": []}), format="json", schema={"n": "int64"})
    for number in range(30):
        stream = stream.with_columns(**{f"m{number}": "n + 1"})
    plan = stream.to(MemorySink()).plan()
    (name,) = stage_names(plan, ())
    kept, _, more = name.partition(" and ")
    assert kept.startswith("memory, with_columns, with_columns-2, ")
    assert len(kept) <= 80
    nodes = 1 + 30 + len(plan.sinks)
    assert more == f"{nodes - len(kept.split(', '))} more"
