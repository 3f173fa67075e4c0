"""A few jobs of seeds on Spark, in one session. More: ``make fuzz BACKEND=spark SEEDS=200``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.choices import Choices
from tests.differential.families import problem_of

#: A query without keyed state, one with aggregates and user functions, one with changes into changes.
SEEDS = (4, 2, 1)


@pytest.mark.spark
def test_spark_gives_what_duckdb_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))  # workers import the functions
    for seed in SEEDS:
        problem = problem_of(Choices.of_seed(seed), "sql", backend="spark")
        assert problem is None, f"seed {seed}\n{problem}"
