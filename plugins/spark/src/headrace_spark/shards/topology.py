"""Which keyed stages a job has, in which order Spark runs them, and which shard gets a row.

Shuffles that depend on no other shuffle are level 1, those behind them level 2, and so on. A level is one keyed stage of
the query: all shards of all its shuffles. Shards of one number are in one partition, which has that number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

from headrace.flow.messages import Queue
from headrace.plan.graph import Plan
from headrace.plan.stages import upstream_of
from headrace.runtime.combining import Combining, combining_before


@dataclass(frozen=True, order=True)
class Address:
    """One shard of one shuffle."""

    shuffle: str
    shard: int

    def __str__(self) -> str:
        return f"{self.shuffle}/{self.shard}"


class Topology:
    """The keyed stages of a plan with ``shards`` shards per shuffle. Made in every process that needs it."""

    def __init__(self, plan: Plan, shards: int) -> None:
        self.shards = shards
        self._plan = plan
        #: Per shuffle and side the ids of the sources and shuffles whose rows come in there.
        self.upstream: Mapping[str, tuple[frozenset[str], ...]] = upstream_of(plan)
        self._level_of = _levels(self.upstream)
        count = max(self._level_of.values(), default=0)
        #: Shuffle ids by level, in the order of the plan.
        self.levels: list[list[str]] = [
            [name for name, level in self._level_of.items() if level == number] for number in range(1, count + 1)
        ]

    @cached_property
    def combining(self) -> Mapping[str, Combining]:
        """How rows are combined before they are sent, per shuffle that lets them be."""
        found = {name: combining_before(self._plan, node) for name, node in self._plan.shuffles.items()}
        return {name: each for name, each in found.items() if each is not None}

    def partition(self, after_level: int, address: Address | None, queue: Queue) -> int:
        """Return where a row that leaves a level (0: the source stage) goes.

        A row that is not for the next level only passes through it: all rows of a queue through the same partition, so that
        they stay in order.
        """
        if address is not None and self._level_of[address.shuffle] == after_level + 1:
            return address.shard
        return crc32(f"{queue.source}/{queue.name}".encode()) % self.shards

    def addresses(self) -> Iterator[Address]:
        """Yield all shards of all levels."""
        for names in self.levels:
            for name in names:
                for shard in range(self.shards):
                    yield Address(name, shard)

    def sides_of(self, shuffle: str, upstream_id: str) -> list[int]:
        """Return the sides of a shuffle by which rows of a source or shuffle arrive; all for a source that the job no longer has."""
        known = upstream_id in self._plan.sources or upstream_id in self.upstream
        return [side for side, ids in enumerate(self.upstream[shuffle]) if not known or upstream_id in ids]

    def upstream_shards(self, shuffle: str) -> Iterator[tuple[Queue, int]]:
        """Yield (queue, side) for the shards of other shuffles that send to this one."""
        for side, ids in enumerate(self.upstream[shuffle]):
            for name in sorted(ids & self.upstream.keys()):
                for shard in range(self.shards):
                    yield Queue(str(shard), name), side


def _levels(upstream: Mapping[str, tuple[frozenset[str], ...]]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for name, sides in upstream.items():  # in the order of the plan: what is upstream comes first
        levels[name] = 1 + max((levels[each] for ids in sides for each in ids if each in levels), default=0)
    return levels
