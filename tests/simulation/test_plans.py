"""Generated jobs with faults: what the interpreter says, in every history."""

from __future__ import annotations

import pytest

from tests.differential.streams.plan import IntervalJoin, Join, TopN, Windowed, WindowJoin
from tests.effort import examples
from tests.simulation.histories import FAULTS
from tests.simulation.mutations import MUTATIONS
from tests.simulation.plans import plan_history_of, plan_of, run_plan
from tests.simulation.shrinking import shrink

_SEEDS = examples(60)


@pytest.mark.parametrize("part", range(4))
def test_histories_of_generated_jobs_break_no_rule(part: int) -> None:
    for seed in range(part, _SEEDS, 4):
        outcome = run_plan(plan_history_of(seed))
        told = f"{outcome.history}\npython -m tests.simulation replay {seed} --plans\n"
        assert not outcome.wrong, told + "\n".join(outcome.wrong)


def test_generated_histories_have_every_kind_of_verb_and_fault() -> None:
    histories = [plan_history_of(seed) for seed in range(100)]
    kinds = {type(node) for each in histories for node in plan_of(each).nodes()}
    assert {Windowed, Join, IntervalJoin, WindowJoin, TopN} <= kinds
    assert {fault.kind for each in histories for fault in each.faults} == FAULTS
    assert {each.dialect for each in histories} == {"dsl", "sql"}


@pytest.mark.slow  # every run shrinks a history of one job: test_shrinking.py
def test_a_planted_bug_is_found_and_its_plan_made_smaller() -> None:
    with MUTATIONS["known rows told by offset alone"]():
        found = next(seed for seed in range(60) if run_plan(plan_history_of(seed)).wrong)
        small = shrink(plan_history_of(found), run_plan, runs_max=25)
    assert small.wrong
    assert len(small.history.plan) < len(plan_history_of(found).plan)
    assert not run_plan(small.history).wrong
