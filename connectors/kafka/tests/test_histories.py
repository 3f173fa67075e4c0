"""Generated histories of a topic, read by jobs that stop and go on: what is read is what readers with read_committed see."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySink
from kafka_world import KafkaWorld


class History:
    """Things that happen to a topic, chosen by a seed: plain records, transactions of every fate, new partitions."""

    def __init__(self, world: KafkaWorld, topic: str, seed: int) -> None:
        self._world, self._topic = world, topic
        self.choice = random.Random(seed)
        self._partitions = self.choice.randint(1, 3)
        self._written = 0
        world.create_topic(topic, self._partitions)

    def go_on(self, steps: int) -> None:
        """Let so many things happen."""
        for _ in range(steps):
            partition = self.choice.randrange(self._partitions)
            kind = self.choice.choices(["plain", "committed", "aborted", "partition"], [4, 3, 3, 1])[0]
            if kind == "plain":
                self._world.write(self._topic, self._bodies(), partition=partition)
            elif kind == "partition" and self._partitions < 5:
                self._partitions += 1
                self._world.add_partitions(self._topic, self._partitions)
            else:
                self._world.write_transaction(
                    self._topic, self._bodies(), partition=partition, commit=kind == "committed"
                )

    def committed(self) -> list[tuple[str, int, int]]:
        """Return what readers with read_committed see: (queue, offset, number)."""
        return [
            (f"{self._topic}-{one.partition}", one.offset, json.loads(one.value or b"")["n"])
            for one in self._world.read(self._topic)
        ]

    def _bodies(self) -> list[bytes]:
        count = self.choice.choice([1, 1, 2, 7, 40])
        self._written += count
        return [json.dumps({"n": number}).encode() for number in range(self._written - count, self._written)]


def check(world: KafkaWorld, topic: str, driver: str, seed: int, directory: Path) -> None:
    history = History(world, topic, seed)
    rows: list[dict[str, Any]] = []
    for _ in range(3):
        history.go_on(history.choice.randint(0, 6))
        sink = MemorySink(hr.SinkSettings(flush_interval=timedelta(milliseconds=20)))
        job = (
            hr.stream("history", topic)
            .from_kafka(
                topic,
                servers=world.servers,
                driver=driver,
                format="json",
                schema={"n": "int64"},
                metadata={"queue": "queue", "offset": "offset"},
            )
            .to(sink)
        )
        report = job.run("light", checkpoint=str(directory), max_batch_records=history.choice.choice([1, 3, 1000]))
        assert report.dead_letters == 0
        rows += sink.rows
        found = sorted((row["queue"], row["offset"], row["n"]) for row in rows)
        assert found == history.committed(), f"seed {seed}"


@pytest.mark.parametrize("seed", range(4))
def test_what_is_read(world: KafkaWorld, topic: str, driver: str, seed: int, tmp_path: Path) -> None:
    check(world, topic, driver, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_is_read_in_many_histories(
    world: KafkaWorld, fresh_name: Callable[[str], str], driver: str, tmp_path: Path
) -> None:
    for seed in range(100, 200):
        check(world, fresh_name("history"), driver, seed, tmp_path / str(seed))
