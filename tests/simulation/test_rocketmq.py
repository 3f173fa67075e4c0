"""The driver of RocketMQ, unchanged, over simulated sockets: sources, groups, shuffles and state in topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.effort import examples
from tests.simulation.instances import run_shared, shared_history_of

_SEEDS = examples(8, least=4)


@pytest.mark.parametrize("part", range(2))
def test_histories_over_rocketmq_break_no_rule(part: int) -> None:
    for seed in range(part, _SEEDS, 2):
        outcome = run_shared(replace(shared_history_of(seed), broker="rocketmq"))
        assert not outcome.wrong, f"{outcome.history}\n" + "\n".join(outcome.wrong)
        assert any("PULL_MESSAGE" in each.what for each in outcome.trace.events)


@pytest.mark.parametrize("seed", [65, 91])
def test_a_shard_whose_first_request_is_lost_is_read(seed: int) -> None:
    """The job asked for the end of the queue before its next poll, and was told of the failure again and again, until the next poll."""
    outcome = run_shared(replace(shared_history_of(seed), broker="rocketmq"))
    assert not outcome.wrong, f"{outcome.history}\n" + "\n".join(outcome.wrong)
