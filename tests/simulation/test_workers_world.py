"""Worker processes in the world: they die and are slow before and after each message, and the engine is killed, too."""

from __future__ import annotations

import pytest

from tests.effort import examples
from tests.simulation.histories import history_of
from tests.simulation.workers import run_with_workers

_SEEDS = examples(24)


@pytest.mark.parametrize("part", range(2))
def test_histories_with_workers_break_no_rule(part: int) -> None:
    texts = []
    for seed in range(part, _SEEDS, 2):
        outcome = run_with_workers(history_of(seed))
        assert not outcome.wrong, f"{outcome.history}\n" + "\n".join(outcome.wrong)
        texts.append(outcome.trace.text())
    assert any("kill of a worker" in text for text in texts)
    assert any("worker.message" in text for text in texts)


def test_a_history_with_workers_is_the_same_again() -> None:
    # The first one imports modules and fills caches, which passes seams.
    _, second, third = (run_with_workers(history_of(5)).trace.digest() for _ in range(3))
    assert second == third
