"""How much generated tests try: all of it by default and in ``make nightly``, a share of it in ``make test``, which every change waits for.

``HEADRACE_TEST_EFFORT`` is the share, from 0 to 1.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

import pytest

EFFORT = float(os.environ.get("HEADRACE_TEST_EFFORT", "1"))
_LEAST = 10


def examples(whole: int) -> int:
    """Return how many of ``whole`` generated examples, seeds or records this run tries: at least 10, if there are as many."""
    return min(whole, max(_LEAST, round(whole * EFFORT)))


def often_or_slow(values: Sequence[str], often: Collection[str]) -> list[Any]:
    """Return parameters of which some are of every run, and the others of the slow ones."""
    assert set(often) <= set(values)
    return [value if value in often else pytest.param(value, marks=pytest.mark.slow) for value in values]
