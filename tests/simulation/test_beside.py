"""Jobs with a part beside the stream: a dimension table that is loaded again while its server is away, and correlations."""

from __future__ import annotations

import pytest

from tests.effort import examples
from tests.simulation.__main__ import run_seed
from tests.simulation.histories import history_of
from tests.simulation.instances import run_shared, shared_history_of
from tests.simulation.jobs_beside import BESIDE
from tests.simulation.mutations import MUTATIONS


def test_a_table_is_loaded_again_and_its_server_is_away() -> None:
    seeds = [seed for seed in range(120) if history_of(seed).shape == "looked up"]
    outcomes = [run_seed(seed) for seed in seeds[: examples(len(seeds))]]
    assert [each.wrong for each in outcomes if each.wrong] == []
    asked = [event for each in outcomes for event in each.trace.events if "queues of the table" in str(event)]
    assert len(asked) > len(outcomes)
    assert any("fails" in str(event) for event in asked)


def test_alerts_come_by_the_idle_timeout_alone() -> None:
    seeds = [seed for seed in range(80) if shared_history_of(seed).shape == "correlated"]
    assert len(seeds) > 3
    for seed in seeds[: examples(len(seeds), least=3)]:
        assert not run_shared(shared_history_of(seed)).wrong, seed


def test_both_are_part_of_all_kinds_of_histories() -> None:
    assert {history_of(seed).shape for seed in range(60)} >= set(BESIDE)
    assert {shared_history_of(seed).shape for seed in range(60)} >= set(BESIDE)


@pytest.mark.slow  # the histories above are of every run, and bugs of other kinds are planted in every run
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("table: it is empty while it is loaded again", "looked up"),
        ("correlations: events that wait are not stored", "correlated"),
    ],
)
def test_planted_bugs_are_found(name: str, shape: str) -> None:
    """Whatever the limits of its worlds are: of a hundred such histories more than one finds it."""
    with MUTATIONS[name]():
        assert any(run_seed(seed).wrong for seed in range(1500) if history_of(seed).shape == shape)
