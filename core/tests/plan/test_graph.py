"""Plans: their order, and how long they may be."""

from __future__ import annotations

import inspect
import sys

import cloudpickle
import headrace as hr
import pytest
from headrace.foundation.errors import PlanError
from headrace.plan.graph import CHAIN_LENGTH_MAX, Plan


def chain(verbs: int) -> hr.Job:
    stream = hr.stream("test", "long").from_file("x", format="json", schema={"a": "int64"})
    for number in range(verbs):
        stream = stream.where(f"a > {number}")
    return stream.to_file("out", format="json")


def test_longest_chain_of_verbs_can_be_copied_to_other_processes_from_deep_inside_a_program() -> None:
    plan = chain(CHAIN_LENGTH_MAX - 2).plan()
    copied = copied_below(plan, frames=sys.getrecursionlimit() - 300)
    assert list(copied.nodes) == list(plan.nodes)
    edges = {name: [(plan.id_of(edge.node), edge.output) for edge in node.inputs] for name, node in plan.nodes.items()}
    assert edges == {
        name: [(copied.id_of(edge.node), edge.output) for edge in node.inputs] for name, node in copied.nodes.items()
    }
    assert copied.output_digests == plan.output_digests


def copied_below(plan: Plan, *, frames: int) -> Plan:
    if len(inspect.stack(0)) < frames:
        return copied_below(plan, frames=frames)
    copied: Plan = cloudpickle.loads(cloudpickle.dumps(plan))
    return copied


@pytest.mark.parametrize("verbs", [CHAIN_LENGTH_MAX - 1, 5000])
def test_chain_of_too_many_verbs_is_refused(verbs: int) -> None:
    with pytest.raises(PlanError, match=rf"{verbs + 2} verbs stand behind each other; at most {CHAIN_LENGTH_MAX} can"):
        chain(verbs).plan()


def test_nodes_stand_behind_what_they_take_rows_from() -> None:
    first = hr.stream("test", "wide").from_file("x", format="json", schema={"a": "int64"})
    parts = [first.where(f"a > {number}") for number in range(1000)]
    nodes = list(parts[0].union(*parts[1:], first).to_file("out", format="json").plan().nodes.values())
    places = {id(node): place for place, node in enumerate(nodes)}
    assert all(places[id(edge.node)] < places[id(node)] for node in nodes for edge in node.inputs)
    assert len(nodes) >= 1003
