"""Leases: no write of a zombie, and no lease that nobody gets, whatever happens to its holders and its store."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import seeds_until_found
from tests.simulation.leases import lease_history_of, run_lease
from tests.simulation.mutations import OF_LEASES


def test_histories_of_leases_break_no_rule() -> None:
    for seed in range(40):
        outcome = run_lease(lease_history_of(seed))
        assert not outcome.wrong, f"{outcome.history}\npython -m tests.simulation replay {seed} --leases\n" + "\n".join(
            outcome.wrong
        )


def test_a_pause_within_a_longer_one_does_not_shorten_it() -> None:
    """Else the thread that works would run seconds before the one that renews, which does not happen to a paused process."""
    assert not run_lease(lease_history_of(300_766)).wrong


@pytest.mark.parametrize("name", OF_LEASES)
def test_planted_bugs_are_found(name: str) -> None:
    assert seeds_until_found(name, 60) is not None
