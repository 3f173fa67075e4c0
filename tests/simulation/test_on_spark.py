"""Savepoints of the simulated world, restored on Spark: rows of both together are those of the model.

``HEADRACE_SAVEPOINT_SEEDS=200-400 pytest -m spark tests/simulation/test_on_spark.py`` tries the seeds of 200 to 399.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.simulation.on_spark import rest_on_spark, savepoint_of, stopping_history_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
#: The seeds that every change runs, and those of the slow test.
_SHORT = (1, 5)
_SEEDS = os.environ.get("HEADRACE_SAVEPOINT_SEEDS", "0-40")


@pytest.fixture(autouse=True)
def _workers_import_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))


def _tried(seeds: range, directory: Path) -> tuple[set[str], int, list[str]]:
    """Return the shapes of the jobs that went on with Spark, how many of them had rows before and wrote rows there, what was wrong."""
    shapes, both, wrong = set(), 0, []
    for seed in seeds:
        (place := directory / str(seed)).mkdir()
        taken = savepoint_of(stopping_history_of(seed), place / "savepoint")
        if taken is None:
            continue
        shapes.add(taken.history.shape)
        written, found = rest_on_spark(taken, place, master="local[2]", shards=1 + seed % 3)
        both += bool(written and taken.rows)
        wrong += [f"{taken.history}\n{each}" for each in found]
    return shapes, both, wrong


def test_a_few_savepoints_go_on_with_spark(tmp_path: Path) -> None:
    shapes, both, wrong = _tried(range(*_SHORT), tmp_path)
    assert not wrong, "\n".join(wrong)
    assert shapes
    assert both


@pytest.mark.slow
def test_savepoints_of_any_moment_go_on_with_spark(tmp_path: Path) -> None:
    first, end = map(int, _SEEDS.split("-"))
    shapes, both, wrong = _tried(range(first, end), tmp_path)
    assert not wrong, "\n".join(wrong)
    assert len(shapes) > min(5, (end - first) // 4)
    assert both
