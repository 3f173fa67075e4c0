"""Instances that are killed and that join and leave: nothing is lost, nothing is seen twice."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from instances import CountInto, Instance, expect_copied_once, one_of
from kafka_world import KafkaWorld

from tests.eventually import eventually

Launch = Callable[..., Instance]


@pytest.fixture
def launch(world: KafkaWorld, topic: str, target: str, driver: str) -> Iterator[Launch]:
    """Start one more instance that copies ``topic`` to ``target``; all end with the test."""
    made: list[Instance] = []
    options = {"servers": world.servers, "driver": driver, "source": topic, "target": target}

    def launch(*, faults: str = "", **more: Any) -> Instance:
        environment = {**os.environ, "HEADRACE_FAULTS": faults}
        made.append(Instance({**options, **more}, environment))
        return made[-1]

    yield launch
    for instance in made:
        instance.close()


@pytest.mark.timeout(600)
def test_killed_instances_lose_and_double_nothing(
    world: KafkaWorld, topic: str, target: str, launch: Launch, count_into: CountInto
) -> None:
    world.create_topic(topic, 4)
    world.create_topic(target, 2)
    running = [launch(), launch()]
    for instance in running:
        instance.wait_until_started()
    numbers = count_into(4, per_second=400)
    eventually(lambda: len(world.read(target)) > 100, "numbers arrive")
    running[0].kill()
    third = launch()
    third.wait_until_started()
    running[1].kill()
    fourth = launch()
    fourth.wait_until_started()
    third.stop()
    count = numbers.stop()
    expect_copied_once(world, target, count)
    eventually(
        lambda: sum(world.committed(f"headrace-instances.copy-{topic}", topic).values()) == count, "all is committed"
    )
    fourth.stop()


@pytest.mark.timeout(600)
def test_an_instance_that_is_started_under_its_name_has_its_partitions_back(
    world: KafkaWorld, topic: str, target: str, launch: Launch, count_into: CountInto
) -> None:
    """The session of a dead one lasts longer than the test waits: nobody waits for its end."""
    world.create_topic(topic, 4)
    world.create_topic(target, 2)
    options = [{"instance_id": name, "session_timeout": "5 min"} for name in "ab"]
    running = [launch(source_options=given) for given in options]
    for instance in running:
        instance.wait_until_started()
    numbers = count_into(4, per_second=400)
    eventually(lambda: len(world.read(target)) > 100, "numbers arrive")
    for turn in (0, 1, 0):
        running[turn].kill()
        running[turn] = launch(source_options=options[turn])
        running[turn].wait_until_started()
    count = numbers.stop()
    expect_copied_once(world, target, count)


@pytest.mark.parametrize(
    "place", ["sink.before_insert:4", "sink.after_insert:4", "checkpoint.after_flush:3", "checkpoint.after_save:3"]
)
def test_killed_at_a_named_place(
    world: KafkaWorld, topic: str, target: str, launch: Launch, count_into: CountInto, place: str
) -> None:
    world.create_topic(topic)
    world.create_topic(target)
    numbers = count_into(1, per_second=2000)
    struck = launch(faults=f"{place}:kill")
    eventually(lambda: struck.process.poll() is not None, f"it is killed at {place}")
    assert struck.process.returncode == -9, struck.printed
    successor = launch()
    successor.wait_until_started()
    count = numbers.stop()
    expect_copied_once(world, target, count)
    successor.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_storm(world: KafkaWorld, topic: str, target: str, launch: Launch, count_into: CountInto) -> None:
    """Two to four instances, one killed or stopped and one started every few seconds, thirty kills in all."""
    seed = int(os.environ.get("HEADRACE_SEED", time.time()))
    print(f"HEADRACE_SEED={seed}")
    choice = random.Random(seed)
    world.create_topic(topic, 8)
    world.create_topic(target, 2)
    numbers = count_into(8, per_second=500)
    running = [launch(), launch()]
    kills = 0
    while kills < 30:
        time.sleep(choice.uniform(0.5, 4))
        if len(running) >= 4 or (len(running) > 2 and choice.random() < 0.5):
            instance = one_of(choice, running)
            if choice.random() < 0.7:
                instance.kill()
                kills += 1
            else:
                instance.wait_until_started()
                instance.stop()
        else:
            running.append(launch())
    count = numbers.stop()
    expect_copied_once(world, target, count, seconds=120)
    for instance in running:
        instance.wait_until_started()
        instance.stop()
    print(f"{kills} killed: {count} records once")
