"""Sinks of connectors over simulated servers that are away, lose answers, end transactions, and carry out requests late."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import seeds_until_found
from tests.simulation.connectors import connector_history_of, run_connector
from tests.simulation.instances import SharedHistory
from tests.simulation.mysql import values_of
from tests.simulation.outputs import CONNECTORS

_SEEDS = 16


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


def test_values_of_statements_are_read() -> None:
    assert values_of("(1,'a'),(-2,NULL),(3,'it\\'s, (\\\\)')") == [[1, "a"], [-2, None], [3, "it's, (\\)"]]
