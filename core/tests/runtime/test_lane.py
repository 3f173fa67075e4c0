"""The lane of one stage: what it gives to sinks, shuffles and dead letters, in which order and under which positions."""

from __future__ import annotations

from collections.abc import Sequence

import headrace as hr
import numpy as np
import pytest
from headrace.flow.messages import INDEX, OFFSET, Batch, Bodies, EndOfInput, Queue, QueueAdded, RawBatch, Watermark
from headrace.flow.messages import ReadPosition as At
from headrace.foundation.errors import DataError
from headrace.plan.graph import Plan
from headrace.runtime.lane import DEAD_LETTERS, Delivery, Lane, dead_letter_lane
from headrace.testing import MemorySink, MemorySource

QUEUE = Queue("q", "in")
SCHEMA = {"k": "string", "n": "int64", "ts": "timestamp"}


def stream(**options: str) -> hr.Stream:
    return hr.stream("test", "lane", **options).from_(MemorySource(), format="json", schema=SCHEMA, name="in")


def lane_of(plan: Plan) -> Lane:
    return Lane(plan, plan.sources["in"], QUEUE)


def records(bodies: Sequence[bytes], first: int = 10) -> RawBatch:
    offsets = np.arange(first, first + len(bodies), dtype=np.int64)
    return RawBatch(offsets, At(first + len(bodies)), bodies=Bodies.of(bodies))


def row(k: str, n: int, second: int = 0) -> bytes:
    return f'{{"k": "{k}", "n": {n}, "ts": "2026-01-01T00:00:{second:02d}Z"}}'.encode()


def shown(deliveries: Sequence[Delivery]) -> list[tuple[str, int, int, int]]:
    """Target, position and number of each row."""
    return [
        (each.target, offset, index, n)
        for each in deliveries
        for offset, index, n in each.batch.frame.select(OFFSET, INDEX, "n").iter_rows()
    ]


def test_rows_keep_the_position_of_their_record() -> None:
    lane = lane_of(stream().where("n > 1").select("n").to(MemorySink(), name="out").plan())
    made = lane.process(records([row("a", 1), row("a", 2), row("b", 3)]))
    assert shown(made) == [("out", 11, 0, 2), ("out", 12, 0, 3)]
    assert made[0].batch.queue == QUEUE


def test_rows_of_several_branches_come_together_in_the_order_of_records() -> None:
    events = stream()
    both = events.where("n % 2 = 0").union(events.where("n % 2 = 1"), events.where("n = 2")).select("n")
    made = lane_of(both.to(MemorySink(), name="out").plan()).process(records([row("a", n) for n in (1, 2, 3, 4)]))
    # The record 2 is in two branches: its rows are numbered.
    assert shown(made) == [
        ("out", 10, 0, 1),
        ("out", 11, 0, 2),
        ("out", 11, 1, 2),
        ("out", 12, 0, 3),
        ("out", 13, 0, 4),
    ]


def test_each_sink_gets_its_own_columns() -> None:
    events = stream()
    job = events.select("n", "k").to(MemorySink(), name="wide").also(events.select("n").to(MemorySink(), name="narrow"))
    made = lane_of(job.plan()).process(records([row("a", 1)]))
    assert {each.target: list(each.batch.user_frame().columns) for each in made} == {
        "wide": ["n", "k"],
        "narrow": ["n"],
    }


def test_what_cannot_be_decoded_is_a_dead_letter_and_the_rest_goes_on() -> None:
    job = stream().select("n").dead_letters(lambda bad: bad.to(MemorySink(), name="bad")).to(MemorySink(), name="out")
    plan = job.plan()
    dead, good = lane_of(plan).process(records([row("a", 1), b"{", row("a", 3)]))
    assert (dead.target, dead.batch.frame["offset"].to_list()) == (DEAD_LETTERS, [11])
    assert shown([good]) == [("out", 10, 0, 1), ("out", 12, 0, 3)]

    behind = dead_letter_lane(plan, dead.batch.queue)
    assert behind is not None
    [delivery] = behind.process_batch(dead.batch)
    assert (delivery.target, delivery.batch.frame["body"].to_list()) == ("bad", [b"{"])


def test_a_job_that_stops_on_bad_records_has_no_lane_for_them() -> None:
    plan = stream(bad_records="stop").select("n").to(MemorySink(), name="out").plan()
    assert dead_letter_lane(plan, QUEUE) is None
    with pytest.raises(DataError, match="bad record") as caught:
        lane_of(plan).process(records([row("a", 1), b"{"]))
    assert caught.value.offset == 11


def test_rows_and_messages_for_a_shuffle_wait_until_they_are_taken() -> None:
    keyed = stream().watermark("ts", delay="1 s").key_by("k").window(hr.tumbling("5 s", on="ts")).agg(n="count(*)")
    plan = keyed.to(MemorySink(), name="out").plan()
    [shuffle] = plan.shuffles
    lane = lane_of(plan)
    assert lane.on_system(QueueAdded(QUEUE)) == []
    assert lane.process(records([row("a", 1, 1), row("b", 2, 4)])) == []
    added, rows, mark = lane.take_shipments()
    assert {each.shuffle for each in (added, rows, mark)} == {shuffle}
    assert added.content == QueueAdded(QUEUE)
    assert isinstance(rows.content, Batch)
    assert rows.content.frame["k"].to_list() == ["a", "b"]
    assert isinstance(mark.content, Watermark)
    assert lane.take_shipments() == []


def test_results_of_an_entry_have_its_number() -> None:
    keyed = stream().watermark("ts").key_by("k").window(hr.tumbling("5 s", on="ts")).agg(n="count(*)").select("n")
    plan = keyed.to(MemorySink(), name="out").plan()
    first = lane_of(plan)
    first.process(records([row("a", 1, 1), row("b", 2, 1), row("a", 3, 2)]))
    shipped = [each.content for each in first.take_shipments() if isinstance(each.content, Batch)]

    [shuffle] = plan.shuffles.values()
    lane = Lane(plan, shuffle, Queue("0", plan.id_of(shuffle)))
    [operator] = lane.stateful_operators.values()
    lane.begin_entry(7)
    assert lane.process_batch(shipped[0]) == []
    assert operator.state_rows() > 0
    lane.begin_entry(8)
    assert sorted(shown(lane.on_system(EndOfInput()))) == [("out", 8, 0, 2), ("out", 8, 1, 1)]


def test_closed_twice() -> None:
    lane = lane_of(stream().where("n > 1").to(MemorySink(), name="out").plan())
    lane.close()
    lane.close()
