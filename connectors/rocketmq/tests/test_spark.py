"""RocketMQ to RocketMQ on Spark: each row once for readers that drop repetitions, also when the job is killed and goes on."""

from __future__ import annotations

import secrets
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySink
from headrace_rocketmq import Client

from tests.eventually import eventually
from tests.servers.rocketmq import RocketMQServer

from .copy_job import SCHEMA, copy
from .instances import Instances, count_in, messages
from .reading import settle

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
SPARK: dict[str, Any] = {"show_progress": False, "master": "local[2]"}


@pytest.fixture
def topics(client: Client, fresh_name: Callable[[str], str]) -> tuple[str, str]:
    """An input and an output topic, three queues each."""
    names = fresh_name("in"), fresh_name("out")
    for name in names:
        client.create_topic(name, 3)
    return names


def seen_once(client: Client, server: RocketMQServer, topic: str) -> Counter[int]:
    """How often a reader that drops repetitions sees each number of a topic."""
    settle(client)
    found = MemorySink()
    group = f"{topic}-{secrets.token_hex(4)}"  # a group goes on where it was
    hr.stream("tests", "read").from_rocketmq(
        topic, name_servers=server.name_server, group=group, deduplicate=True, format="json", schema=SCHEMA
    ).to(found).run("light")
    return Counter(row["number"] for row in found.rows)


def test_bounded_runs_go_on_where_they_were(
    client: Client, rocketmq_server: RocketMQServer, topics: tuple[str, str], consumer_group: str, tmp_path: Path
) -> None:
    source, target = topics
    job = copy(rocketmq_server.name_server, source, target, "idempotent", group=consumer_group)
    options = {**SPARK, "checkpoint": str(tmp_path / "checkpoint"), "max_batch_records": 100}
    client.send_many(source, messages(0, 1200))
    settle(client)
    report = job.run("spark", **options)
    assert (report.records_read, report.dead_letters) == (1200, 0)
    client.send_many(source, messages(1200, 100))
    settle(client)
    report = job.run("spark", **options)
    assert (report.records_read, dict(report.rows_written)) == (100, {"to_rocketmq": 100})
    settle(client)
    assert count_in(client, target) == 1300
    assert seen_once(client, rocketmq_server, target) == Counter(range(1300))


def test_rows_written_again_are_read_once(
    client: Client, rocketmq_server: RocketMQServer, topics: tuple[str, str], consumer_group: str, tmp_path: Path
) -> None:
    """Without its checkpoint a job writes everything again, as tasks do that Spark repeats."""
    source, target = topics
    client.send_many(source, messages(0, 500))
    settle(client)
    for run in range(2):
        job = copy(rocketmq_server.name_server, source, target, "idempotent", group=f"{consumer_group}-{run}")
        job.run("spark", **SPARK, checkpoint=str(tmp_path / f"checkpoint-{run}"))
    settle(client)
    assert count_in(client, target) == 1000
    assert seen_once(client, rocketmq_server, target) == Counter(range(500))


def test_killed_while_messages_come(
    client: Client, rocketmq_server: RocketMQServer, topics: tuple[str, str], consumer_group: str, tmp_path: Path
) -> None:
    source, target = topics
    run = {"backend": "spark", "master": "local[2]", "checkpoint": str(tmp_path / "checkpoint")}
    instances = Instances(
        name_servers=rocketmq_server.name_server,
        source=source,
        target=target,
        delivery="idempotent",
        group=consumer_group,
        run=run,
    )
    sent = written = 0
    try:
        for _ in range(2):
            process = instances.start()
            for _ in range(10):
                client.send_many(source, messages(sent, 100))
                sent += 100
            eventually(lambda: count_in(client, target) > written, "rows arrive")  # noqa: B023
            written = count_in(client, target)
            process.send_signal(signal.SIGKILL)
        instances.start()
        eventually(lambda: len(seen_once(client, rocketmq_server, target)) >= sent, "all is copied")
    finally:
        instances.end()
    assert seen_once(client, rocketmq_server, target) == Counter(range(sent))
