"""Instances that are killed, join and leave, and a server that goes away, from Kafka into Elasticsearch.

In the end the index holds exactly the documents that belong to what is in the topic: none is missing, none is there twice.
The short versions run with the other tests that need servers, the ones marked ``slow`` by hand (``-s`` shows their figures).
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.kafka_elasticsearch_world import Indexing, Instance
from tests.chaos.workers import python_workers
from tests.eventually import eventually
from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.fixtures import StartElasticsearchServer
from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.timeout(900)
IndexNumbers = Callable[[KafkaServer, ElasticsearchServer, int], Indexing]


@pytest.fixture
def index_numbers(fresh_name: Callable[[str], str]) -> Iterator[IndexNumbers]:
    """Make what puts numbers from one server into another; it ends with the test."""
    made: list[Indexing] = []

    def index_numbers(kafka: KafkaServer, server: ElasticsearchServer, partitions: int) -> Indexing:
        made.append(Indexing(kafka, server, fresh_name("chaos"), partitions))
        return made[-1]

    yield index_numbers
    for indexing in made:
        indexing.close()


def outages(indexing: Indexing, times: int, *, seed: int) -> None:
    """One instance; the server is stopped and started again, and killed and started again, while it works."""
    choice = random.Random(seed)
    indexing.prepare(per_second=400)
    instance = indexing.launch()
    instance.wait_until_started()
    for _ in range(times):
        for away in (indexing.server.stop, indexing.server.kill):
            before, deadline = indexing.stored(), time.monotonic() + 120
            while indexing.stored() <= before:
                assert time.monotonic() < deadline, f"nothing more is stored: {instance.printed}"
                time.sleep(0.1)
            time.sleep(choice.uniform(0, 1))
            away()
            time.sleep(choice.uniform(0.2, 2))
            indexing.server.start()
    wanted = indexing.write_no_more()
    indexing.wait_until_stored(wanted)
    instance.stop()
    print(f"\nthe server stopped {times} times, killed {times} times: {indexing.expect(wanted)}")


def test_server_goes_and_comes_back(
    kafka_server: KafkaServer, start_elasticsearch_server: StartElasticsearchServer, index_numbers: IndexNumbers
) -> None:
    outages(index_numbers(kafka_server, start_elasticsearch_server(), 3), 1, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_server_goes_and_comes_back_five_times(
    kafka_server: KafkaServer, start_elasticsearch_server: StartElasticsearchServer, index_numbers: IndexNumbers
) -> None:
    outages(index_numbers(kafka_server, start_elasticsearch_server(), 3), 5, seed=2)


def storm(indexing: Indexing, *, kills: int, least_seconds: float, seed: int) -> None:
    """Two or three instances; every few seconds one is killed, or stopped, or one more is started."""
    choice = random.Random(seed)
    indexing.prepare(per_second=500)
    running = [indexing.launch(), indexing.launch()]
    begun = time.monotonic()
    killed = stopped = 0
    while killed < kills or time.monotonic() - begun < least_seconds:
        time.sleep(choice.uniform(0.5, 4))
        if len(running) < 3:
            running.append(indexing.launch())
            continue
        instance = running.pop(choice.randrange(len(running)))
        if choice.random() < 0.67:
            instance.kill()
            killed += 1
        else:
            instance.wait_until_started()
            instance.stop()
            stopped += 1
    seconds = time.monotonic() - begun
    wanted = indexing.write_no_more()
    indexing.wait_until_stored(wanted)
    for instance in running:
        instance.wait_until_started()
        instance.stop()
    happened = f"{seconds:.0f} s, {len(indexing.instances)} came, {stopped} left, {killed} were killed"
    print(f"\n{happened}: {indexing.expect(wanted)}")


def test_instances_come_and_go(
    kafka_server: KafkaServer, elasticsearch_server: ElasticsearchServer, index_numbers: IndexNumbers
) -> None:
    storm(index_numbers(kafka_server, elasticsearch_server, 6), kills=3, least_seconds=0, seed=3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_instances_come_and_go_for_long(
    kafka_server: KafkaServer, elasticsearch_server: ElasticsearchServer, index_numbers: IndexNumbers
) -> None:
    storm(index_numbers(kafka_server, elasticsearch_server, 8), kills=30, least_seconds=120, seed=4)


#: Where Spark's workers are killed: a place of ``headrace.foundation.faults``, and at which passing.
PLACES = (
    "sink.after_insert:2",
    "checkpoint.after_flush:2",
    "reader.after_poll:3",
    "checkpoint.after_save:1",
    "lane.after_process:2",
    "sink.before_insert:2",
)


def spark_kills(indexing: Indexing, times: int, run: dict[str, Any], *, seed: int) -> None:
    """Kill, in turn, the whole job, a Python worker, and workers at a named place. Then the whole job in any case."""
    choice = random.Random(seed)
    indexing.prepare(per_second=200)
    ways: Counter[str] = Counter()
    ended_by_itself = 0
    for number in range(times):
        way = ("job", "worker", "place")[number % 3]
        place = PLACES[number // 3 % len(PLACES)] if way == "place" else ""
        instance = indexing.launch(backend="spark", faults=place and f"{place}:kill", **run)
        instance.wait_until_started()
        ways[way] += 1
        if way == "worker":
            time.sleep(choice.uniform(0, 4))
            workers = wait_for(lambda: python_workers(instance.process.pid), "Spark has workers", instance)  # noqa: B023
            choice.choice(workers).kill()
        elif way == "place":
            said = f"killed at {place.partition(':')[0]}"
            wait_for(lambda: said in instance.printed, f"kill {number}: a worker is {said}", instance)  # noqa: B023
        time.sleep(choice.uniform(0, 6))
        ended_by_itself += instance.process.poll() is not None
        instance.close()
    last = indexing.launch(backend="spark", **run)
    last.wait_until_started()
    wanted = indexing.write_no_more()
    indexing.wait_until_stored(wanted)
    last.stop()
    happened = f"{times} kills ({', '.join(f'{way}: {count}' for way, count in ways.items())}; "
    happened += f"{ended_by_itself} jobs were ended by the loss of a worker)"
    print(f"\n{happened}: {indexing.expect(wanted)}")


def wait_for(probe: Callable[[], Any], what: str, instance: Instance, seconds: float = 300.0) -> Any:
    return eventually(probe, what, shown=lambda: f"; printed: {instance.printed[-20000:]}", seconds=seconds)


@pytest.mark.spark
def test_spark_killed(
    kafka_server: KafkaServer, elasticsearch_server: ElasticsearchServer, index_numbers: IndexNumbers, tmp_path: Path
) -> None:
    run = {"checkpoint": str(tmp_path / "checkpoint"), "master": "local[2]"}
    spark_kills(index_numbers(kafka_server, elasticsearch_server, 3), 3, run, seed=5)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_spark_killed_thirty_times(
    kafka_server: KafkaServer, elasticsearch_server: ElasticsearchServer, index_numbers: IndexNumbers, tmp_path: Path
) -> None:
    run = {"checkpoint": str(tmp_path / "checkpoint"), "master": "local[2]"}
    spark_kills(index_numbers(kafka_server, elasticsearch_server, 3), 30, run, seed=6)
