"""Instances that are killed while they restore what others have left: tables are compared with a plain model."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.chaos.elastic_world import QUEUES, Broker, Instance, OnKafka, OnRocketMQ
from tests.servers.mysql import MySQLServer

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]
KEYS = 60_000
_SECONDS_MAX = 120.0


class World:
    """A broker, two tables, the state in two others, and instances of the job."""

    def __init__(self, broker: Broker, server: MySQLServer, database: str, directory: Path) -> None:
        self.broker, self.directory = broker, directory
        self.place = {name: getattr(server, name) for name in ("host", "port", "user", "password")}
        self.place["database"] = database
        self.connection = pymysql.connect(**self.place, autocommit=True)
        with self.connection.cursor() as cursor:
            cursor.execute("CREATE TABLE totals (k BIGINT PRIMARY KEY, n BIGINT, s BIGINT)")
            cursor.execute("CREATE TABLE numbers (k BIGINT, number BIGINT) ENGINE = InnoDB")
        self.running: list[Instance] = []
        self.logs: list[Path] = []
        self.model: Counter[int] = Counter()
        self._turn = 0

    def start(self) -> Instance:
        run = {
            "reliability": "high", "shards": 3, "checkpoint_interval": "500 ms", "state_store": "mysql",
            "state_options": self.place, "quick_start": True,
        }  # fmt: skip
        about = {
            "source": self.broker.source, "topic": self.broker.topic, "source_options": self.broker.source_options,
            "mysql": self.place, "run": run,
        }  # fmt: skip
        self.logs.append(self.directory / f"{len(self.logs)}.log")
        instance = Instance(about, self.logs[-1], module="tests.chaos.quick_start_job")
        self.running.append(instance)
        return instance

    def kill(self, instance: Instance) -> None:
        self.running.remove(instance)
        instance.kill()

    def send(self, first: int, last: int, step: int = 1) -> None:
        """Send an event of each of these keys."""
        body = json.dumps({"first": first, "last": last, "step": step}).encode()
        self.broker.write(self._turn % QUEUES, [body])
        self._turn += 1
        self.model.update(range(first, last, step))

    def wait_for_all(self) -> None:
        """Wait until every row has its number; fail when one has it twice, or a total is wrong."""
        until = time.monotonic() + _SECONDS_MAX
        while (found := self._value("SELECT COUNT(*) FROM numbers")) < self.model.total():
            for instance in self.running:
                assert instance.process.poll() is None, instance.printed
            assert time.monotonic() < until, f"only {found} of {self.model.total()} rows"
            time.sleep(0.1)

    def check(self) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT k, COUNT(*), COUNT(DISTINCT number), MAX(number) FROM numbers GROUP BY k")
            numbers = {k: counts for k, *counts in cursor.fetchall()}
        wrong = {k: numbers.get(k) for k, n in self.model.items() if numbers.get(k) != [n, n, n]}
        assert not wrong, f"{len(wrong)} keys: {list(wrong.items())[:5]}"
        wanted = {k: (n, n * k) for k, n in self.model.items()}
        until = time.monotonic() + _SECONDS_MAX
        while (totals := self._totals()) != wanted and time.monotonic() < until:
            time.sleep(0.1)
        assert totals == wanted

    def begun_quickly(self) -> int:
        """Return how often a shard began before its state was there."""
        return sum(log.read_text().count("the rest is loaded later") for log in self.logs)

    def close(self) -> None:
        for instance in list(self.running):
            self.kill(instance)
        self.broker.close()
        self.connection.close()

    def _totals(self) -> dict[int, tuple[int, int]]:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT k, n, CAST(s AS SIGNED) FROM totals")
            return {k: (n, s) for k, n, s in cursor.fetchall()}

    def _value(self, query: str) -> Any:
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone()[0]


@pytest.fixture(params=["rocketmq", "kafka"])
def world(
    request: pytest.FixtureRequest,
    mysql_server: MySQLServer,
    mysql_database: str,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
) -> Iterator[World]:
    kind, name = request.param, fresh_name("quick")
    server = request.getfixturevalue(f"{kind}_server")
    broker = OnKafka(server, name) if kind == "kafka" else OnRocketMQ(server, name)
    made = World(broker, mysql_server, mysql_database, tmp_path)
    yield made
    made.close()


def run_kills(world: World, kills: int, seed: int) -> None:
    choice = random.Random(seed)
    first = world.start()
    first.wait_until_started()
    for begin in range(0, KEYS, 5_000):
        world.send(begin, begin + 5_000)
    world.wait_for_all()
    time.sleep(1)  # for a checkpoint, of which there is one every half second: without it more is repeated
    for _ in range(kills):
        other = world.start()
        other.wait_until_started()
        for _ in range(20):
            # New keys, few keys, and many that lie apart.
            world.send(KEYS + choice.randrange(500), KEYS + 500 + choice.randrange(500))
            begin = choice.randrange(KEYS)
            world.send(begin, min(KEYS, begin + 20))
            world.send(choice.randrange(500), KEYS, 499)
            time.sleep(choice.uniform(0, 0.1))
        world.kill(choice.choice(world.running))
    world.wait_for_all()
    world.check()
    assert world.begun_quickly() >= kills
    print(f"\n{kills} killed, {world.begun_quickly()} shards began quickly; {world.model.total():,} rows, each once")


def test_killed_while_others_restore(world: World) -> None:
    run_kills(world, int(os.environ.get("HEADRACE_CHAOS_KILLS", "20")), seed=3)
