"""One consumer for all readers of a process: what a rebalance does that comes while a reader looks for records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pytest
from headrace.foundation.errors import RetriableError
from headrace_kafka.driver import ConsumerDriver, Fetched, GroupCallbacks, Partition
from headrace_kafka.errors import StuckClient
from headrace_kafka.shared_consumer import Buffer, SharedConsumer

A, B = Partition("t", 0), Partition("t", 1)


def records(partition: Partition, first: int, count: int) -> Fetched:
    offsets = np.arange(first, first + count, dtype=np.int64)
    return Fetched.of(partition, offsets, [b"%d" % offset for offset in offsets], None, None, None)


class ScriptedDriver(ConsumerDriver):
    """A consumer whose fetches a test plays: each is a list of records and calls, done in this order."""

    def __init__(self, *fetches: Sequence[Fetched | Callable[[], object]]) -> None:
        self._fetches = list(fetches)
        self.callbacks: GroupCallbacks | None = None
        self.assigned: dict[Partition, int] = {}
        self.paused: list[Partition] = []
        self.resumed: list[Partition] = []
        self.given_up = False

    def fetch(self, max_records: int, timeout_seconds: float) -> Iterable[Fetched]:
        for step in self._fetches.pop(0) if self._fetches else ():
            if isinstance(step, Fetched):
                yield step
            else:
                step()

    def subscribe(self, topics: Sequence[str], callbacks: GroupCallbacks) -> None:
        self.callbacks = callbacks

    def assign(self, partition: Partition, offset: int) -> None:
        self.assigned[partition] = offset

    def unassign(self, partition: Partition) -> None: ...

    def begin_late(self, partition: Partition, offset: int) -> None: ...

    def pause(self, partition: Partition) -> None:
        self.paused.append(partition)

    def resume(self, partition: Partition) -> None:
        self.resumed.append(partition)

    def seek(self, partition: Partition, offset: int) -> None: ...

    def partitions(self, topic: str) -> list[Partition]:
        return [A, B]

    def bounds(self, partition: Partition) -> tuple[int, int]:
        return 0, 100

    def offset_at(self, partition: Partition, milliseconds: int) -> int | None:
        return None

    def committed(self, partition: Partition) -> int | None:
        return None

    def commit(self, offsets: Mapping[Partition, int]) -> None: ...

    def close(self) -> None: ...

    def give_up(self) -> None:
        self.given_up = True


def in_group(*fetches: Sequence[Fetched | Callable[[], object]]) -> SharedConsumer:
    shared = SharedConsumer(ScriptedDriver(*fetches), max_buffered_bytes=1_000_000)
    shared.subscribe(["t"], GroupCallbacks(lambda _: {}, lambda _: None, lambda _: None))
    return shared


def test_of_a_partition_that_is_taken_away_while_it_is_polled_nothing_is_given() -> None:
    """Also not what had been fetched before: the next owner begins at the commit, and gives it."""
    shared = in_group([records(A, 0, 5)], [lambda: shared.end(buffer), records(A, 5, 5)])
    buffer = shared.begin(A, 0)
    assert shared.fill(0.0) == 5
    assert shared.take(buffer, 100, 0.0) is None
    assert shared.take(buffer, 100, 0.0) is None


def test_a_partition_that_comes_back_while_it_is_polled_begins_at_the_commit() -> None:
    def rebalanced() -> None:
        shared.end(buffer)
        back.append(shared.begin(A, 2))

    shared = in_group([records(A, 0, 5)], [rebalanced, records(A, 2, 8)])
    buffer, back = shared.begin(A, 0), []  # type: ignore[var-annotated]
    shared.fill(0.0)
    assert shared.take(buffer, 100, 0.0) is None
    taken = shared.take(back[0], 100, 0.0)
    assert taken is not None
    assert taken.offsets.tolist() == list(range(2, 10))


def full(partition: Partition, *, grouped: bool) -> tuple[SharedConsumer, ScriptedDriver, Buffer]:
    """Return a consumer that has paused a partition, because more of it waits than the limit allows."""
    driver = ScriptedDriver([records(partition, 0, 5)])
    shared = SharedConsumer(driver, max_buffered_bytes=3)
    if grouped:
        shared.subscribe(["t"], GroupCallbacks(lambda given: dict.fromkeys(given, 0), lambda _: None, lambda _: None))
        assert driver.callbacks is not None
        driver.callbacks.assigned([partition])
    buffer = shared.begin(partition, 0)
    shared.take(buffer, 1, 0.0)
    assert driver.paused == [partition]
    return shared, driver, buffer


@pytest.mark.parametrize("grouped", [False, True])
def test_the_next_reader_of_a_partition_that_was_paused_gets_records(grouped: bool) -> None:
    shared, driver, buffer = full(A, grouped=grouped)
    assert driver.resumed == []
    shared.begin(A, 2)
    assert driver.resumed == [A]
    assert not buffer.paused
    shared.end(buffer)
    assert driver.resumed == [A]


def test_a_paused_partition_that_another_member_has_is_not_resumed() -> None:
    shared, driver, buffer = full(A, grouped=True)
    assert driver.callbacks is not None
    driver.callbacks.revoked([A])
    shared.end(buffer)
    shared.take(buffer, 100, 0.0)
    assert driver.resumed == []


def test_another_partition_that_is_taken_away_meanwhile_costs_nothing() -> None:
    shared = in_group([lambda: shared.end(other), records(A, 0, 3), records(B, 0, 3)])
    buffer, other = shared.begin(A, 0), shared.begin(B, 0)
    taken = shared.take(buffer, 100, 0.0)
    assert taken is not None
    assert taken.offsets.tolist() == [0, 1, 2]
    assert shared.take(other, 100, 0.0) is None


def is_stuck() -> None:
    raise StuckClient("it does not find back")


def test_a_stuck_consumer_outside_of_a_group_is_replaced_where_its_readers_are() -> None:
    first = ScriptedDriver([records(A, 0, 5), records(B, 0, 500)], [is_stuck])
    second = ScriptedDriver([records(A, 5, 2)])
    shared = SharedConsumer(first, max_buffered_bytes=10_000, renew=lambda: second)
    of_a, of_b = shared.begin(A, 0), shared.begin(B, 0)
    assert shared.take(of_b, 1, 1.0) is not None
    assert shared.take(of_a, 3, 1.0) is not None
    offsets: list[int] = []
    for _ in range(4):
        taken = shared.take(of_a, 100, 1.0)
        offsets += [] if taken is None else taken.offsets.tolist()
    assert offsets == [3, 4, 5, 6]
    assert first.given_up
    assert second.assigned == {A: 5, B: 500}
    assert second.paused == [B], "it holds enough records of it"


def test_a_stuck_member_of_a_group_is_replaced_and_has_lost_its_partitions() -> None:
    told: list[tuple[str, Sequence[Partition]]] = []

    def tell(what: str) -> Callable[[Sequence[Partition]], None]:
        return lambda partitions: told.append((what, list(partitions)))

    def assigned(partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        tell("assigned")(partitions)
        return {}

    first = ScriptedDriver(
        [lambda: first.callbacks.assigned([A, B])],  # type: ignore[union-attr]
        [lambda: first.callbacks.revoked([A])],  # type: ignore[union-attr]
        [is_stuck],
        [is_stuck],
    )
    second = ScriptedDriver([lambda: second.callbacks.assigned([A])], [records(A, 7, 1)])  # type: ignore[union-attr]
    reached: list[ScriptedDriver] = []

    def renew() -> ConsumerDriver:
        if not reached:
            reached.append(second)
            raise RetriableError("the cluster is away as well")
        return second

    shared = SharedConsumer(first, max_buffered_bytes=10_000, renew=renew)
    shared.subscribe(["t"], GroupCallbacks(assigned, tell("revoked"), tell("lost")))
    shared.fill(0.0)
    shared.fill(0.0)
    with pytest.raises(RetriableError, match="as well"):
        shared.fill(0.0)
    assert not first.given_up
    assert told == [("assigned", [A, B]), ("revoked", [A])]
    assert shared.fill(0.0) == 0
    assert first.given_up
    assert told[2:] == [("lost", [B])]
    shared.begin(A, 7)
    assert [shared.fill(0.0), shared.fill(0.0)] == [0, 1]
    assert told[3:] == [("assigned", [A])]
