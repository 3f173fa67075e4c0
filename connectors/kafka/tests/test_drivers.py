"""Both consumers as the source uses them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pytest
from headrace.foundation.errors import DataError
from headrace_kafka.driver import ConsumerDriver, GroupCallbacks, Partition
from headrace_kafka.driver_confluent import ConfluentConsumer
from headrace_kafka.driver_kafka_python import KafkaPythonConsumer
from headrace_kafka.own_thread import OwnThread
from headrace_kafka.settings import KafkaSourceSettings
from headrace_kafka.shared_consumer import Buffer, SharedConsumer
from headrace_kafka.source import make_driver
from kafka_world import KafkaWorld

from tests.eventually import eventually


@pytest.fixture
def consumer(world: KafkaWorld, topic: str, driver: str) -> Iterator[ConsumerDriver]:
    options = {"topic": topic, "servers": world.servers, "driver": driver, "group": topic}
    world.create_topic(topic, 3)
    made = make_driver(KafkaSourceSettings.of(options, plugin="kafka"), ())
    yield made
    made.close()
    made.close()


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def fetch(consumer: ConsumerDriver, counts: Counter[int], *, until: int, seconds: float = 60.0) -> None:
    """Fetch until so many records have come, in order, and count them by partition."""
    deadline = time.monotonic() + seconds
    while sum(counts.values()) < until:
        assert time.monotonic() < deadline, f"no more than {counts}"
        for fetched in consumer.fetch(10, 0.05):
            assert fetched.error is None
            number = fetched.partition.number
            assert fetched.offsets.tolist() == list(range(counts[number], counts[number] + len(fetched)))
            counts[number] += len(fetched)


def test_partitions_that_were_paused_go_on(consumer: ConsumerDriver, world: KafkaWorld, topic: str) -> None:
    """Also while another partition, which has nothing more, is read."""
    world.write(topic, values(100), partition=0)
    world.write(topic, values(100), partition=1)
    world.write(topic, values(5), partition=2)
    for number in range(3):
        consumer.assign(Partition(topic, number), 0)
    counts: Counter[int] = Counter()
    paused: set[int] = set()
    deadline = time.monotonic() + 60
    while len(paused) < 2 or counts[2] < 5:
        assert time.monotonic() < deadline, counts
        for fetched in consumer.fetch(10, 0.05):
            counts[fetched.partition.number] += len(fetched)
        for number in {number for number in (0, 1) if counts[number]} - paused:
            consumer.pause(Partition(topic, number))
            paused.add(number)
    held = dict(counts)
    for _ in range(5):
        assert not sum(len(fetched) for fetched in consumer.fetch(10, 0.05))
    for number in paused:
        consumer.resume(Partition(topic, number))
    fetch(consumer, counts, until=205)
    assert (held[2], counts) == (5, {0: 100, 1: 100, 2: 5})


def test_partitions_come_and_go(consumer: ConsumerDriver, world: KafkaWorld, topic: str) -> None:
    for number in range(3):
        world.write(topic, values(20), partition=number)
    counts: Counter[int] = Counter()
    assert list(consumer.fetch(10, 0)) == []
    consumer.assign(Partition(topic, 0), 0)
    consumer.assign(Partition(topic, 1), 0)
    fetch(consumer, counts, until=40)
    consumer.unassign(Partition(topic, 0))
    consumer.assign(Partition(topic, 2), 0)
    world.write(topic, values(5), partition=0)
    fetch(consumer, counts, until=60)
    consumer.unassign(Partition(topic, 1))
    consumer.unassign(Partition(topic, 2))
    assert not sum(len(fetched) for fetched in consumer.fetch(10, 0.2))
    consumer.assign(Partition(topic, 0), 20)
    fetch(consumer, counts, until=65)
    assert counts == {0: 25, 1: 20, 2: 20}


def test_a_member_gets_new_partitions_however_shortly_it_waits(
    world: KafkaWorld, topic: str, consumer_group: str, driver: str
) -> None:
    world.create_topic(topic)
    options = {"topic": topic, "servers": world.servers, "driver": driver, "group": consumer_group}
    options |= {"session_timeout": "6 s", "metadata_interval": "100 ms"}
    member = make_driver(KafkaSourceSettings.of(options, plugin="kafka"), ())
    owned: set[Partition] = set()

    def assigned(partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        owned.update(partitions)
        return dict.fromkeys(partitions, 0)

    try:
        member.subscribe([topic], GroupCallbacks(assigned, owned.difference_update, owned.difference_update))
        for count in range(1, 9):
            if count > 1:
                world.add_partitions(topic, count)
            deadline = time.monotonic() + 60
            while len(owned) < count:
                assert time.monotonic() < deadline, f"of {count} partitions only {owned}"
                assert not sum(len(fetched) for fetched in member.fetch(10, 0.001))
    finally:
        member.close()


class Holding:
    """A member whose driver has fetched records and is told of rebalances before it has given them."""

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self.driver = make_driver(settings, ())
        #: Where the partitions that it has begin: those that come back, behind what it has fetched by now.
        self.begins: dict[Partition, int] = {}
        self.revoked: set[Partition] = set()
        self.again_at = 0
        callbacks = GroupCallbacks(self._assigned, self._revoked, self._revoked)
        self.driver.subscribe(settings.topics, callbacks)

    def _assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        self.begins |= dict.fromkeys(partitions, self.again_at)
        return dict.fromkeys(partitions, self.again_at)

    def _revoked(self, partitions: Sequence[Partition]) -> None:
        self.revoked.update(partitions)
        for partition in partitions:
            del self.begins[partition]

    def hold(self) -> None:
        """Do what a fetch does, but for giving: the library hands over records and calls back, in any order."""
        if isinstance(self.driver, KafkaPythonConsumer):
            self.driver._poll(10, 0.05)
        else:
            assert isinstance(self.driver, ConfluentConsumer)
            self.driver._arrived += self.driver._consumer.consume(10, 0.05)

    def held(self) -> set[int]:
        """Return of which partitions it holds records."""
        if isinstance(self.driver, KafkaPythonConsumer):
            return {place.partition for polled in self.driver._polled for place, records in polled.items() if records}
        assert isinstance(self.driver, ConfluentConsumer)
        return {one.partition() for one in self.driver._arrived if one.error() is None}


def test_what_was_fetched_of_a_partition_is_never_given_once_it_is_another_members(
    world: KafkaWorld, topic: str, consumer_group: str, driver: str
) -> None:
    world.create_topic(topic, 2)
    for number in range(2):
        world.write(topic, values(100), partition=number)
    options = {"topic": topic, "servers": world.servers, "driver": driver, "group": consumer_group}
    settings = KafkaSourceSettings.of({**options, "session_timeout": "6 s"}, plugin="kafka")
    first, ended = Holding(settings), threading.Event()
    second: list[Holding] = []

    def join() -> None:
        second.append(Holding(settings))
        while not ended.is_set():
            list(second[0].driver.fetch(10, 0.05))
        second[0].driver.close()

    joining = threading.Thread(target=join)
    deadline = time.monotonic() + 120
    try:
        while first.held() != {0, 1}:
            assert time.monotonic() < deadline, f"holds records of {first.held()}"
            first.hold()
        first.again_at = 50
        joining.start()
        while not (first.revoked and len(first.begins) == 1):
            assert time.monotonic() < deadline, f"has {first.begins}"
            first.hold()
        [(kept, begin)] = first.begins.items()
        given: list[int] = []
        while not given or given[-1] < 99:
            assert time.monotonic() < deadline, f"of {kept} from {begin} only {given}"
            for fetched in first.driver.fetch(100, 0.05):
                assert fetched.partition == kept or not len(fetched), f"{len(fetched)} records of {fetched.partition}"
                given += fetched.offsets.tolist()
        assert given == list(range(begin, 100))
    finally:
        ended.set()
        first.driver.close()
        if joining.ident is not None:
            joining.join()


def test_a_partition_that_is_opened_again_without_a_rebalance_gives_its_records_again(
    consumer: ConsumerDriver, world: KafkaWorld, topic: str
) -> None:
    """As a shard does that begins again. The other partitions go on where they are, and so does what comes later."""
    for number in range(3):
        world.write(topic, values(20), partition=number)
    shared = SharedConsumer(consumer, max_buffered_bytes=1_000_000)
    opened: dict[int, Buffer] = {}

    def assigned(partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        opened.update({one.number: shared.begin(one, 0) for one in partitions})
        return dict.fromkeys(partitions, 0)

    def numbers(number: int, until: int) -> list[int]:
        """Return the offsets of a partition, from the first that comes to the one before ``until``."""
        found: list[int] = []

        def last() -> bool:
            if number not in opened:
                shared.fill(0.2)
            elif (taken := shared.take(opened[number], 7, 0.2)) is not None:
                found.extend(taken.offsets.tolist())
            return bool(found) and found[-1] == until - 1

        eventually(last, "the partition's records come")
        return found

    shared.subscribe([topic], GroupCallbacks(assigned, lambda _: None, lambda _: None))
    assert numbers(0, 20) == list(range(20))
    assert numbers(1, 20) == list(range(20))
    opened[0] = shared.begin(Partition(topic, 0), 5)
    world.write(topic, values(3), partition=0)
    world.write(topic, values(3), partition=1)
    assert numbers(0, 23) == list(range(5, 23))
    assert numbers(1, 23) == list(range(20, 23))
    assert numbers(2, 20) == list(range(20))


def test_what_is_wrong_with_a_partition_leaves_the_others_alone(
    consumer: ConsumerDriver, world: KafkaWorld, topic: str
) -> None:
    world.write(topic, values(20), partition=0)
    world.write(topic, values(20), partition=1)
    consumer.assign(Partition(topic, 0), 500)
    consumer.assign(Partition(topic, 1), 0)
    told: list[Partition] = []
    count = 0
    deadline = time.monotonic() + 60
    while not told or count < 20:
        assert time.monotonic() < deadline, (told, count)
        for fetched in consumer.fetch(10, 0.05):
            count += len(fetched)
            if fetched.error is not None:
                assert isinstance(fetched.error, DataError)
                assert len(fetched) == 0
                told.append(fetched.partition)
    assert set(told) == {Partition(topic, 0)}
    assert count == 20


def test_bounds_times_and_commits(consumer: ConsumerDriver, world: KafkaWorld, topic: str) -> None:
    place = Partition(topic, 1)
    assert consumer.bounds(place) == (0, 0)
    world.write(topic, values(20), partition=1)
    world.forget(topic, 1, 5)
    assert consumer.bounds(place) == (5, 20)
    assert consumer.offset_at(place, 0) == 5
    assert consumer.offset_at(place, round((time.time() + 3600) * 1000)) is None
    assert consumer.committed(place) is None
    consumer.commit({place: 7, Partition(topic, 0): 0})
    assert (consumer.committed(place), consumer.committed(Partition(topic, 0))) == (7, 0)
    assert consumer.partitions(topic) == [Partition(topic, number) for number in range(3)]


# ------------------------------------------------------------------------------------------ calls in a thread of their own


def test_questions_are_answered_in_the_thread_that_waits() -> None:
    own, threads = OwnThread("test"), []
    answered = threading.Event()

    def answer() -> None:
        threads.append(threading.current_thread())
        assert own.call(lambda: "inside", 1) == "inside"  # does not wait for the call that waits for us
        answered.set()

    def call() -> str:
        threads.append(threading.current_thread())
        own.ask(answer)
        assert answered.wait(10)
        return "done"

    assert own.call(call, 0.001 + 10) == "done"
    assert threads[0] is not threading.current_thread()
    assert threads[1] is threading.current_thread()
    own.end()


def test_a_call_that_takes_too_long_goes_on() -> None:
    own, go_on, made = OwnThread("test"), threading.Event(), []

    def slow() -> None:
        go_on.wait(10)
        made.append("slow")

    with pytest.raises(TimeoutError):
        own.call(slow, 0.01)
    with pytest.raises(TimeoutError):
        own.call(lambda: made.append("too early"), 0.01)
    go_on.set()
    own.call(lambda: made.append("after it"), 10)
    assert made == ["slow", "after it"]
    own.end()


def test_errors_come_out_of_the_call() -> None:
    own = OwnThread("test")

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        own.call(fail, 10)
    assert own.call(lambda: 1, 10) == 1
    own.end()
