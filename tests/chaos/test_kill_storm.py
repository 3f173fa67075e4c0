"""Instances that are killed more often than a session lasts: rows come late, and each of them once.

How late is measured by ``python -m benchmarks.kill_storm``.
"""

from __future__ import annotations

import random
import time

import pytest

from tests.chaos.elastic_world import Feed, MakeWorld

pytestmark = pytest.mark.timeout(1200)
KILLS = 6


@pytest.mark.parametrize("make_world", ["kafka"], indirect=True)
@pytest.mark.parametrize("named", [False, True], ids=["without names", "with names"])
def test_kills_that_come_before_the_group_has_recovered(make_world: MakeWorld, named: bool) -> None:
    """Three instances, one killed every 1 to 3 s with sessions of 6 s, and one started in its place."""
    choice = random.Random(5)
    world = make_world()

    def start(name: str) -> None:
        world.start(name, source_options={"instance_id": name} if named else {})

    for name in "abc":
        start(name)
    for instance in world.running:
        instance.wait_until_started()
    feed = Feed(world.broker, per_second=400)
    for _ in range(KILLS):
        time.sleep(choice.uniform(1, 3))
        victim = choice.choice(world.running)
        world.kill(victim)
        start(victim.name)
    events = feed.stop()
    print("\n" + world.expect_exactly(events, seconds=300))
