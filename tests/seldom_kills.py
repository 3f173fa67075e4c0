"""A plug-in of pytest for runs of contracts within a test: leaves out the kills that only the slow runs have."""

from __future__ import annotations

import pytest

from tests.effort import EFFORT, SELDOM_KILLED


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave them out, except in a run with all examples."""
    left_out = [item for item in items if EFFORT < 1 and SELDOM_KILLED.search(item.name)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
