"""Kafka to Kafka on Spark: each record once for readers with read_committed, also when the job is killed and goes on."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from instances import CountInto, Instance, expect_copied_once
from kafka_world import KafkaWorld

from tests.eventually import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def bodies(numbers: range) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in numbers]


def read(world: KafkaWorld, topic: str) -> Counter[int]:
    return Counter(json.loads(record.value or b"")["n"] for record in world.read(topic))


def test_bounded_runs_go_on_where_they_were(
    world: KafkaWorld, topic: str, target: str, driver: str, tmp_path: Path
) -> None:
    world.create_topic(topic, 3)
    world.create_topic(target, 2)
    for partition in range(3):
        world.write(topic, bodies(range(partition * 1000, partition * 1000 + 400)), partition=partition)
    world.write_transaction(topic, bodies(range(5000, 5010)), partition=0, commit=False)
    world.write_transaction(topic, bodies(range(6000, 6010)), partition=1)
    given = {"servers": world.servers, "driver": driver}
    job = (
        hr.stream("spark", topic)
        .from_kafka(topic, format="json", schema={"n": "int64"}, **given)
        .where("n % 2 = 0")
        .to_kafka(target, key="n", delivery="exactly_once", **given)
    )
    options: dict[str, Any] = {
        "checkpoint": str(tmp_path / "checkpoint"), "max_batch_records": 100, "show_progress": False,
        "master": "local[2]",
    }  # fmt: skip
    report = job.run("spark", **options)
    first = [*(1000 * p + n for p in range(3) for n in range(0, 400, 2)), *range(6000, 6010, 2)]
    assert (report.records_read, report.dead_letters) == (1210, 0)
    assert read(world, target) == Counter(first)
    world.write(topic, bodies(range(7000, 7100)), partition=2)
    report = job.run("spark", **options)
    assert (report.records_read, dict(report.rows_written)) == (100, {"to_kafka": 50})
    assert read(world, target) == Counter([*first, *range(7000, 7100, 2)])


def test_without_its_checkpoint_it_reads_again_and_writes_nothing(
    world: KafkaWorld, topic: str, target: str, tmp_path: Path
) -> None:
    """What is stored is known by the sink's own positions: this is what makes tasks that Spark repeats harmless."""
    world.create_topic(topic, 2)
    world.create_topic(target)
    for partition in range(2):
        world.write(topic, bodies(range(partition * 100, partition * 100 + 50)), partition=partition)

    def run(number: int) -> hr.JobReport:
        given = {"servers": world.servers}
        stream = hr.stream("spark", topic).from_kafka(
            topic, format="json", schema={"n": "int64"}, group=f"{topic}-{number}", **given
        )
        job = stream.to_kafka(target, delivery="exactly_once", **given)
        checkpoint = str(tmp_path / f"checkpoint-{number}")
        report: hr.JobReport = job.run("spark", checkpoint=checkpoint, show_progress=False, master="local[2]")
        return report

    assert dict(run(1).rows_written) == {"to_kafka": 100}
    again = run(2)
    assert (again.records_read, again.rows_skipped, dict(again.rows_written)) == (100, 100, {"to_kafka": 0})
    assert sum(read(world, target).values()) == 100


def test_killed_while_records_come(
    world: KafkaWorld, topic: str, target: str, count_into: CountInto, tmp_path: Path
) -> None:
    world.create_topic(topic, 3)
    world.create_topic(target, 2)
    options = {
        "servers": world.servers, "driver": "auto", "source": topic, "target": target, "backend": "spark",
        "run": {"checkpoint": str(tmp_path / "checkpoint"), "master": "local[2]"},
    }  # fmt: skip
    numbers = count_into(3, per_second=1000)
    for _ in range(2):
        with contextlib.closing(Instance(options)) as instance:
            instance.wait_until_started()
            seen = len(world.read(target))
            eventually(lambda: len(world.read(target)) > seen, "records arrive")  # noqa: B023
            instance.kill()
    count = numbers.stop()
    with contextlib.closing(Instance(options)) as last:
        last.wait_until_started()
        expect_copied_once(world, target, count, seconds=240)
        last.stop()
