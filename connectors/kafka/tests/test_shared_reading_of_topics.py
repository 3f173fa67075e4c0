"""Jobs of one process that read topics of a real broker together: each row once for each job, fetched and decoded once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemoryTransactionalSink
from headrace_light.shared_reading.hub import hubs
from kafka_world import KafkaWorld

from tests.eventually import eventually

pytestmark = pytest.mark.servers
SCHEMA = {"n": "int64", "t": "string"}


def test_jobs_start_stop_and_fail_while_others_read(world: KafkaWorld, topic: str, driver: str, tmp_path: Path) -> None:
    world.create_topic(topic, 2)
    written = 0
    sinks = [MemoryTransactionalSink(hr.SinkSettings()) for _ in range(4)]

    def write(count: int) -> None:
        nonlocal written
        for partition in range(2):
            numbers = range(written + partition, written + count, 2)
            world.write(topic, [json.dumps({"n": n, "t": f"text {n}"}).encode() for n in numbers], partition=partition)
        written += count

    def start(number: int, *, shared: bool = True) -> hr.JobHandle:
        stream = hr.stream("teams", f"team-{number}", functions={"fails": fails})
        read = stream.from_kafka(
            topic, servers=world.servers, driver=driver, group=f"{topic}-{number}", format="json", schema=SCHEMA
        )
        options: dict[str, Any] = {"shared_reading": shared, "checkpoint_interval": "20 ms", "idle_wait_max": "20 ms"}
        made = read.where("NOT fails(n)" if number == 3 else "n >= 0").select("n").to(sinks[number])
        return made.start("light", checkpoint=tmp_path / str(number), **options)

    failing = [False]

    @hr.udf
    def fails(n: int) -> bool:
        if failing[0]:
            raise hr.JobError("a test lets it fail")
        return False

    def arrive(*numbers: int) -> None:
        for number in numbers:
            eventually(lambda: rows(sinks[number]) == list(range(written)), f"all rows of {number}")  # noqa: B023

    write(100)
    handles = {number: start(number) for number in (0, 1, 3)}
    arrive(0, 1, 3)
    handles[2] = start(2)
    arrive(2)
    polls = hubs()[0].figures()[0]
    write(1_000)
    arrive(0, 1, 2, 3)
    [hub] = hubs()
    polls, batches = hub.figures()[0] - polls, hub.figures()[1]
    assert 0 < polls < 1_000
    assert batches < 2 * hub.figures()[0]
    handles.pop(1).stop()
    failing[0] = True
    write(100)
    with pytest.raises(hr.JobFailedError):
        handles.pop(3).wait()
    arrive(0, 2)
    failing[0] = False
    write(50)
    handles[1], handles[3] = start(1), start(3)
    arrive(0, 1, 2, 3)
    for handle in handles.values():
        handle.stop()
    assert hubs() == []
    write(50)
    with start(0, shared=False):  # a member of its group goes on where the job has committed
        arrive(0)


def rows(sink: MemoryTransactionalSink) -> list[int]:
    return sorted(row["n"] for row in sink.rows)
