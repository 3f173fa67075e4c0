"""One shard of a shuffle: its watermark over several queues, replays, the numbers of its results, and its state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Queue, watermark_column, with_column
from headrace.foundation.errors import CheckpointError
from headrace.plan.graph import Plan
from headrace.runtime.shard import Shard, ShardOutput
from headrace.runtime.shuffle import ShardMessage
from headrace.testing import MemorySink, MemorySource

FIRST, SECOND = Queue("a", "in"), Queue("b", "in")
SECOND_US = 1_000_000
SCHEMA = {"k": "string", "ts": "timestamp"}


def plan_of(size: str = "5 s") -> Plan:
    events = hr.stream("test", "shard").from_(MemorySource(), format="json", schema=SCHEMA, name="in")
    counts = events.watermark("ts").key_by("k").window(hr.tumbling(size, on="ts")).agg(n="count(*)")
    job: hr.Job = counts.select("k", "n").to(MemorySink(), name="out")
    return job.plan()


def made(plan: Plan | None = None) -> Shard:
    plan = plan or plan_of()
    [shuffle] = plan.shuffles
    return Shard(plan, shuffle, 0)


def rows(queue: Queue, *seconds: int, first: int = 0) -> ShardMessage:
    """Rows of key x with these times; the watermark before each is the time of the one before it."""
    count = len(seconds)
    frame = pl.DataFrame(
        {
            OFFSET: range(first, first + count),
            INDEX: pl.Series([0] * count, dtype=pl.Int32),
            "k": ["x"] * count,
            "ts": [datetime.fromtimestamp(second, UTC) for second in seconds],
        }
    )
    marks = pl.Series([0, *(second * SECOND_US for second in seconds[:-1])]).to_numpy()
    return ShardMessage("rows", queue, frame=with_column(frame, watermark_column(marks)))


def mark(queue: Queue, second: int) -> ShardMessage:
    return ShardMessage("watermark", queue, time_us=second * SECOND_US)


def added(*queues: Queue) -> list[ShardMessage]:
    return [ShardMessage("added", queue) for queue in queues]


def results(output: ShardOutput) -> list[tuple[int, int, int]]:
    """Offset, index and count of each result."""
    return [row for each in output.deliveries for row in each.batch.frame.select(OFFSET, INDEX, "n").iter_rows()]


def step(shard: Shard, sequence: int, *messages: ShardMessage, end: bool = False) -> list[tuple[int, int, int]]:
    return results(shard.process(sequence, sequence * SECOND_US, messages, end_of_input=end))


def test_the_watermark_is_that_of_the_slowest_queue() -> None:
    shard = made()
    assert shard.watermark_us is None
    assert step(shard, 1, *added(FIRST, SECOND), rows(FIRST, 1, 2), mark(FIRST, 20)) == []
    assert shard.watermark_us is None
    assert step(shard, 2, mark(SECOND, 4)) == []
    assert shard.watermark_us == 4 * SECOND_US
    assert step(shard, 3, mark(SECOND, 9)) == [(3, 0, 2)]


@pytest.mark.parametrize("kind", ["idle", "removed"])
def test_a_queue_that_is_silent_or_gone_is_not_waited_for(kind: str) -> None:
    shard = made()
    step(shard, 1, *added(FIRST, SECOND), rows(FIRST, 1), mark(FIRST, 20), mark(SECOND, 1))
    end = ShardMessage("idle", SECOND) if kind == "idle" else ShardMessage("removed", SECOND)
    assert step(shard, 2, end) == [(2, 0, 1)]
    assert shard.knows(SECOND) == (kind == "idle")


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_when_all_queues_are_silent_nothing_is_waited_for(order: tuple[Queue, Queue]) -> None:
    shard = made()
    step(shard, 1, *added(FIRST, SECOND), rows(FIRST, 1), mark(FIRST, 20), mark(SECOND, 1))
    found = [step(shard, sequence, ShardMessage("idle", queue)) for sequence, queue in enumerate(order, 2)]
    assert [each for one in found for each in one] == [(2 if order[0] == SECOND else 3, 0, 1)]
    assert step(shard, 4, rows(SECOND, 2, 21), mark(SECOND, 30)) == [(4, 0, 1)], "the first row is late"
    assert step(shard, 5, rows(FIRST, 31, first=1), mark(FIRST, 31)) == []
    assert step(shard, 6, mark(FIRST, 50)) == [], "the other queue is awake and at 30 seconds"
    assert step(shard, 7, mark(SECOND, 40)) == [(7, 0, 1)]


def test_a_queue_that_is_heard_again_is_waited_for_on_both_sides() -> None:
    """Else the rows of one side of a stream that is joined with itself make those of the other side late, which come with them."""
    events = hr.stream("test", "shard").from_(MemorySource(), format="json", schema=SCHEMA, name="in").watermark("ts")
    joined = events.join(
        events.select("k", other="ts"), on="k", within=(timedelta(0), timedelta(0)), time=("ts", "other")
    )
    shard = made(joined.select("k").to(MemorySink(), name="out").plan())

    def given(side: int, *seconds: int, first: int = 0) -> list[ShardMessage]:
        message = rows(FIRST, *seconds, first=first)
        assert message.frame is not None
        frame = message.frame.rename({"ts": "other"}) if side else message.frame
        return [replace(message, side=side, frame=frame), replace(mark(FIRST, seconds[-1]), side=side)]

    shard.process(1, 1, [*given(0, 1), *given(1, 1)])
    shard.process(2, 2, [ShardMessage("idle", FIRST, side=side) for side in (0, 1)])
    shard.process(3, 3, given(0, 60, 90, first=1))
    assert shard.watermark_us == SECOND_US
    output = shard.process(4, 4, given(1, 60, 90, first=1))
    assert sum(len(each.batch) for each in output.deliveries) == 2
    assert shard.watermark_us == 90 * SECOND_US


def test_rows_that_come_again_are_dropped() -> None:
    shard = made()
    step(shard, 1, *added(FIRST), rows(FIRST, 1, 2, 3))
    assert step(shard, 2, rows(FIRST, 2, 3, 4, first=1), end=True) == [(2, 0, 4)]


def test_results_of_an_entry_are_numbered_through() -> None:
    shard = made()
    assert step(shard, 1, *added(FIRST, SECOND), rows(FIRST, 1, 6, 7, 11), mark(FIRST, 15)) == []
    # Each watermark closes one window.
    marks = [mark(SECOND, second) for second in (5, 10, 15)]
    assert step(shard, 5, *marks) == [(5, 0, 1), (5, 1, 2), (5, 2, 1)]


def state_after(shard: Shard, entries: Iterable[list[ShardMessage]]) -> list[bytes]:
    deltas = []
    for sequence, messages in enumerate(entries, 1):
        step(shard, sequence, *messages)
        deltas.append(shard.delta())
    return deltas


def restored(states: Iterable[bytes], plan: Plan | None = None) -> Shard:
    shard = made(plan)
    for state in states:
        shard.apply(state)
    shard.end_restore()
    return shard


@pytest.mark.parametrize("whole", [False, True])
def test_a_shard_goes_on_from_its_state(whole: bool) -> None:
    shard = made()
    deltas = state_after(shard, [[*added(FIRST, SECOND), rows(FIRST, 1, 2)], [mark(FIRST, 4), mark(SECOND, 3)]])
    other = restored([shard.snapshot()] if whole else deltas)
    assert other.watermark_us == shard.watermark_us == 3 * SECOND_US
    assert sorted(other.upstreams) == sorted(shard.upstreams)
    # Rows that it has had are dropped; the others are counted with those of before.
    last = [rows(FIRST, 2, 3, first=1), mark(FIRST, 9), mark(SECOND, 9)]
    assert step(other, 3, *last) == step(shard, 3, *last) == [(3, 0, 3)]


def test_an_entry_without_input_changes_nothing() -> None:
    shard = made()
    assert shard.delta() == b""
    step(shard, 1, *added(FIRST), rows(FIRST, 1))
    assert shard.delta() != b""
    assert shard.delta() == b""


def test_damaged_state_is_refused() -> None:
    shard = made()
    [state] = state_after(shard, [[*added(FIRST), rows(FIRST, 1)]])
    for place in (0, len(state) // 2, len(state) - 1):
        damaged = bytearray(state)
        damaged[place] ^= 1
        with pytest.raises(CheckpointError):
            made().apply(bytes(damaged))
    with pytest.raises(CheckpointError):
        made().apply(state[:-1])


def test_the_state_of_another_window_is_refused() -> None:
    shard = made()
    deltas = state_after(shard, [[*added(FIRST), rows(FIRST, 1)]])
    with pytest.raises(CheckpointError):
        restored(deltas, plan_of("7 s"))
