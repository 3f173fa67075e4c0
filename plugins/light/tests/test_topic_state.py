"""State in a topic: the contract, owners that do not know of each other, lost answers, versions that were not finished."""

from __future__ import annotations

import os
from typing import ClassVar

import msgspec
import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import CheckpointError, RetriableError
from headrace.interfaces.state_store import StateStore
from headrace_contract import MemoryBroker, MemoryTopics, StateStoreContract, StorePerShuffle
from headrace_light.shared.topic_state import TopicStateStore

SHARD = "key_by/0"


class TestTopicState(StateStoreContract):
    """On a broker in memory; the connectors run the same on theirs."""

    weaknesses: ClassVar = {"test_a_kill_leaves_whole_versions": "a broker in memory ends with its process"}

    def make_store(self) -> StateStore:
        self.broker = getattr(self, "broker", None) or MemoryBroker()
        topics = MemoryTopics(self.broker)
        return StorePerShuffle(lambda shuffle: TopicStateStore(topics, f"state_{shuffle}", 12), topics.close)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def store_at(broker: MemoryBroker, known: int | None = None, *, record_bytes: int = 2_000) -> TopicStateStore:
    topics = MemoryTopics(broker, max_record_bytes=record_bytes)
    return TopicStateStore(topics, "state", 1, lambda shard: known, ManualClock())


def loaded(store: TopicStateStore) -> list[tuple[int, bytes]]:
    return [(number, content) for number, content, _ in store.load(SHARD)]


def test_one_owner_goes_on_where_another_stopped(broker: MemoryBroker) -> None:
    first = store_at(broker)
    assert loaded(first) == []
    first.save(SHARD, 1, b"one")
    first.save(SHARD, 2, b"two")
    second = store_at(broker)
    assert loaded(second) == [(1, b"one"), (2, b"two")]
    second.save(SHARD, 3, b"three")
    assert loaded(store_at(broker)) == [(1, b"one"), (2, b"two"), (3, b"three")]


def test_two_owners_build_two_chains_and_never_one_of_both(broker: MemoryBroker) -> None:
    first = store_at(broker)
    first.save(SHARD, 1, b"base", snapshot=True)
    second = store_at(broker)
    assert loaded(second) == [(1, b"base")]
    first.save(SHARD, 2, b"first, 2")
    second.save(SHARD, 3, b"second, 2 and 3")
    first.save(SHARD, 4, b"first, 3 and 4")
    assert loaded(store_at(broker)) == [(1, b"base"), (2, b"first, 2"), (4, b"first, 3 and 4")]
    second.save(SHARD, 5, b"second, 4 and 5")
    assert loaded(store_at(broker)) == [(1, b"base"), (3, b"second, 2 and 3"), (5, b"second, 4 and 5")]


def test_what_one_builds_on_outlives_the_snapshot_of_who_lost_the_shard(broker: MemoryBroker) -> None:
    """A process that stood still stores a snapshot and removes what is older, before it hears that it has lost the shard."""
    first = store_at(broker)
    first.save(SHARD, 1, b"base", snapshot=True)
    first.save(SHARD, 2, b"two")
    second = store_at(broker)
    assert loaded(second) == [(1, b"base"), (2, b"two")]
    second.save(SHARD, 60, b"sixty")
    first.save(SHARD, 55, b"late", snapshot=True)
    first.remove(SHARD, before=55)
    second.save(SHARD, 70, b"seventy")
    assert loaded(store_at(broker, known=70)) == [(1, b"base"), (2, b"two"), (60, b"sixty"), (70, b"seventy")]


def test_what_is_older_than_two_snapshots_is_removed(broker: MemoryBroker) -> None:
    store = store_at(broker)
    for version in range(1, 10):
        store.save(SHARD, version, b"%d" % version, snapshot=version % 3 == 1)
        store.remove(SHARD, before=version)
    assert len(broker.records("state", 0)) == 6
    assert loaded(store_at(broker)) == [(7, b"7"), (8, b"8"), (9, b"9")]


def test_a_version_without_its_last_part_is_not_there(broker: MemoryBroker) -> None:
    store = store_at(broker)
    store.save(SHARD, 1, b"one", snapshot=True)
    store.save(SHARD, 2, b"two")
    before = len(broker.records("state", 0))
    content = os.urandom(5_000)
    store.save(SHARD, 3, content, snapshot=True)
    parts = broker.records("state", 0)[before:]
    assert len(parts) > 2
    unfinished = MemoryBroker()
    copy = MemoryTopics(unfinished)
    copy.create("state", 1)
    unfinished.append("state", 0, broker.records("state", 0)[:-1])
    again = store_at(unfinished)
    assert loaded(again) == [(1, b"one"), (2, b"two")]
    again.save(SHARD, 3, b"three")
    assert loaded(store_at(unfinished)) == [(1, b"one"), (2, b"two"), (3, b"three")]
    # The rest comes late, from a request that was under way.
    unfinished.append("state", 0, parts[-1:])
    assert [number for number, _ in loaded(store_at(unfinished))] in ([3], [1, 2, 3])


def test_a_lost_answer_makes_parts_come_twice(broker: MemoryBroker) -> None:
    topics = MemoryTopics(broker, max_record_bytes=2_000)
    store = TopicStateStore(topics, "state", 1)
    store.save(SHARD, 1, b"one", snapshot=True)
    broker.lose_answers()
    content = os.urandom(5_000)
    with pytest.raises(RetriableError):
        store.save(SHARD, 2, content)
    with pytest.raises(RetriableError, match="a snapshot must be stored first"):
        store.save(SHARD, 3, b"changes since 2")
    topics.flush()
    assert loaded(store_at(broker)) == [(1, b"one"), (2, content)]
    store.save(SHARD, 3, b"all", snapshot=True)
    store.save(SHARD, 4, b"four")
    assert loaded(store_at(broker)) == [(3, b"all"), (4, b"four")]


def test_an_outage_asks_for_a_snapshot(broker: MemoryBroker) -> None:
    store = store_at(broker)
    store.save(SHARD, 1, b"one", snapshot=True)
    broker.begin_outage()
    with pytest.raises(RetriableError):
        store.save(SHARD, 2, b"two")
    broker.end_outage()
    with pytest.raises(RetriableError, match="snapshot"):
        store.save(SHARD, 3, b"three")
    store.save(SHARD, 3, b"all", snapshot=True)
    assert loaded(store_at(broker)) == [(3, b"all")]


def test_only_the_newest_is_read(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last record says where its chain begins; all is read only when the version that must be there is not in it."""
    first = store_at(broker)
    for version in range(1, 31):
        first.save(SHARD, version, b"%d" % version, snapshot=version == 20)
    read: list[int] = []
    real = broker.read

    def counted(topic: str, queue: int, offset: int, count: int) -> tuple[list[bytes], list[int]]:
        found = real(topic, queue, offset, count)
        read.append(len(found[0]))
        return found

    monkeypatch.setattr(broker, "read", counted)
    assert [number for number, _ in loaded(store_at(broker, known=30))] == list(range(20, 31))
    assert sum(read) == 12  # the last one, and eleven


def test_a_version_that_must_be_there_is_looked_for_and_then_missed(broker: MemoryBroker) -> None:
    """Who asks decides what that means; the store does not wait for ever."""
    first = store_at(broker)
    first.save(SHARD, 1, b"one", snapshot=True)
    assert loaded(store_at(broker, known=9)) == [(1, b"one")]


def test_large_contents_are_packed_and_cut(broker: MemoryBroker) -> None:
    store = store_at(broker, record_bytes=50_000)
    content = b"again and again " * 1_000_000 + os.urandom(200_000)
    store.save(SHARD, 1, content, snapshot=True)
    sizes = [len(record) for record in broker.records("state", 0)]
    assert max(sizes) <= 50_000
    assert sum(sizes) < 300_000
    assert loaded(store_at(broker, record_bytes=50_000)) == [(1, content)]


def test_a_record_of_somebody_else_is_named(broker: MemoryBroker) -> None:
    store_at(broker).save(SHARD, 1, b"one", snapshot=True)
    broker.append("state", 0, [b"what is this"])
    with pytest.raises(CheckpointError, match=SHARD):
        loaded(store_at(broker))


def test_a_newer_format_is_refused(broker: MemoryBroker) -> None:
    store_at(broker).save(SHARD, 1, b"one", snapshot=True)
    broker.append("state", 0, [msgspec.msgpack.encode({"format": 99})])
    with pytest.raises(CheckpointError, match="newer version of headrace"):
        loaded(store_at(broker))
