"""Jobs of some seeds that are edited between two runs. More: ``make fuzz SEEDS=1000 FUZZ="--only edited"``."""

from __future__ import annotations

from typing import Any

import pytest
from headrace.interfaces import state_definition
from headrace.plan import state_check

from tests.differential.choices import Choices
from tests.differential.families import problem_of
from tests.effort import examples


def test_an_edited_job_is_refused_or_goes_on_exactly() -> None:
    for seed in range(examples(20)):
        problem = problem_of(Choices.of_seed(seed), "edited")
        assert problem is None, f"seed {seed}\n{problem}"


def test_an_edit_that_nobody_looks_at_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def compatible(found: Any) -> state_definition.Verdict:
        return state_definition.Verdict.SAME

    monkeypatch.setattr(state_check, "verdict_of", compatible)
    problems = (problem_of(Choices.of_seed(seed), "edited") for seed in range(100))
    found = next(problem for problem in problems if problem is not None)
    assert "is not what the edited job would have given" in found or "raised" in found
