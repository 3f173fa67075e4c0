"""How much generated tests try: all of it by default and in ``make nightly``, a share of it in ``make test``, which every change waits for.

``HEADRACE_TEST_EFFORT`` is the share, from 0 to 1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

import pytest

EFFORT = float(os.environ.get("HEADRACE_TEST_EFFORT", "1"))
_LEAST = 10
#: Contracts of sinks kill a process that writes at nine moments. At these the others are near: every run has two of each kind of
#: place, between batches and within one; the slow runs have all. What a sink chooses itself is not left out.
SELDOM_KILLED = re.compile(
    r"test_kill_keeps_the_guarantee\[(before batch_insert [13]|inside batch_insert 3 at (25|50|75)%)\]$"
)
_Value = TypeVar("_Value")


def examples(whole: int, *, least: int = _LEAST) -> int:
    """Return how many of ``whole`` generated examples, seeds or records this run tries: at least ``least``, if there are as many.

    ``least`` is lower where an example takes seconds.
    """
    return min(whole, max(least, round(whole * EFFORT)))


def one_in(count: int, values: Iterable[_Value], *, begin: int = 0) -> list[_Value]:
    """Return all ``values`` in a run with all examples, else one in ``count``: for values that are alike, as seeds and moments are."""
    return list(values)[begin::count] if EFFORT < 1 else list(values)


def often_or_slow(values: Sequence[str], often: Collection[str]) -> list[Any]:
    """Return parameters of which some are of every run, and the others of the slow ones."""
    assert set(often) <= set(values)
    return [value if value in often else pytest.param(value, marks=pytest.mark.slow) for value in values]
