"""Histories of jobs that are changed between their starts: what a checkpoint allows changes nothing, the rest is refused."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.simulation.__main__ import seeds_until_found
from tests.simulation.changed import REFUSED, changed_history_of, run_changed
from tests.simulation.changed_mutations import OF_CHANGES
from tests.simulation.starting import Outcome

_SEEDS = 24
_PARTS = 4


@cache
def _outcome(seed: int) -> Outcome:
    """Two tests look at the same histories."""
    return run_changed(changed_history_of(seed))


@pytest.mark.parametrize("part", range(_PARTS))
def test_histories_of_changed_jobs_break_no_rule(part: int) -> None:
    happened: Counter[str] = Counter()
    for seed in range(part, _SEEDS, _PARTS):
        outcome = _outcome(seed)
        told = f"{outcome.history}\npython -m tests.simulation replay {seed} --changes\n"
        assert not outcome.wrong, told + "\n".join(outcome.wrong)
        happened.update(each.kind for each in outcome.trace.events)
    assert happened["refused"]
    assert happened["full"]


def test_every_change_that_must_be_refused_happens() -> None:
    left, seed = set(REFUSED), 0
    while left and seed < _SEEDS:
        events = _outcome(seed).trace.events
        left, seed = left - {each.what for each in events if each.kind == "refused"}, seed + 1
    assert not left


#: The seeds that find the planted bugs first, as long as seeds mean what they mean now.
_FOUND_BY = dict(zip(OF_CHANGES, (12, 9, 58), strict=True))


@pytest.mark.parametrize("name", OF_CHANGES)
def test_planted_bugs_are_found(name: str) -> None:
    assert seeds_until_found(name, 60, first=_FOUND_BY[name]) is not None
