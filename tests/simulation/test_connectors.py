"""Sinks of connectors over simulated servers that are away, lose answers, end transactions, and carry out requests late."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.effort import examples
from tests.simulation.__main__ import seeds_until_found
from tests.simulation.connectors import connector_history_of, run_connector
from tests.simulation.histories import Fault, History
from tests.simulation.instances import SharedHistory
from tests.simulation.jobs import BEGIN
from tests.simulation.jobs_beside import ALL_SHAPES
from tests.simulation.mutations import MUTATIONS
from tests.simulation.mysql import values_of
from tests.simulation.outputs import CONNECTORS

_SEEDS = examples(50)


@pytest.mark.parametrize("part", range(4))
def test_histories_with_sinks_of_connectors_break_no_rule(part: int) -> None:
    for seed in range(part, _SEEDS, 4):
        outcome = run_connector(connector_history_of(seed))
        told = f"{outcome.history}\npython -m tests.simulation replay {seed} --connectors\n"
        assert not outcome.wrong, told + "\n".join(outcome.wrong)


def test_histories_have_every_sink_with_one_instance_and_with_several() -> None:
    histories = [connector_history_of(seed) for seed in range(80)]
    found = {(each.sink, isinstance(each, SharedHistory)) for each in histories}
    assert found == {(sink, shared) for sink in CONNECTORS for shared in (True, False)}


@pytest.mark.parametrize(
    ("name", "first"),
    [("mysql: a lost commit counts as done", 124), ("mysql: rows are committed before their position", 18)],
)
def test_planted_bugs_are_found(name: str, first: int) -> None:
    assert seeds_until_found(name, 40, first=first) is not None


def test_documents_that_change_have_a_version() -> None:
    """A request that a killed process had sent is carried out after the document was written anew: seed 101898, made smaller."""

    def record(id: int, value: int, seconds: float) -> dict[str, Any]:
        return {"id": id, "k": "b", "v": value, "ts": BEGIN + timedelta(seconds=seconds)}

    history = History(
        101898, "running", "elasticsearch", {"s0": {"q0": [(2_496_919, record(2, 9, 0))], "q1": [(149_688, record(3, 2, 2.7))]}},
        {"max_batch_records": 100, "checkpoint_interval": 0.001, "shards": 1, "batch_size": 100, "flush_interval": 0.001,
         "max_cached_rows": 100_000},
        (Fault("kill", "sink.after_insert", 1),), preempt=0.0, away={"table": ((572_335, 2_750_898),)}, journal=True,
    )  # fmt: skip
    outcome = run_connector(history)
    assert not outcome.wrong
    assert [each for each in outcome.trace.events if each.kind == "late"], "no request came late"
    with MUTATIONS["elasticsearch: versions are not sent"]():
        assert run_connector(history).wrong


def test_changes_by_key_go_to_elasticsearch_with_one_instance_and_with_several() -> None:
    histories = [connector_history_of(seed) for seed in range(400)]
    found = [each for each in histories if ALL_SHAPES[each.shape].changes and each.sink == "elasticsearch"]
    assert {isinstance(each, SharedHistory) for each in found} == {True, False}


def test_values_of_statements_are_read() -> None:
    assert values_of("(1,'a'),(-2,NULL),(3,'it\\'s, (\\\\)')") == [[1, "a"], [-2, None], [3, "it's, (\\)"]]
