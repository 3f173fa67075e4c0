"""A few jobs of seeds on Spark, in one session. More: ``make fuzz BACKEND=spark SEEDS=200``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.choices import Choices
from tests.differential.families import families, problem_of
from tests.differential.streams import on_spark
from tests.differential.streams.family import _case
from tests.effort import one_in

#: Of queries one with aggregates and user functions; with all examples one without keyed state, and one with changes into changes.
SEEDS = {
    "sql": one_in(3, (8, 11, 3)), "dsl": (0,), "script": (0,), "functions": (0,), "streams": one_in(2, (0, 1)), "streams_sql": (0,),
}  # fmt: skip


@pytest.mark.spark
def test_nothing_differs_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))  # workers import the functions
    for name, seeds in SEEDS.items():
        for seed in seeds:
            problem = problem_of(Choices.of_seed(seed), name, backend="spark")
            assert problem is None, f"seed {seed}\n{problem}"


def test_which_families_run_on_spark() -> None:
    assert set(SEEDS) == {name for name, family in families().items() if family.check_on_spark is not None}


def test_what_depends_on_the_order_of_queues_is_brought_into_an_order() -> None:
    """Most streams have one result for every order of their queues as they are, and few have none in any form."""
    as_it_is = changed = 0
    for seed in range(60):
        case = _case(Choices.of_seed(seed), "dsl")
        plan, outcome = on_spark.comparable(case.plan, sql=False)
        as_it_is += plan is case.plan and outcome is not None
        if plan is not case.plan:
            changed += 1
            assert outcome is not None
            assert {table.queues for table in plan.tables} == {1}
            assert len(plan.arrivals) == len(case.plan.arrivals)
    assert as_it_is > 40
    assert changed > 2
