"""Instances of a keyed job that join, leave and are killed, on Kafka and on RocketMQ, into MySQL; and the same job on Spark.

The table is compared with a plain model: every window once, with the right count and sum. The short versions run with the
other tests that need servers, the ones marked ``slow`` by hand (``-s`` shows their figures).
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.chaos.elastic_world import ElasticWorld, Feed, MakeWorld
from tests.chaos.workers import python_workers

pytestmark = pytest.mark.timeout(7200)
#: Of the long forms.
KILLS = int(os.environ.get("HEADRACE_CHAOS_KILLS", "100"))


def test_one_to_three_to_two_instances_under_load(make_world: MakeWorld) -> None:
    world = make_world()
    first = world.start()
    first.wait_until_started()
    feed = Feed(world.broker, per_second=1000)
    time.sleep(2)
    second, third = world.start(), world.start()
    second.wait_until_started()
    third.wait_until_started()
    time.sleep(5)
    world.stop(first)
    time.sleep(3)
    world.kill(second)
    time.sleep(3)
    events = feed.stop()
    print("\n" + world.expect_exactly(events))


@pytest.mark.slow
def test_many_kills(make_world: MakeWorld) -> None:
    kills, choice = KILLS, random.Random(7)
    world = make_world()
    feed = Feed(world.broker, per_second=400)
    world.start()
    killed = stopped = 0
    while killed < kills:
        time.sleep(choice.uniform(0.3, 3))
        if len(world.running) >= 3 or (len(world.running) > 1 and choice.random() < 0.4):
            instance = choice.choice(world.running)
            if choice.random() < 0.85:
                world.kill(instance)
                killed += 1
            else:
                instance.wait_until_started()
                world.stop(instance)
                stopped += 1
        else:
            world.start()
    while len(world.running) < 2:
        world.start()
    events = feed.stop()
    print(f"\n{killed} killed, {stopped} stopped, {world.expect_exactly(events, seconds=300)}")


def spark_kills(world: ElasticWorld, directory: Path, kills: int, *, seed: int) -> None:
    """Kill the program with its Java process, or one of Spark's Python workers, again and again."""
    choice = random.Random(seed)
    feed = Feed(world.broker, per_second=400)
    run: dict[str, Any] = {"backend": "spark", "shards": 3, "checkpoint": str(directory / "spark")}
    # A micro-batch that takes longer than a program lives is begun again and again.
    run |= {"master": "local[2]", "max_micro_batch_records": 10_000}
    instance = world.start(shared=False, **run)
    instance.wait_until_started()
    programs = workers = 0
    while programs + workers < kills:
        time.sleep(choice.uniform(0.5, 5))
        found = python_workers(instance.process.pid) if choice.random() < 0.7 else []
        if found and instance.process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                choice.choice(found).kill()
                workers += 1
            continue
        world.kill(instance)
        programs += 1
        instance = world.start(shared=False, **run)
        instance.wait_until_started()
    events = feed.stop()
    print(f"\n{programs} programs and {workers} workers killed, {world.expect_exactly(events, seconds=900)}")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("make_world", ["kafka"], indirect=True)
def test_spark_killed_many_times(make_world: MakeWorld, tmp_path: Path) -> None:
    spark_kills(make_world(), tmp_path, KILLS, seed=11)
