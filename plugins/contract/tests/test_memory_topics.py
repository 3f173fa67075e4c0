"""The broker in memory is a broker: its source passes the contracts, and its faults are those of a real one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import JobError, RetriableError
from headrace.interfaces.source import EARLIEST, GroupListener, GroupSource
from headrace_contract import (
    GroupSourceContract,
    MemoryBroker,
    MemoryTopics,
    MemoryTopicSource,
    SourceContract,
    TopicsContract,
)
from headrace_contract.memory_topics import MemoryTopicSettings, queue_number
from headrace_contract.source_harness import SourceHarness

ZERO = timedelta(0)


class _Harness(SourceHarness):
    odd_bodies = (*SourceContract.odd_bodies, b"", b"two\nlines\r\n")

    def begin(self, tmp_path: Path) -> None:
        super().begin(tmp_path)
        self.broker = MemoryBroker()

    def make_source(self) -> MemoryTopicSource:
        return MemoryTopicSource(MemoryTopicSettings(broker=self.broker.name, topic="t"))

    def add_queue(self) -> str:
        return f"t-{self.broker.add_queue('t')}"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        self.broker.append("t", queue_number(Queue(queue)), bodies)

    def forget(self, queue: str, before: int) -> None:
        self.broker.trim("t", queue_number(Queue(queue)), before)

    def begin_outage(self) -> None:
        self.broker.begin_outage()

    def end_outage(self) -> None:
        self.broker.end_outage()

    def make_missing_source(self) -> MemoryTopicSource:
        return MemoryTopicSource(MemoryTopicSettings(broker=self.broker.name, topic="none"))


class TestMemorySource(_Harness, SourceContract):
    """A source of bodies."""

    weaknesses: ClassVar = {"test_resume_after_kill": "it is of use in the broker's process only"}


class TestMemoryGroup(_Harness, GroupSourceContract):
    """Members that share the queues."""

    weaknesses: ClassVar = {"test_a_dead_member_is_replaced": "it is of use in the broker's process only"}


class TestMemoryTopics(TopicsContract):
    """Topics of a broker in memory."""

    several_processes = False

    def begin(self, tmp_path: Path) -> None:
        super().begin(tmp_path)
        self.broker = MemoryBroker()

    def make_topics(self) -> MemoryTopics:
        return MemoryTopics(self.broker)

    def begin_outage(self) -> None:
        self.broker.begin_outage()

    def end_outage(self) -> None:
        self.broker.end_outage()


class Listener(GroupListener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[str]]] = []

    def assigned(self, queues: Iterable[Queue]) -> None:
        self.told.append(("assigned", [queue.id for queue in queues]))

    def revoked(self, queues: Iterable[Queue], *, lost: bool = False) -> None:
        self.told.append(("lost" if lost else "revoked", [queue.id for queue in queues]))


def read(source: GroupSource, number: int) -> list[bytes]:
    [queue] = [queue for queue in source.queues() if queue_number(queue) == number]
    raw = source.open(queue, EARLIEST).poll(1000, ZERO)
    return [] if raw is None or raw.bodies is None else list(raw.bodies)


def test_records_are_there_after_flush_and_not_before() -> None:
    broker = MemoryBroker()
    topics = MemoryTopics(broker)
    topics.create("t", 2)
    topics.append("t", 1, [b"a", b"b"])
    source = MemoryTopics(broker).source("t", "g")
    assert read(source, 1) == []
    topics.flush()
    assert read(source, 1) == [b"a", b"b"]
    assert read(source, 0) == []


def test_an_outage_keeps_what_was_appended() -> None:
    broker = MemoryBroker()
    topics = MemoryTopics(broker)
    topics.create("t", 1)
    topics.append("t", 0, [b"a"])
    broker.begin_outage()
    with pytest.raises(RetriableError):
        topics.flush()
    topics.append("t", 0, [b"b"])
    broker.end_outage()
    topics.flush()
    assert broker.records("t", 0) == [b"a", b"b"]


def test_a_lost_answer_makes_a_run_come_twice() -> None:
    broker = MemoryBroker()
    topics = MemoryTopics(broker)
    topics.create("t", 1)
    topics.append("t", 0, [b"a", b"b"])
    topics.append("t", 0, [b"c"])
    broker.lose_answers()
    with pytest.raises(RetriableError):
        topics.flush()
    topics.flush()
    assert broker.records("t", 0) == [b"a", b"b", b"a", b"b", b"c"]


def test_another_number_of_queues_is_refused() -> None:
    broker = MemoryBroker()
    topics = MemoryTopics(broker, max_record_bytes=3)
    topics.create("t", 2)
    MemoryTopics(broker).create("t", 2)
    with pytest.raises(JobError, match="has 2 queues, not 3"):
        topics.create("t", 3)
    with pytest.raises(JobError, match="larger than max_record_bytes"):
        topics.append("t", 0, [b"abcd"])


def test_an_expelled_member_learns_it_when_it_polls() -> None:
    broker = MemoryBroker()
    topics = MemoryTopics(broker)
    topics.create("t", 1)
    first, second = topics.source("t", "g"), topics.source("t", "g")
    heard, other = Listener(), Listener()
    first.node_name = "n"
    first.join(heard)
    first.poll_group(ZERO)
    second.join(other)
    second.poll_group(ZERO)
    assert (heard.told, other.told) == ([("assigned", ["n/t-0"])], [])
    broker.expel(first)
    second.poll_group(ZERO)
    assert other.told == [("assigned", ["t-0"])]
    with pytest.raises(RetriableError, match="expelled"):
        first.commit({Queue("t-0"): ReadPosition(1)})
    first.poll_group(ZERO)
    assert heard.told == [("assigned", ["n/t-0"]), ("lost", ["n/t-0"])]
    second.leave()
    first.poll_group(ZERO)
    assert heard.told[-1] == ("assigned", ["n/t-0"])
    first.close()


def test_poll_group_returns_when_a_record_comes() -> None:
    broker = MemoryBroker()
    topics = MemoryTopics(broker)
    topics.create("t", 1)
    source = topics.source("t", "g")
    source.join(Listener())
    source.poll_group(ZERO)
    reader = source.open(Queue("t-0"), EARLIEST)
    broker.append("t", 0, [b"a"])
    source.poll_group(timedelta(days=1))  # or this test never ends
    assert reader.poll(10, ZERO) is not None
    source.close()
