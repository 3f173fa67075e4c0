"""Jobs between topics of a real broker: instances that share queues, die, and lose their broker."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import DataError, JobFailedError, PlanError
from headrace.testing import MemorySink
from headrace_rocketmq import Client, Message

from tests.eventually import eventually
from tests.servers.fixtures import StartRocketMQServer
from tests.servers.rocketmq import RocketMQOptions, RocketMQServer

from .copy_job import copy
from .instances import Instances, count_in, messages, numbers_in
from .reading import settle

pytestmark = pytest.mark.servers
PATIENCE = timedelta(seconds=60)


@pytest.fixture
def topics(client: Client, fresh_name: Callable[[str], str]) -> tuple[str, str]:
    """An input and an output topic, four queues each."""
    names = fresh_name("in"), fresh_name("out")
    for name in names:
        client.create_topic(name, 4)
    return names


@pytest.fixture
def instances(rocketmq_server: RocketMQServer, topics: tuple[str, str], consumer_group: str) -> Iterator[Instances]:
    """Instances of one group."""
    made = Instances(name_servers=rocketmq_server.name_server, source=topics[0], target=topics[1], group=consumer_group)
    yield made
    made.end()


def test_a_bounded_job_copies_all_and_commits(
    client: Client, rocketmq_server: RocketMQServer, topics: tuple[str, str], consumer_group: str
) -> None:
    source, target = topics
    client.send_many(source, messages(0, 2000))
    eventually(lambda: count_in(client, source) == 2000, "all is there")
    job = copy(rocketmq_server.name_server, source, target, group=consumer_group)
    report = job.run("light")
    assert report.records_read == 2000
    assert numbers_in(client, target) == Counter(range(2000))
    queues = client.queues(source)
    assert client.committed_offsets(consumer_group, queues) == client.latest_offsets(queues)
    client.send_many(source, messages(2000, 100))
    eventually(lambda: count_in(client, source) == 2100, "all is there")
    report = copy(rocketmq_server.name_server, source, target, group=consumer_group).run("light")
    assert report.records_read == 100


def test_two_sources_of_a_job_and_another_job_read_all_of_a_topic_each(
    client: Client, rocketmq_server: RocketMQServer, topics: tuple[str, str]
) -> None:
    """They have groups of their own: in one group each would get a part of the queues, or what another has not read."""
    source, _ = topics
    client.send_many(source, messages(0, 200))
    eventually(lambda: count_in(client, source) == 200, "all is there")
    given: dict[str, Any] = {
        "name_servers": rocketmq_server.name_server,
        "format": "json",
        "schema": {"number": "int64"},
    }
    sinks = [MemorySink(hr.SinkSettings(flush_interval=timedelta(milliseconds=50))) for _ in range(3)]
    pipe = hr.stream("twice", "one")
    job = hr.job(*(pipe.from_rocketmq(source, **given).to(sink) for sink in sinks[:2]))
    other = hr.stream("twice", "other").from_rocketmq(source, **given).to(sinks[2])
    with job.start("light"), other.start("light"):
        for sink in sinks:
            eventually(lambda: len(sink.rows) == 200, "a source reads everything")  # noqa: B023
    assert all(sorted(row["number"] for row in sink.rows) == list(range(200)) for sink in sinks)
    same = hr.job(*(pipe.from_rocketmq(source, group="g", **given).to(MemorySink()) for _ in range(2)))
    with pytest.raises(PlanError, match=r"are members of the same group 'g' of RocketMQ at .* only a part"):
        same.start("light")


def test_a_plan_of_another_job_leaves_a_running_one_in_its_group(
    client: Client, rocketmq_server: RocketMQServer, topics: tuple[str, str]
) -> None:
    source, _ = topics
    given: dict[str, Any] = {
        "name_servers": rocketmq_server.name_server,
        "format": "json",
        "schema": {"number": "int64"},
    }
    stream = hr.stream("planned", "first").from_rocketmq(source, **given)
    read = hr.stream("planned", "other").from_rocketmq(source, **given)
    sink = MemorySink(hr.SinkSettings(flush_interval=timedelta(milliseconds=50)))
    queues = client.queues(source)
    with stream.to(sink).start("light", checkpoint_interval="100 ms") as handle:
        client.send_many(source, messages(0, 200))
        eventually(lambda: len(sink.rows) == 200, "all is read")
        running = handle._engine._plan.sources["rocketmq"].source  # type: ignore[attr-defined]
        group = running.group_name
        read.union(stream).to(MemorySink()).plan()
        assert running.reader_name == "planned.other-2"
        client.send_many(source, messages(200, 200))
        eventually(lambda: len(sink.rows) == 400, "all is read")
        eventually(lambda: client.committed_offsets(group, queues) == client.latest_offsets(queues), "and committed")


def test_a_bounded_job_on_an_empty_topic_ends(
    rocketmq_server: RocketMQServer, topics: tuple[str, str], consumer_group: str
) -> None:
    report = copy(rocketmq_server.name_server, *topics, group=consumer_group).run("light")
    assert report.records_read == 0


def test_the_same_key_comes_to_the_same_queue_in_order(
    client: Client, rocketmq_server: RocketMQServer, topics: tuple[str, str], consumer_group: str
) -> None:
    source, target = topics
    client.send_many(source, messages(0, 500))
    eventually(lambda: count_in(client, source) == 500, "all is there")
    copy(rocketmq_server.name_server, source, target, group=consumer_group).run("light")
    reader = client.reader(dict.fromkeys(client.queues(target), 0))
    found = 0
    while found < 500:
        for batch in reader.poll(1000, timedelta(seconds=5)):
            found += len(batch)
            for body, key in zip(batch.bodies, batch.property_column("__SHARDINGKEY"), strict=True):
                number = json.loads(body)["number"]
                assert key == str(number)
                assert client.queue_for_key(target, str(number)) == batch.queue


def test_a_job_goes_on_when_an_instance_is_killed(
    client: Client, topics: tuple[str, str], instances: Instances
) -> None:
    """Two instances share four queues; one is killed in the middle; the other ends the work. Nothing is lost."""
    source, target = topics
    client.send_many(source, messages(0, 500))
    first, second = instances.start(), instances.start()
    eventually(lambda: count_in(client, target) >= 500, "the first part is copied")
    client.send_many(source, messages(500, 3000))
    eventually(lambda: count_in(client, target) >= 600, "the second part has begun")
    first.send_signal(signal.SIGKILL)
    client.send_many(source, messages(3500, 500))
    eventually(lambda: set(numbers_in(client, target)) == set(range(4000)), "all is copied")
    assert second.poll() is None


def test_an_instance_that_leaves_repeats_nothing(client: Client, topics: tuple[str, str], instances: Instances) -> None:
    source, target = topics
    client.send_many(source, messages(0, 500))
    first = instances.start()
    eventually(lambda: count_in(client, target) >= 500, "the first part is copied")
    assert first.stdin is not None
    first.stdin.close()
    first.stdin = None
    assert first.wait(30) == 0
    instances.start()
    client.send_many(source, messages(500, 500))
    eventually(lambda: set(numbers_in(client, target)) == set(range(1000)), "all is copied")
    assert numbers_in(client, target) == Counter(range(1000))


def test_instances_without_a_queue_stand_by(
    client: Client, fresh_name: Callable[[str], str], instances: Instances
) -> None:
    source = instances.arguments["source"] = fresh_name("one")
    client.create_topic(source, 1)
    target = instances.arguments["target"]
    first, second = instances.start(), instances.start()
    client.send_many(source, messages(0, 100))
    eventually(lambda: count_in(client, target) >= 100, "one of them copies")
    for victim, last in ((first, 200), (instances.start(), 300)):  # whoever had the queue, the others take over
        victim.send_signal(signal.SIGKILL)
        client.send_many(source, messages(last - 100, 100))
        eventually(lambda: set(numbers_in(client, target)) == set(range(last)), "others go on")  # noqa: B023
    assert second.poll() is None


def test_latest_is_one_moment_for_all_queues(
    client: Client, topics: tuple[str, str], rocketmq_server: RocketMQServer, consumer_group: str
) -> None:
    """A group that begins at the latest message remembers where, also for queues that nobody has read from yet."""
    source, target = topics
    queues = client.queues(source)
    client.send_many(source, messages(0, 100))
    settle(client)
    start = client.latest_offsets(queues)
    job = copy(rocketmq_server.name_server, source, target, group=consumer_group, start="latest")
    with job.start("light", checkpoint_interval="10 min"):
        eventually(lambda: client.committed_offsets(consumer_group, queues) == start, "where it begins is committed")
    client.send_many(source, messages(100, 100))  # while there is no instance
    with copy(rocketmq_server.name_server, source, target, group=consumer_group, start="latest").start("light"):
        eventually(lambda: set(numbers_in(client, target)) == set(range(100, 200)), "all that came since is copied")


@pytest.mark.parametrize("options", [{"allocation": "consistent_hash"}, {"exclusive": True}], ids=str)
def test_other_ways_to_share(
    client: Client, topics: tuple[str, str], instances: Instances, options: dict[str, Any]
) -> None:
    source, target = topics
    instances.arguments.update(options)
    for _ in range(2):
        instances.start()
    client.send_many(source, messages(0, 1000))
    eventually(lambda: set(numbers_in(client, target)) == set(range(1000)), "all is copied")


def test_a_broker_that_is_killed_costs_time_only(
    start_rocketmq_server: StartRocketMQServer, fresh_name: Callable[[str], str], consumer_group: str, tmp_path: Path
) -> None:
    server = start_rocketmq_server()
    source, target = fresh_name("in"), fresh_name("out")
    with Client(server.name_server, timeout=PATIENCE) as client:
        for name in (source, target):
            client.create_topic(name, 4)
        client.send_many(source, messages(0, 2000))
        job = copy(server.name_server, source, target, group=consumer_group)
        with job.start("light", checkpoint_interval="300 ms", max_batch_records=100) as handle:
            eventually(lambda: count_in(client, target) >= 100, "it has begun")
            server.kill("broker-0")
            server.start()
            client.send_many(source, messages(2000, 500))
            eventually(lambda: set(numbers_in(client, target)) == set(range(2500)), "all is copied")
            handle.stop(PATIENCE)
            assert handle.wait().dead_letters == 0


def test_rows_written_again_are_read_once(
    client: Client, rocketmq_server: RocketMQServer, topics: tuple[str, str], consumer_group: str, tmp_path: Path
) -> None:
    """A job starts anew from the beginning, twice: its rows are in the topic twice, and a deduplicating reader sees one."""
    source, target = topics
    client.send_many(source, messages(0, 1000))
    eventually(lambda: count_in(client, source) == 1000, "all is there")
    for run in range(2):
        copy(rocketmq_server.name_server, source, target, "idempotent", group=f"{consumer_group}-{run}").run("light")
    assert sum(numbers_in(client, target).values()) == 2000
    plain = copy(rocketmq_server.name_server, target, source, group=f"{consumer_group}-3")
    assert plain.run("light").records_read == 2000
    once = copy(rocketmq_server.name_server, target, source, group=f"{consumer_group}-4", deduplicate=True)
    assert once.run("light").records_read == 1000


@pytest.mark.slow  # a broker looks for old files for the first time a minute after its start
def test_messages_that_retention_took_stop_the_job(
    start_rocketmq_server: StartRocketMQServer, topic: str, consumer_group: str, fresh_name: Callable[[str], str]
) -> None:
    """Old files of the broker's log are removed by request, as at night; a group that has not read them is told."""
    config = {"mappedFileSizeCommitLog": str(1 << 20), "fileReservedTime": "0", "cleanResourceInterval": "500"}
    server = start_rocketmq_server(RocketMQOptions(config=config))
    target = fresh_name("out")
    with Client(server.name_server, timeout=PATIENCE) as client:
        [queue] = client.create_topic(topic, 1)
        client.create_topic(target, 1)
        client.send_many(topic, messages(0, 10))
        eventually(lambda: count_in(client, topic) == 10, "all is there")
        copy(server.name_server, topic, target, group=consumer_group).run("light")
        client.commit_offsets(consumer_group, {queue: 3})
        for _ in range(60):
            client.send(topic, Message(b"x" * 100_000))
        broker = server.brokers["broker-0"]
        eventually(
            lambda: server.request(broker, 329).code == 0 and client.earliest_offsets([queue])[queue] > 3,
            "the broker has removed files",
        )
        error = lost_position(server, topic, target, consumer_group)
        earliest, latest = client.earliest_offsets([queue])[queue], client.latest_offsets([queue])[queue]
    assert error.offset == 3
    assert error.message == (
        f"offset 3 is not in the queue, which holds {earliest} to {latest}: "
        "messages were removed (by retention, or by hand) before they were read"
    )


def test_a_topic_that_was_made_anew_stops_the_job(
    client: Client, rocketmq_server: RocketMQServer, topics: tuple[str, str], consumer_group: str
) -> None:
    source, target = topics
    copy(rocketmq_server.name_server, source, target, group=consumer_group).run("light")
    queue = client.queues(source)[2]
    client.create_group(consumer_group)
    client.commit_offsets(consumer_group, {queue: 7})
    error = lost_position(rocketmq_server, source, target, consumer_group)
    assert error.offset == 7
    assert error.queue is not None
    assert error.queue.endswith(f"/{queue}")
    assert error.message == (
        "offset 7 is not in the queue, which holds 0 to 0: the topic was created again, or the broker has lost messages"
    )
    assert error.hint is not None
    assert "another group" in error.hint


def lost_position(server: RocketMQServer, source: str, target: str, group: str) -> DataError:
    """Run the job; return the error that stops it."""
    with pytest.raises((DataError, JobFailedError)) as caught:
        copy(server.name_server, source, target, group=group).run("light")
    error = caught.value if isinstance(caught.value, DataError) else caught.value.__cause__
    assert isinstance(error, DataError)
    return error
