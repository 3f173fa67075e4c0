"""A table that comes as changes through Kafka, followed by a job that is killed.

What is stored is the table: in MySQL, in Elasticsearch, and as changes in a topic. The short versions run with the other tests that
need servers, the ones marked ``slow`` by hand (``-s`` shows their figures).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.changes_world import Body, Following, debezium, upsert
from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer

pytestmark = pytest.mark.timeout(900)
Follow = Callable[..., Following]
#: Options of the format, the bodies, and how often changes come again.
WAYS: dict[str, tuple[dict[str, Any], Body, float]] = {
    "debezium": ({"format": "debezium-json"}, debezium, 0.0),
    "debezium-again": ({"format": "debezium-json", "repeats": True}, debezium, 0.3),
    "upsert": ({"format": "upsert", "value_format": "json", "key_format": "raw"}, upsert, 0.3),
}
#: Where an instance kills itself, and at which passing.
PLACES = (
    "sink.after_insert:3",
    "checkpoint.after_flush:2",
    "shard.after_save:2",
    "lane.after_process:4",
    "checkpoint.after_save:2",
    "sink.before_insert:3",
    "reader.after_poll:4",
)


@pytest.fixture
def follow(fresh_name: Callable[[str], str]) -> Iterator[Follow]:
    """Make what follows a table; it ends with the test."""
    made: list[Following] = []

    def follow(
        kafka: KafkaServer, mysql: MySQLServer, elastic: ElasticsearchServer | None, options: dict[str, Any]
    ) -> Following:
        made.append(Following(kafka, mysql, elastic, fresh_name("changes"), options))
        return made[-1]

    yield follow
    for following in made:
        following.close()


def killed(following: Following, way: str, kills: int, *, seed: int, checkpoint: Path) -> None:
    """Kill the job at a named place and at random moments, in turn; then let it follow to the end."""
    choice = random.Random(seed)
    _, body, repeats = WAYS[way]
    following.prepare(body, repeats=repeats, seed=seed)
    for number in range(kills):
        at_place = number % 2 == 0
        place = PLACES[number // 2 % len(PLACES)] if at_place else ""
        instance = following.launch(faults=place, checkpoint=str(checkpoint))
        if at_place:
            instance.process.wait(120)
        else:
            instance.wait_until_started()
            time.sleep(choice.uniform(0.1, 2))
            instance.kill()
        assert instance.process.returncode != 0, instance.printed
    last = following.launch(checkpoint=str(checkpoint))
    last.wait_until_started()
    figures = following.expect_all()
    last.stop()
    print(f"\n{way}: {kills} kills, {figures}")


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_job_follows_a_table(
    way: str, kafka_server: KafkaServer, mysql_server: MySQLServer, elasticsearch_server: ElasticsearchServer, follow: Follow,
    tmp_path: Path,
) -> None:  # fmt: skip
    following = follow(kafka_server, mysql_server, elasticsearch_server, WAYS[way][0])
    killed(following, way, 4, seed=len(way), checkpoint=tmp_path / "checkpoint")


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_is_killed_often_follows_a_table(
    way: str, kafka_server: KafkaServer, mysql_server: MySQLServer, elasticsearch_server: ElasticsearchServer, follow: Follow,
    tmp_path: Path,
) -> None:  # fmt: skip
    following = follow(kafka_server, mysql_server, elasticsearch_server, WAYS[way][0])
    killed(following, way, 30, seed=100 + len(way), checkpoint=tmp_path / "checkpoint")


@pytest.mark.spark
def test_spark_follows_a_table(
    kafka_server: KafkaServer,
    mysql_server: MySQLServer,
    elasticsearch_server: ElasticsearchServer,
    follow: Follow,
    tmp_path: Path,
) -> None:
    following = follow(kafka_server, mysql_server, elasticsearch_server, WAYS["debezium-again"][0])
    following.prepare(debezium, repeats=0.3, seed=9)
    for last in (False, True):
        instance = following.launch(backend="spark", checkpoint=str(tmp_path / "checkpoint"))
        instance.wait_until_started()
        if not last:
            time.sleep(12)  # some micro-batches, and one under way
            instance.kill()
    print(f"\nSpark: {following.expect_all(seconds=240)}")
    instance.stop()
