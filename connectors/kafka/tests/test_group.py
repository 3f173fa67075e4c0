"""Instances of a job as members of a consumer group, on the light backend."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import JobFailedError, PlanError
from headrace.interfaces.backend import JobHandle, JobState
from headrace.testing import MemorySink
from instances import CountInto
from kafka_world import KafkaWorld

from tests.eventually import eventually

Start = Callable[..., JobHandle]


def numbered(first: int, count: int) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in range(first, first + count)]


@pytest.fixture
def start(world: KafkaWorld, topic: str, driver: str) -> Iterator[Start]:
    """Start an instance of the job that reads the topic; all are stopped when the test is over."""
    handles: list[JobHandle] = []

    def start(
        sink: MemorySink,
        *,
        run: dict[str, Any] | None = None,
        build: Callable[[hr.Stream], hr.Stream] = lambda stream: stream,
        **options: Any,
    ) -> JobHandle:
        given = {"servers": world.servers, "driver": driver, "session_timeout": "6 s", "metadata_interval": "1 s"}
        stream = hr.stream("group", topic).from_kafka(
            format="json", schema={"n": "int64"}, **{"topic": topic, **given, **options}
        )
        handles.append(build(stream).to(sink).start("light", **{"checkpoint_interval": "200 ms", **(run or {})}))
        return handles[-1]

    yield start
    for handle in handles:
        handle.stop()


def memory() -> MemorySink:
    return MemorySink(hr.SinkSettings(flush_interval=timedelta(milliseconds=50)))


def numbers(*sinks: MemorySink) -> list[int]:
    return sorted(row["n"] for sink in sinks for row in sink.rows)


def read_by(handle: JobHandle) -> set[str]:
    """Return the queues that an instance reads now."""
    return {queue.name for queue in list(handle._engine._runs)}  # type: ignore[attr-defined]


def test_instances_share_the_partitions_and_take_over(world: KafkaWorld, topic: str, start: Start) -> None:
    world.create_topic(topic, 4)
    for partition in range(4):
        world.write(topic, numbered(partition * 100, 10), partition=partition)
    everything = {f"{topic}-{partition}" for partition in range(4)}
    first_sink, second_sink = memory(), memory()
    first = start(first_sink)
    eventually(lambda: len(first_sink.rows) == 40, "the first instance reads everything")
    second = start(second_sink)
    eventually(lambda: len(read_by(first)) == len(read_by(second)) == 2, "each has two partitions")
    assert read_by(first) | read_by(second) == everything
    for partition in range(4):
        world.write(topic, numbered(partition * 100 + 10, 10), partition=partition)
    eventually(lambda: len(first_sink.rows) + len(second_sink.rows) == 80, "both read on")
    assert len(second_sink.rows) == 20
    first.stop()
    eventually(lambda: read_by(second) == everything, "the second takes over")
    for partition in range(4):
        world.write(topic, numbered(partition * 100 + 20, 10), partition=partition)
    eventually(lambda: len(first_sink.rows) + len(second_sink.rows) == 120, "the second reads everything")
    second.stop()
    assert numbers(first_sink, second_sink) == [p * 100 + n for p in range(4) for n in range(30)]
    assert first.wait().state is second.wait().state is JobState.STOPPED
    assert world.committed(f"headrace-group.{topic}-{topic}", topic) == {0: 30, 1: 30, 2: 30, 3: 30}


def test_two_sources_of_a_job_and_another_job_read_all_of_a_topic_each(
    world: KafkaWorld, topic: str, driver: str, start: Start
) -> None:
    """They are members of groups of their own: in one group each would get a part of the partitions."""
    world.create_topic(topic, 2)
    for partition in range(2):
        world.write(topic, numbered(partition * 100, 10), partition=partition)
    sinks = [memory() for _ in range(3)]
    pipe = hr.stream("twice", topic)
    given: dict[str, Any] = {"servers": world.servers, "driver": driver, "format": "json", "schema": {"n": "int64"}}
    job = hr.job(*(pipe.from_kafka(topic, **given).to(sink) for sink in sinks[:2]))
    with job.start("light", checkpoint_interval="200 ms"):
        start(sinks[2])
        for sink in sinks:
            eventually(lambda: len(sink.rows) == 20, "a source reads everything")  # noqa: B023
        groups = [f"headrace-twice.{topic}{number}-{topic}" for number in ("", "-2")]
        for group in [*groups, f"headrace-group.{topic}-{topic}"]:
            eventually(lambda: world.committed(group, topic) == {0: 10, 1: 10}, group)  # noqa: B023
    same = hr.job(*(pipe.from_kafka(topic, group="g", **given).to(memory()) for _ in range(2)))
    with pytest.raises(
        PlanError, match=r"'kafka' and 'kafka-2' are members of the same group 'g' of Kafka at .* only a part"
    ):
        same.start("light")
    assert same.run("light").records_read == 40, "a bounded run joins no group"


@pytest.mark.parametrize("keyed", [False, True], ids=["without key", "shared shards"])
def test_many_graceful_joins_and_leaves(
    world: KafkaWorld, topic: str, start: Start, count_into: CountInto, keyed: bool
) -> None:
    """A rebalance comes while records wait to be taken: no instance fails, and every number comes once."""

    def build(stream: hr.Stream) -> hr.Stream:
        chosen = stream.where("n % 2 = 0").select(n="n / 2")
        return chosen.key_by("n").distinct() if keyed else chosen

    world.create_topic(topic, 4)
    written = count_into(4, per_second=2000)
    run = {"reliability": "high", "shards": 4} if keyed else {}
    sinks = [memory()]
    handles = [start(sinks[0], run=run, build=build)]
    for _ in range(3):
        sinks.append(memory())
        handles.append(start(sinks[-1], run=run, build=build))
        eventually(lambda: bool(handles[-1].status().shards if keyed else read_by(handles[-1])), "it has a share")
        handles.pop(0).stop()
        assert all(handle.status().state is JobState.RUNNING for handle in handles), handles[0].status().error
    count = written.stop()
    eventually(lambda: len(set(numbers(*sinks))) == (count + 1) // 2, "every even number")
    assert numbers(*sinks) == list(range((count + 1) // 2))


def test_offsets_are_committed_by_checkpoints_only(world: KafkaWorld, topic: str, start: Start) -> None:
    world.create_topic(topic)
    world.write(topic, numbered(0, 10))
    sink = memory()
    handle = start(sink, run={"checkpoint_interval": "1 h"})
    eventually(lambda: handle.status().checkpoint_id == 1, "where it begins is remembered")
    assert world.committed(f"headrace-group.{topic}-{topic}", topic).get(0, 0) <= 10
    world.write(topic, numbered(10, 10))
    eventually(lambda: len(sink.rows) == 20, "all is stored")
    assert world.committed(f"headrace-group.{topic}-{topic}", topic).get(0, 0) <= 10
    handle.stop()
    assert world.committed(f"headrace-group.{topic}-{topic}", topic) == {0: 20}


def test_latest_begins_where_it_began_before(world: KafkaWorld, topic: str, start: Start) -> None:
    world.create_topic(topic)
    world.write(topic, numbered(0, 5))
    sink = memory()
    handle = start(sink, start="latest")
    eventually(
        lambda: world.committed(f"headrace-group.{topic}-{topic}", topic) == {0: 5},
        "the beginning is committed at once",
    )
    handle.stop()
    world.write(topic, numbered(5, 5))
    again = start(sink, start="latest")
    eventually(lambda: numbers(sink) == [5, 6, 7, 8, 9], "what came while it was down")
    again.stop()


def test_new_partitions_are_read_from_their_beginning(world: KafkaWorld, topic: str, start: Start) -> None:
    world.create_topic(topic)
    world.write(topic, numbered(0, 5))
    sink = memory()
    handle = start(sink, start="latest")
    eventually(lambda: read_by(handle) == {f"{topic}-0"}, "it reads")
    world.add_partitions(topic, 2)
    world.write(topic, numbered(100, 5), partition=1)
    world.write(topic, numbered(5, 1), partition=0)
    eventually(lambda: numbers(sink) == [5, 100, 101, 102, 103, 104], "the new partition is read as a whole")


def test_partitions_that_came_while_no_instance_ran_are_read_from_their_beginning(
    world: KafkaWorld, topic: str, start: Start
) -> None:
    """Also by an instance that finds them when it starts: what is committed tells where the group began."""
    world.create_topic(topic, 2)
    world.write(topic, numbered(0, 5), partition=0)
    sink = memory()
    handle = start(sink, start="latest")
    eventually(lambda: world.committed(f"headrace-group.{topic}-{topic}", topic) == {0: 5, 1: 0}, "the group begins")
    handle.stop()
    world.add_partitions(topic, 3)
    world.write(topic, numbered(100, 5), partition=2)
    world.write(topic, numbered(5, 1), partition=0)
    again = start(sink, start="latest")
    eventually(lambda: numbers(sink) == [5, 100, 101, 102, 103, 104], "the new partition is read as a whole")
    again.stop()


def test_a_topic_that_a_group_reads_for_the_first_time_begins_at_the_latest(
    world: KafkaWorld, topic: str, start: Start
) -> None:
    other = f"{topic}-other"
    world.create_topic(topic)
    world.create_topic(other)
    world.write(other, numbered(0, 5))
    sink = memory()
    handle = start(sink, start="latest", group=topic)
    eventually(lambda: world.committed(topic, topic) == {0: 0}, "the group begins")
    handle.stop()
    again = start(sink, start="latest", group=topic, topic=f"{topic},{other}")
    eventually(lambda: world.committed(topic, other) == {0: 5}, "it begins in the other topic")
    world.write(other, numbered(5, 1))
    world.write(topic, numbered(10, 1))
    eventually(lambda: numbers(sink) == [5, 10], "both are read")
    again.stop()


def test_an_instance_with_the_other_driver_is_refused(world: KafkaWorld, topic: str, start: Start, driver: str) -> None:
    world.create_topic(topic)
    world.write(topic, numbered(0, 1))
    sink = memory()
    first = start(sink)
    eventually(lambda: numbers(sink) == [0], "the first instance reads")
    second = start(memory(), driver="kafka-python" if driver == "confluent" else "confluent")
    with pytest.raises(JobFailedError, match="all instances need the same one"):
        second.wait(timedelta(seconds=120))
    assert first.status().state is JobState.RUNNING


def test_of_two_instances_with_one_name_the_older_ends(world: KafkaWorld, topic: str, start: Start) -> None:
    world.create_topic(topic, 2)
    sinks = [memory(), memory()]
    first = start(sinks[0], instance_id="a")
    eventually(lambda: len(read_by(first)) == 2, "the first instance reads")
    second = start(sinks[1], instance_id="a")
    with pytest.raises(JobFailedError, match="another instance has joined with the instance_id 'a'") as caught:
        first.wait(timedelta(seconds=20))
    assert "instance_id of its own" in str(caught.value)
    world.write(topic, numbered(0, 5))
    eventually(lambda: numbers(sinks[1]) == [0, 1, 2, 3, 4], "the second instance reads")
    assert second.status().state is JobState.RUNNING
