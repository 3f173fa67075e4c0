"""RocketMQ while instances are killed, come and go, and the broker restarts: nothing is lost, and nothing is seen twice.

Messages keep coming all the while. At the end the target holds each row once for readers that drop repetitions, and so do
files. The short versions run with the tests of real servers, the ones marked ``slow`` are the long ones.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.rocketmq_world import Feed, World, settle, world_of
from tests.eventually import eventually
from tests.servers.fixtures import StartRocketMQServer
from tests.servers.rocketmq import RocketMQServer

FreshName = Callable[[str], str]


@pytest.fixture
def world(rocketmq_server: RocketMQServer, fresh_name: FreshName, tmp_path: Path) -> Iterator[World]:
    """Topics of the shared server."""
    with world_of(rocketmq_server, fresh_name, tmp_path) as made:
        yield made


@pytest.fixture
def mortal(start_rocketmq_server: StartRocketMQServer, fresh_name: FreshName, tmp_path: Path) -> Iterator[World]:
    """Topics of a server that may be stopped."""
    with world_of(start_rocketmq_server(), fresh_name, tmp_path) as made:
        yield made


def kill_again_and_again(world: World, kills: int, seed: int, backend: str = "light") -> None:
    """Kill the only instance at random moments; its output is in a topic and in files."""
    rng, pause, files = random.Random(seed), threading.Event(), world.directory / "out"
    feed = Feed(world.client, world.source, per_second=2000 if backend == "light" else 400)
    for _ in range(kills):
        process = world.start("only", backend=backend, files=str(files))
        pause.wait(rng.uniform(0.0, 2.0 if backend == "light" else 6.0))
        world.kill(process)
    feed.stop()
    settle(world.client, world.source)
    world.leave(world.start("only", backend=backend, files=str(files), until="end"))
    print(f"{backend} killed {kills} times:", world.expect_all_is_copied_once(feed.sent))
    rows = (line for part in files.glob("*.json") for line in part.read_text().splitlines())
    world.expect_once(Counter(json.loads(line)["id"] for line in rows), world.wanted())


def test_killed(world: World) -> None:
    kill_again_and_again(world, kills=4, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_thirty_times(world: World) -> None:
    kill_again_and_again(world, kills=30, seed=2)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_killed(world: World) -> None:
    kill_again_and_again(world, kills=2, seed=5, backend="spark")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_spark_killed_thirty_times(world: World) -> None:
    kill_again_and_again(world, kills=30, seed=6, backend="spark")


def restart_broker(world: World, times: int, *, clean: bool) -> None:
    """Stop and start the broker while two instances read and write."""
    feed = Feed(world.client, world.source, per_second=500)
    instances = [world.start(name) for name in ("one", "two")]
    broker = "broker-0"
    for _ in range(times):
        before = feed.sent
        if clean:
            assert world.server.stop(broker)
        else:
            world.server.kill(broker)
        world.server.start()
        eventually(lambda: feed.sent > before + 500, "messages can be sent again")  # noqa: B023
    feed.stop()
    world.wait_until_done()
    for process in instances:
        assert process.poll() is None
        world.leave(process)
    print(f"broker stopped {times} times:", world.expect_all_is_copied_once(feed.sent))


@pytest.mark.timeout(400)
def test_broker_restarts(mortal: World) -> None:
    restart_broker(mortal, 1, clean=True)


@pytest.mark.timeout(400)
def test_broker_is_killed(mortal: World) -> None:
    restart_broker(mortal, 1, clean=False)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_broker_restarts_five_times(mortal: World) -> None:
    restart_broker(mortal, 5, clean=True)


def come_and_go(world: World, seconds: float, seed: int) -> None:
    """Two to four instances: every few seconds one comes, leaves, or is killed."""
    rng, pause = random.Random(seed), threading.Event()
    feed = Feed(world.client, world.source, per_second=1000)
    number = 0

    def start() -> None:
        nonlocal number
        number += 1
        world.start(f"i{number}")

    start()
    start()
    deadline = time.monotonic() + seconds
    left = killed = 0
    while time.monotonic() < deadline:
        pause.wait(rng.uniform(1.0, 4.0))
        if len(world.instances) == 2 or (len(world.instances) < 4 and rng.random() < 0.5):
            start()
        elif rng.random() < 0.5:
            world.leave(rng.choice(world.instances))
            left += 1
        else:
            world.kill(rng.choice(world.instances))
            killed += 1
    feed.stop()
    world.wait_until_done()
    for process in list(world.instances):
        world.leave(process)
    happened = f"{number} instances came, {left} left, {killed} were killed:"
    print(happened, world.expect_all_is_copied_once(feed.sent))


def test_instances_come_and_go(world: World) -> None:
    come_and_go(world, 15, seed=3)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_instances_come_and_go_for_two_minutes(world: World) -> None:
    come_and_go(world, 120, seed=4)
