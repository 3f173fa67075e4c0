"""A pytest plug-in that writes what became of each test to the file that an environment variable names."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

import pytest

VARIABLE = "CONTRACT_RECORD"
#: Of the checks that are to pass, one in so many is run.
ONE_IN = "CONTRACT_ONE_IN"
#: Checks that start processes, half a second each: left out for plug-ins whose fault is another, see ``thorough``.
PROCESS_CHECKS = (
    "test_a_dead_member_is_replaced",
    "test_a_kill_leaves_whole_versions",
    "test_kill_after_checkpoint_loses_nothing",
    "test_kill_keeps_the_guarantee",
    "test_paused_process_adds_nothing",
    "test_resume_after_kill",
    "test_same_output_elsewhere",
    "test_same_results_elsewhere",
    "test_the_same_entries_give_the_same_rows_in_the_same_order",
)
_found: dict[str, list[dict[str, str]]] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out checks that start processes, and most checks of a sample, except where they are the fault that is looked for."""
    left_out = [item for item in items if not _wanted(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if _wanted(item)]


def _wanted(item: pytest.Item) -> bool:
    kind, check = getattr(item, "cls", None), getattr(item, "originalname", "")
    if kind is None or not hasattr(kind, "breaks") or check == kind.breaks or check in kind.also:
        return True
    if check in PROCESS_CHECKS:
        return bool(kind.thorough)
    return zlib.crc32(f"{kind.__name__}.{check}".encode()) % int(os.environ.get(ONE_IN, "1")) == 0


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the outcome of a test, with its text when it failed."""
    if report.when == "call" or report.outcome != "passed":
        entry = {"when": str(report.when), "outcome": report.outcome, "text": report.longreprtext}
        _found.setdefault(report.nodeid, []).append(entry)


def pytest_sessionfinish() -> None:
    """Write the file."""
    Path(os.environ[VARIABLE]).write_text(json.dumps(_found))
