"""What jobs read: metadata, where they begin, transactions, tombstones, retention, topics that change."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import ReadPosition
from headrace.foundation.errors import DataError, JobFailedError, OptionError
from headrace.interfaces.backend import JobHandle, JobReport
from headrace.interfaces.source import EARLIEST
from headrace.testing import MemorySink
from headrace_kafka.settings import KafkaSourceSettings
from headrace_kafka.source import KafkaSource
from kafka_world import KafkaWorld

from tests.eventually import eventually


def bodies(*numbers: int) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in numbers]


def memory() -> MemorySink:
    return MemorySink(hr.SinkSettings(flush_interval=timedelta(milliseconds=20)))


class Reading:
    """Jobs that read one topic."""

    def __init__(self, world: KafkaWorld, topic: str, driver: str) -> None:
        self.world, self.topic, self.driver = world, topic, driver
        self.runs = 0
        self.handles: list[JobHandle] = []
        self.report: JobReport | None = None

    def job(self, sink: MemorySink, *, metadata: Mapping[str, str] | None = None, **options: Any) -> hr.Job:
        self.runs += 1
        given: dict[str, Any] = {"topic": self.topic, "servers": self.world.servers, "driver": self.driver}
        given |= {"group": f"{self.topic}-{self.runs}", "format": "json", "schema": {"n": "int64"}}
        given |= options
        if given["format"] != "json":
            del given["schema"]
        return hr.stream("reading", "all").from_kafka(metadata=metadata, **given).to(sink)

    def all(self, **options: Any) -> list[dict[str, Any]]:
        """Run a job to the end of the topic and return its rows."""
        sink = memory()
        self.report = self.job(sink, **options).run("light")
        return sink.rows

    def numbers(self, **options: Any) -> list[int]:
        return [row["n"] for row in self.all(**options)]

    def start(self, sink: MemorySink, *, run: Mapping[str, Any] | None = None, **options: Any) -> JobHandle:
        handle = self.job(sink, metadata_interval="1 s", **options).start("light", **(run or {}))
        self.handles.append(handle)
        return handle


@pytest.fixture
def reading(world: KafkaWorld, topic: str, driver: str) -> Iterator[Reading]:
    made = Reading(world, topic, driver)
    yield made
    for handle in made.handles:
        handle.stop()


def test_key_headers_time_and_place_are_columns(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    before = datetime.now(UTC) - timedelta(seconds=1)
    world.write(topic, bodies(1), keys=[b"k\xff"], headers=[("trace", b"abc"), ("raw", b"\xff"), ("trace", b"last")])
    world.write(topic, bodies(2))
    first, second = reading.all(
        metadata={"key": "key", "about": "headers", "at": "time", "partition": "queue", "place": "offset"}
    )
    assert before < first["at"] < datetime.now(UTC) + timedelta(seconds=1)
    assert json.loads(first["about"]) == {"trace": "last", "raw": "\ufffd"}
    assert [(row["n"], row["key"], row["partition"], row["place"]) for row in (first, second)] == [
        (1, b"k\xff", f"{topic}-0", 0),
        (2, None, f"{topic}-0", 1),
    ]
    assert json.loads(second["about"]) == {}


def test_a_time_to_begin_at(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    moments = []
    for number in range(3):
        moments.append(datetime.now(UTC))
        time.sleep(0.005)
        world.write(topic, bodies(number))
    assert reading.numbers(start=moments[1]) == [1, 2]
    assert reading.numbers(start=moments[0] - timedelta(days=1)) == [0, 1, 2]
    assert reading.numbers(start=datetime.now(UTC) + timedelta(days=1)) == []
    assert reading.numbers(start="latest") == []


def test_offsets_to_begin_at(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic, 3)
    for partition in range(3):
        world.write(topic, bodies(*range(partition * 10, partition * 10 + 4)), partition=partition)
    assert sorted(reading.numbers(offsets={0: 3, f"{topic}-1": 4})) == [3, 20, 21, 22, 23]
    assert sorted(reading.numbers(offsets={"2": 1}, start="latest")) == [21, 22, 23]
    for offsets, text in (
        (
            {0: 5},
            f"offset 5 is not in partition {topic}-0: it holds 0 to 4 [job 'reading.all', plugin 'kafka', option 'offsets']",
        ),
        ({7: 0}, f"there is no partition {topic}-7 [job 'reading.all', plugin 'kafka', option 'offsets']"),
    ):
        with pytest.raises(OptionError) as caught:
            reading.numbers(offsets=offsets)
        assert str(caught.value).startswith(text)
    with pytest.raises(OptionError, match="'other-0' is not a partition of"):
        reading.job(memory(), offsets={"other-0": 0})


def test_progress_of_the_group_comes_before_the_start(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    world.write(topic, bodies(0, 1, 2))
    assert reading.numbers(group=topic) == [0, 1, 2]
    assert world.committed(topic, topic) == {0: 3}
    world.write(topic, bodies(3))
    assert reading.numbers(group=topic, offsets={0: 1}) == [3]
    assert reading.numbers(group=topic) == []


def test_several_topics(reading: Reading, world: KafkaWorld, topic: str) -> None:
    names = [f"{topic}-b", f"{topic}-a.1"]
    for number, name in enumerate(names):
        world.create_topic(name, 2)
        world.write(name, bodies(number * 10), partition=0)
        world.write(name, bodies(number * 10 + 1), partition=1)
    rows = reading.all(topic=", ".join(names), metadata={"from": "queue"})
    assert sorted((row["from"], row["n"]) for row in rows) == sorted(
        [(f"{topic}-b-0", 0), (f"{topic}-b-1", 1), (f"{topic}-a.1-0", 10), (f"{topic}-a.1-1", 11)]
    )


def test_many_records_in_many_partitions(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic, 5)
    for partition in range(5):
        world.write(topic, bodies(*range(partition * 10_000, partition * 10_000 + 4000)), partition=partition)
    rows = reading.all(metadata={"from": "queue"}, max_buffered_bytes="64 KiB")
    assert sorted(row["n"] for row in rows) == [p * 10_000 + n for p in range(5) for n in range(4000)]
    for partition in range(5):
        own = [row["n"] for row in rows if row["from"] == f"{topic}-{partition}"]
        assert own == sorted(own)


# ------------------------------------------------------------------------------------------------------ transactions


def test_markers_at_the_end_do_not_keep_a_bounded_run(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic, 3)
    world.write_transaction(topic, bodies(1, 2), partition=0)
    world.write_transaction(topic, bodies(3), partition=1, commit=False)
    world.write_transaction(topic, bodies(4), partition=1, commit=False)
    eventually(lambda: world.ends(topic) == {0: 3, 1: 4, 2: 0}, "the markers are written")
    assert reading.numbers() == [1, 2]
    assert reading.report is not None
    assert [(queue.offset, queue.lag) for queue in reading.report.queues] == [(3, 0), (4, 0), (0, 0)]
    assert sorted(reading.numbers(isolation="read_uncommitted")) == [1, 2, 3, 4]


def test_markers_in_between(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    for number in range(0, 40, 4):
        world.write_transaction(topic, bodies(number, number + 1))
        world.write_transaction(topic, bodies(-1), commit=False)
        world.write(topic, bodies(number + 2, number + 3))
    assert reading.numbers() == list(range(40))


def test_a_transaction_that_is_open_ends_a_bounded_run(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    world.write(topic, bodies(0))
    producer = world.begin_transaction(topic, bodies(1))
    world.write(topic, bodies(2))
    assert reading.numbers() == [0]
    assert reading.numbers(isolation="read_uncommitted") == [0, 1, 2]
    producer.commit_transaction(30)
    producer.close()
    eventually(lambda: len(world.read(topic)) == 3, "it is committed")
    assert reading.numbers() == [0, 1, 2]


def test_a_running_job_waits_for_the_commit(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    sink = memory()
    reading.start(sink)
    producer = world.begin_transaction(topic, bodies(0))
    world.write(topic, bodies(1))
    producer.commit_transaction(30)
    producer.close()
    eventually(lambda: [row["n"] for row in sink.rows] == [0, 1], "both are read, in order")


def test_positions_pass_the_markers(world: KafkaWorld, topic: str, driver: str) -> None:
    world.create_topic(topic)
    world.write_transaction(topic, [b"a"])
    world.write_transaction(topic, [b"b"], commit=False)
    eventually(lambda: world.ends(topic) == {0: 4}, "the markers are written")
    source = KafkaSource(KafkaSourceSettings.of({"topic": topic, "servers": world.servers, "driver": driver}))
    try:
        reader = source.open(hr.Queue(f"{topic}-0"), EARLIEST)
        raw = eventually(lambda: reader.poll(10, timedelta(milliseconds=100)), "a record")
        assert raw is not None
        assert list(raw.bodies or ()) == [b"a"]
        eventually(lambda: reader.poll(10, timedelta(milliseconds=50)) or reader.position == ReadPosition(4), "the end")
        for begin in (1, 2, 3, 4):
            reader.seek(ReadPosition(begin))
            eventually(
                lambda: reader.poll(10, timedelta(milliseconds=50)) or reader.position == ReadPosition(4), "the end"
            )
    finally:
        source.close()


# --------------------------------------------------------------------------------------- tombstones, retention, topics


def test_tombstones(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    world.write(topic, [b"a", None, b"", b"b", None], keys=[b"1", b"2", b"3", b"4", b"5"])
    shown = {"key": "key", "place": "offset"}
    rows = reading.all(format="raw", metadata=shown)
    assert [(row["place"], row["key"], row["line"]) for row in rows] == [
        (0, b"1", "a"), (1, b"2", ""), (2, b"3", ""), (3, b"4", "b"), (4, b"5", ""),
    ]  # fmt: skip
    rows = reading.all(format="raw", metadata=shown, tombstones="skip")
    assert [(row["place"], row["key"], row["line"]) for row in rows] == [
        (0, b"1", "a"),
        (2, b"3", ""),
        (3, b"4", "b"),
    ]
    assert reading.report is not None
    assert reading.report.queues[0].offset == 5


def test_tombstones_are_no_json(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    world.write(topic, [*bodies(1), None, *bodies(2)], keys=[b"1", b"2", b"3"])
    bad, sink = memory(), memory()
    stream = hr.stream("reading", "tombstones").from_kafka(
        topic, servers=world.servers, driver=reading.driver, format="json", schema={"n": "int64"}
    )
    stream.dead_letters(lambda letters: letters.to(bad)).to(sink).run("light")
    assert [row["n"] for row in sink.rows] == [1, 2]
    assert [(row["queue"], row["offset"], row["body"]) for row in bad.rows] == [(f"kafka/{topic}-0", 1, b"")]


def test_records_removed_before_they_were_read_stop_the_job(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    world.write(topic, bodies(*range(10)))
    assert len(reading.numbers(group=topic)) == 10
    world.write(topic, bodies(*range(10, 30)))
    world.forget(topic, 0, 20)
    with pytest.raises(DataError) as caught:
        reading.numbers(group=topic)
    assert str(caught.value) == (
        f"offset 10 is not in partition {topic}-0, which holds 20 to 30: records were removed (by retention, or by hand) "
        f"before they were read [job 'reading.all', plugin 'kafka', queue '{topic}-0', offset 10]\n"
        "  hint: to continue with what is there, start with another group, and with a new checkpoint directory if the job has one"
    )


def test_a_position_of_an_earlier_topic_of_that_name_stops_the_job(
    reading: Reading, world: KafkaWorld, topic: str, tmp_path: Path
) -> None:
    world.create_topic(topic)
    world.write(topic, bodies(*range(10)))
    reading.job(memory()).run("light", checkpoint=tmp_path)
    world.delete_topic(topic)
    world.create_topic(topic)
    world.write(topic, bodies(1))
    with pytest.raises(
        DataError, match=rf"offset 10 is not in partition {topic}-0, which holds 0 to 1: the topic was created again"
    ):
        reading.job(memory()).run("light", checkpoint=tmp_path)


def test_records_removed_while_they_are_read_stop_the_job(world: KafkaWorld, topic: str, driver: str) -> None:
    world.create_topic(topic)
    world.write(topic, bodies(*range(10)))
    source = KafkaSource(KafkaSourceSettings.of({"topic": topic, "servers": world.servers, "driver": driver}))
    try:
        reader = source.open(hr.Queue(f"{topic}-0"), ReadPosition(2))
        world.forget(topic, 0, 6)
        with pytest.raises(DataError, match=r"offset 2 is not in partition .*, which holds 6 to 10"):
            eventually(lambda: reader.poll(10, timedelta(milliseconds=100)), "it is told", seconds=10)
    finally:
        source.close()


def test_a_deleted_topic_takes_its_queues_with_it(world: KafkaWorld, topic: str, driver: str) -> None:
    other = f"{topic}-other"
    world.create_topic(topic)
    world.create_topic(other)
    options = {"topic": f"{topic},{other}", "servers": world.servers, "driver": driver}
    source = KafkaSource(KafkaSourceSettings.of(options))
    try:
        assert sorted(queue.name for queue in source.queues()) == sorted([f"{topic}-0", f"{other}-0"])
        world.delete_topic(other)
        eventually(lambda: [queue.name for queue in source.queues()] == [f"{topic}-0"], "just the other is left")
    finally:
        source.close()


def test_new_partitions_of_an_endless_job_without_group_changes(
    reading: Reading, world: KafkaWorld, topic: str
) -> None:
    """A source that is read by the runtime's own discovery (as Spark does) lists new partitions at once."""
    world.create_topic(topic)
    options = {"topic": topic, "servers": world.servers, "driver": reading.driver}
    source = KafkaSource(KafkaSourceSettings.of(options))
    try:
        assert [queue.name for queue in source.queues()] == [f"{topic}-0"]
        world.add_partitions(topic, 3)
        eventually(lambda: len(source.queues()) == 3, "three partitions", seconds=5)
    finally:
        source.close()


def test_a_bad_record_stops_a_job_that_wants_it_with_its_place(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic)
    world.write(topic, [*bodies(1), b"{broken"])
    stream = hr.stream("reading", "strict", bad_records="stop").from_kafka(
        topic, servers=world.servers, driver=reading.driver, format="json", schema={"n": "int64"}
    )
    with pytest.raises(JobFailedError) as caught:
        stream.to(memory()).run("light")
    assert isinstance(caught.value.__cause__, DataError)
    assert (caught.value.__cause__.queue, caught.value.__cause__.offset) == (f"kafka/{topic}-0", 1)


def test_an_idle_job_wakes_at_once(reading: Reading, world: KafkaWorld, topic: str) -> None:
    world.create_topic(topic, 4)
    sink = memory()
    # A pause that is only waited out would be longer than the patience of this test.
    reading.start(sink, run={"idle_wait_max": "1 h"})
    for number in range(12):
        world.write(topic, bodies(number), partition=number % 4)
        eventually(lambda: len(sink.rows) > number, "it comes")  # noqa: B023
