"""What happens to a soak, and when: a seed gives one schedule."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

#: How often each kind happens beside the others.
KINDS = {
    "kill": 5,  # kill -9 of an instance, and a new one in its place
    "stop": 3,  # an instance leaves in order, and a new one comes
    "pause": 3,  # a process sleeps for some seconds, and wakes up among others that have its work
    "kill-worker": 2,  # a worker process of the light backend, or of Spark
    "rules": 4,  # the rules are replaced
    "restart-mysql": 1, "restart-kafka": 1, "restart-rocketmq": 1, "restart-elasticsearch": 1,
    "crash-mysql": 1, "crash-rocketmq": 1,
}  # fmt: skip
JOBS = ("windows", "windows", "rules", "documents")


@dataclass(frozen=True)
class Fault:
    """One thing that happens, so many seconds after the one before it."""

    after_seconds: float
    kind: str
    job: str
    pause_seconds: float


def schedule(seed: int, mean_seconds: float) -> Iterator[Fault]:
    """Yield faults without end; the time between two is from a half to one and a half of the mean."""
    chance = random.Random(seed)
    kinds, weights = list(KINDS), list(KINDS.values())
    while True:
        [kind] = chance.choices(kinds, weights)
        yield Fault(chance.uniform(0.5, 1.5) * mean_seconds, kind, chance.choice(JOBS), round(chance.uniform(2, 20), 1))
