"""Micro-batches grow or shrink until they take about three seconds."""

from __future__ import annotations

import pytest
from headrace.foundation.clock import ManualClock
from headrace_spark.planning.micro_batch_size import MicroBatchSize


def sizes(clock: ManualClock, size: MicroBatchSize, records_per_second: int, count: int) -> list[int]:
    """Return how large micro-batches become, one after the other, at a given speed."""
    found = []
    for _ in range(count):
        found.append(size.records())
        size.planned(found[-1])
        clock.advance(found[-1] / records_per_second)
    return found


@pytest.mark.parametrize(
    ("speed", "keyed", "wanted"),
    [(2_000_000, False, 6_000_000), (100_000, False, 300_000), (9_000_000, False, 10_000_000),
     (2_000_000, True, 3_000_000), (1, True, 50_000)],
)  # fmt: skip
def test_a_micro_batch_becomes_what_takes_three_seconds(speed: int, keyed: bool, wanted: int) -> None:
    clock = ManualClock()
    assert sizes(clock, MicroBatchSize(clock, keyed=keyed), speed, 8)[-1] == pytest.approx(wanted, rel=0.01)


def test_a_pause_between_micro_batches_does_not_make_them_smaller() -> None:
    clock = ManualClock()
    size = MicroBatchSize(clock, keyed=False, interval_seconds=60.0)
    for wanted in (1_000_000, 2_000_000, 4_000_000, 8_000_000, 10_000_000):
        assert size.records() == wanted
        size.planned(wanted)
        clock.advance(60.0)
    size.planned(10_000_000)
    clock.advance(100.0)
    assert size.records() == 6_000_000


def test_in_a_query_of_the_user_it_never_shrinks() -> None:
    clock = ManualClock()
    size = MicroBatchSize(clock, keyed=False, interval_seconds=None)
    for _ in range(5):
        assert size.records() == 1_000_000
        size.planned(1_000_000)
        clock.advance(60.0)


def test_it_changes_by_no_more_than_twice() -> None:
    clock = ManualClock()
    assert sizes(clock, MicroBatchSize(clock, keyed=False), 1_000_000_000, 4) == [1_000_000, 2_000_000, 4_000_000, 8_000_000]  # fmt: skip


def test_in_a_run_that_ends_it_grows_by_eight_times_and_to_a_hundred_million() -> None:
    clock = ManualClock()
    found = sizes(clock, MicroBatchSize(clock, keyed=False, bounded=True), 1_000_000_000, 4)
    assert found == [1_000_000, 8_000_000, 64_000_000, 100_000_000]
    found = sizes(clock, MicroBatchSize(clock, keyed=False, bounded=True, shuffles=True), 1_000_000_000, 4)
    assert found == [1_000_000, 8_000_000, 10_000_000, 10_000_000]


def test_a_micro_batch_that_found_little_says_nothing() -> None:
    clock = ManualClock()
    size = MicroBatchSize(clock, keyed=False)
    for _ in range(5):
        size.planned(10)
        clock.advance(0.01)
    assert size.records() == 1_000_000
    size.planned(950_000)  # up to a border of its queues
    clock.advance(0.01)
    assert size.records() == 2_000_000


def test_a_run_that_ends_with_its_input_has_longer_micro_batches() -> None:
    clock = ManualClock()
    size = MicroBatchSize(clock, keyed=False, bounded=True)
    assert sizes(clock, size, 500_000, 8)[-1] == pytest.approx(5_000_000, rel=0.01)


def test_a_shard_gets_no_more_than_it_can_hold() -> None:
    clock = ManualClock()
    size = MicroBatchSize(clock, keyed=True, bounded=True)
    for bytes_per_record, wanted in ((4, 10_000_000), (64, 128 * 1024**2 // 64), (10_000, 50_000), (64, 400_000)):
        found = sizes(clock, size, 4_000_000, 1)[0]
        size.held(found * bytes_per_record)
        for _ in range(8 if wanted > 400_000 else 1):
            found = sizes(clock, size, 4_000_000, 1)[0]
            size.held(found * bytes_per_record)
        assert found == pytest.approx(wanted, rel=0.01)


def test_where_the_bytes_of_shards_are_not_known_they_get_few_records() -> None:
    clock = ManualClock()
    size = MicroBatchSize(clock, keyed=True, bounded=True)
    size.held(0)
    assert sizes(clock, size, 4_000_000, 8)[-1] == 3_000_000
