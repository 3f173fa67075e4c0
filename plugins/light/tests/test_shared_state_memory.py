"""Instances that share shards, with a limit for the memory of their state: shards move, and totals are those of one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elastic_world import World, while_running
from headrace.flow.messages import ChangeKind
from headrace.jobs.dsl import Stream

KEYS = 5_000
TAKEN_BACK = (ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE)


def totals(events: Stream) -> Stream:
    return events.select(u=f"n % {KEYS}", n="n").key_by("u").agg(c="count(*)", s="sum(n)")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, build=totals)
    yield made
    made.close()


def there(world: World) -> Counter[tuple[int, int, int]]:
    found: Counter[tuple[int, int, int]] = Counter()
    with world.table.lock:
        for row, kind in zip(world.table.rows, world.table.kinds, strict=True):
            found[row["u"], row["c"], row["s"]] += -1 if kind in TAKEN_BACK else 1
    return +found


@pytest.mark.parametrize("options", [{}, {"reliability": "fast"}])
def test_shards_move_with_what_is_on_disk(world: World, options: dict[str, Any]) -> None:
    options = {**options, "state_memory": "1 MB"}
    first = world.start(**options)
    world.send(KEYS)
    while_running(lambda: sum(there(world).values()) == KEYS, "all keys", first)
    others = [first]
    if "reliability" not in options:  # else state is lost when a shard moves
        second = world.start(**options)
        while_running(lambda: len(second.status().shards) >= 1, "a shard", first, second)
        others.append(second)
    world.send(KEYS)
    wanted = Counter({(key, 2, 2 * key + KEYS): 1 for key in range(KEYS)})
    while_running(lambda: there(world) == wanted, "all updates", *others)
    if len(others) == 2:
        first.stop()
    world.send(KEYS)
    wanted = Counter({(key, 3, 3 * key + 3 * KEYS): 1 for key in range(KEYS)})
    while_running(lambda: there(world) == wanted, "all updates once more", others[-1])
    assert others[-1].status().state_rows == KEYS
    assert list(world.directory.glob("*/light/local/CURRENT"))
