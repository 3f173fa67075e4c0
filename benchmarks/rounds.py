"""The best of some rounds of a measurement in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

ROUNDS = 5


def best(count: int, work: Callable[[], Any]) -> float:
    """Return the records per second of CPU time, of the best round."""
    found = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        found.append(count / (time.process_time() - begun))
    return max(found)
