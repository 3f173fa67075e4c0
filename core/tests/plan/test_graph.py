"""Plans: their order, and how long they may be."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from functools import partial
from types import FrameType
from typing import Any

import cloudpickle
import headrace as hr
import pytest
from headrace.foundation.errors import PlanError
from headrace.jobs.dsl import Stream
from headrace.plan.graph import CHAIN_LENGTH_MAX, Plan
from headrace.testing import MemorySink, MemorySource


def chain(verbs: int) -> hr.Job:
    stream = hr.stream("test", "long").from_file("x", format="json", schema={"a": "int64"})
    for number in range(verbs):
        stream = stream.where(f"a > {number}")
    job: hr.Job = stream.to_file("out", format="json")
    return job


def test_longest_chain_of_verbs_can_be_copied_to_other_processes_from_deep_inside_a_program() -> None:
    plan = chain(CHAIN_LENGTH_MAX - 2).plan()
    copied = copied_below(plan, frames=sys.getrecursionlimit() - 300)
    assert list(copied.nodes) == list(plan.nodes)
    edges = {name: [(plan.id_of(edge.node), edge.output) for edge in node.inputs] for name, node in plan.nodes.items()}
    assert edges == {
        name: [(copied.id_of(edge.node), edge.output) for edge in node.inputs] for name, node in copied.nodes.items()
    }
    assert copied.output_digests == plan.output_digests


def depth(frame: FrameType | None) -> int:
    count = 0
    while frame is not None:
        count, frame = count + 1, frame.f_back
    return count


def copied_below(plan: Plan, *, frames: int) -> Plan:
    if depth(inspect.currentframe()) < frames:
        return copied_below(plan, frames=frames)
    copied: Plan = cloudpickle.loads(cloudpickle.dumps(plan))
    return copied


@pytest.mark.parametrize("verbs", [CHAIN_LENGTH_MAX - 1, 5000])
def test_chain_of_too_many_verbs_is_refused(verbs: int) -> None:
    with pytest.raises(PlanError, match=rf"{verbs + 2} verbs follow each other, but at most {CHAIN_LENGTH_MAX} may"):
        chain(verbs).plan()


def test_nodes_stand_behind_what_they_take_rows_from() -> None:
    first = hr.stream("test", "wide").from_file("x", format="json", schema={"a": "int64"})
    parts = [first.where(f"a > {number}") for number in range(1000)]
    nodes = list(parts[0].union(*parts[1:], first).to_file("out", format="json").plan().nodes.values())
    places = {id(node): place for place, node in enumerate(nodes)}
    assert all(places[id(edge.node)] < places[id(node)] for node in nodes for edge in node.inputs)
    assert len(nodes) >= 1003


def source() -> MemorySource:
    return MemorySource({"q": [b'{"a": 1}', b'{"a": 2}']})


def rows_of(name: str) -> Stream:
    return hr.stream("test", name).from_(source(), format="json", schema={"a": "int64"})


@pytest.mark.parametrize("backend", ["light", "spark"])
def test_a_sink_object_of_one_job_is_refused_by_another(backend: str) -> None:
    """Else the first job would write under the second one's name: its exactly-once positions would be lost."""
    sink = MemorySink()
    first = rows_of("first").to(sink)
    first.plan()
    bound = sink.writer_name
    second = rows_of("second").where("a > 1").distinct("a").to(sink, name="other")
    for build in (second.plan, partial(second.start, backend)):
        with pytest.raises(PlanError, match=r"'other' is a MemorySink .* for the job 'test\.first' already") as caught:
            build()
        assert caught.value.hint == "make a sink object for each job"
    assert (sink.writer_name, sink.writer_job, sink.changes) == (bound, "test.first", None)
    first.run("light")
    assert [row["a"] for row in sink.rows] == [1, 2]


def test_a_job_may_be_built_again_with_its_sink_object() -> None:
    sink = MemorySink()
    rows_of("first").to(sink).plan()
    edited = rows_of("first").where("a > 1").to(sink, name="other")
    edited.plan()
    assert sink.writer_name == "test.first.other"


def test_a_job_that_is_refused_leaves_its_sink_objects_as_they_were() -> None:
    class Appending(MemorySink):
        accepts = "append"

    kept, refused = MemorySink(), Appending()
    counts = rows_of("changing").key_by("a").agg(n="count(*)")
    with pytest.raises(PlanError, match="can only add rows, but its input changes earlier results"):
        counts.to(kept).also(counts.to(refused, name="appending")).plan()
    assert (kept.writer_name, kept.writer_job, kept.changes) == ("", "", None)
    counts.to(kept).plan()
    assert kept.changes is not None


def test_a_source_knows_under_which_name_it_is_read() -> None:
    """Two sources of the same data get names of their own, since groups of consumers are named by it."""

    class Of(MemorySource):
        def __init__(self, data: str) -> None:
            super().__init__({"q": []})
            self.data = data

        def identity(self) -> Mapping[str, Any]:
            return {"data": self.data}

    sources = [Of(data) for data in ("a", "b", "a", "a")]
    pipe = hr.stream("test", "names")
    plan = hr.job(*(pipe.from_(each, format="raw").to(MemorySink()) for each in sources)).plan()
    assert [each.reader_name for each in sources] == ["test.names", "test.names", "test.names-2", "test.names-3"]
    assert [node.source.reader_name for node in plan.sources.values()] == [each.reader_name for each in sources]
