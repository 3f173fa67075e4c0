"""Instances that are killed, join and leave, and servers that go away, from Kafka into Kafka and MySQL.

Every number is in both exactly once in the end: nothing is lost, and no reader with read_committed, nor the table, shows
one twice. The short versions run with the other tests that need servers, the ones marked ``slow`` by hand (``-s`` shows
their figures).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.kafka_mysql_world import Copying
from tests.servers.fixtures import StartKafkaServer, StartMySQLServer
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer

pytestmark = pytest.mark.timeout(900)
CopyNumbers = Callable[..., Copying]


@pytest.fixture
def copy_numbers(fresh_name: Callable[[str], str]) -> Iterator[CopyNumbers]:
    """Make what copies numbers from one server to others; it ends with the test."""
    made: list[Copying] = []

    def copy_numbers(kafka: KafkaServer, mysql: MySQLServer, partitions: int, **options: Any) -> Copying:
        made.append(Copying(kafka, mysql, fresh_name("chaos"), partitions, **options))
        return made[-1]

    yield copy_numbers
    for copying in made:
        copying.close()


def storm(copying: Copying, *, kills: int, least_seconds: float, seed: int) -> None:
    """Two to four instances; every few seconds one is killed, or stopped, or one more is started."""
    choice = random.Random(seed)
    copying.prepare(per_second=500)
    running = [copying.launch(), copying.launch()]
    begun = time.monotonic()
    killed = stopped = 0
    while killed < kills or time.monotonic() - begun < least_seconds:
        time.sleep(choice.uniform(0.5, 4))
        if len(running) >= 4 or (len(running) > 2 and choice.random() < 0.5):
            instance = running.pop(choice.randrange(len(running)))
            if choice.random() < 0.75:
                instance.kill()
                killed += 1
            else:
                instance.wait_until_started()
                instance.stop()
                stopped += 1
        else:
            running.append(copying.launch())
    seconds = time.monotonic() - begun
    count = copying.expect_all_once()
    for instance in running:
        instance.wait_until_started()
        instance.stop()
    print(
        f"\n{seconds:.0f} s, {killed} killed, {stopped} stopped, {len(copying.instances)} started: {count} records once"
    )


def test_instances_come_and_go(kafka_server: KafkaServer, mysql_server: MySQLServer, copy_numbers: CopyNumbers) -> None:
    storm(copy_numbers(kafka_server, mysql_server, 6), kills=3, least_seconds=0, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_instances_come_and_go_for_long(
    kafka_server: KafkaServer, mysql_server: MySQLServer, copy_numbers: CopyNumbers
) -> None:
    storm(copy_numbers(kafka_server, mysql_server, 8), kills=30, least_seconds=120, seed=2)


def outages(copying: Copying, times: int, *, seed: int) -> None:
    """One instance, and each server is stopped and started again while it works."""
    choice = random.Random(seed)
    copying.prepare(per_second=300)
    instance = copying.launch()
    instance.wait_until_started()
    for _ in range(times):
        # Kafka is stopped, not killed: one node alone may forget to end a transaction that was committed just before.
        # (MySQL is killed: what was committed is there.)
        for stop, start in ((copying.kafka.stop, copying.kafka.start), (copying.mysql.kill, copying.mysql.start)):
            time.sleep(choice.uniform(0.2, 2))
            stop()
            time.sleep(choice.uniform(0.2, 2))
            start()
    count = copying.expect_all_once(seconds=180)
    instance.stop()
    print(f"\nboth servers away {times} times: {count} records once")


def test_servers_go_and_come_back(
    start_kafka_server: StartKafkaServer, start_mysql_server: StartMySQLServer, copy_numbers: CopyNumbers
) -> None:
    outages(copy_numbers(start_kafka_server(), start_mysql_server(), 3), 1, seed=3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_servers_go_and_come_back_five_times(
    start_kafka_server: StartKafkaServer, start_mysql_server: StartMySQLServer, copy_numbers: CopyNumbers
) -> None:
    outages(copy_numbers(start_kafka_server(), start_mysql_server(), 3), 5, seed=4)


def kills(copying: Copying, times: int, *, seed: int, wait_seconds: float) -> None:
    """One instance at a time, killed at a random moment after it has started."""
    choice = random.Random(seed)
    copying.prepare(per_second=300)
    for _ in range(times):
        instance = copying.launch()
        instance.wait_until_started()
        time.sleep(choice.uniform(0, wait_seconds))
        instance.kill()
    last = copying.launch()
    last.wait_until_started()
    count = copying.expect_all_once(seconds=240)
    last.stop()
    print(f"\n{times} killed: {count} records once")


@pytest.mark.spark
def test_spark_killed(
    kafka_server: KafkaServer, mysql_server: MySQLServer, copy_numbers: CopyNumbers, tmp_path: Path
) -> None:
    run = {"checkpoint": str(tmp_path / "checkpoint"), "master": "local[2]"}
    kills(copy_numbers(kafka_server, mysql_server, 3, backend="spark", run=run), 1, seed=5, wait_seconds=8)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_spark_killed_thirty_times(
    kafka_server: KafkaServer, mysql_server: MySQLServer, copy_numbers: CopyNumbers, tmp_path: Path
) -> None:
    run = {"checkpoint": str(tmp_path / "checkpoint"), "master": "local[2]"}
    kills(copy_numbers(kafka_server, mysql_server, 3, backend="spark", run=run), 30, seed=6, wait_seconds=8)
