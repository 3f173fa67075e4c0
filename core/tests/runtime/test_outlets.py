"""The end of a job: rows go to the writers of their sinks, dead letters go their own way, everything is closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import headrace as hr
import numpy as np
import pytest
from headrace.flow.messages import Bodies, Queue, QueueRemoved, RawBatch, ReadPosition
from headrace.foundation.errors import DataError
from headrace.interfaces.sink import SinkBatch, SinkSettings
from headrace.plan.graph import Plan
from headrace.runtime.lane import Delivery, Lane
from headrace.runtime.outlets import Outlets
from headrace.testing import MemorySink, MemorySource, MemoryTransactionalSink

QUEUE = Queue("q", "in")
SCHEMA = {"n": "int64"}


class Refusing(MemorySink):
    """Refuses rows whose number is negative."""

    def batch_insert(self, batch: SinkBatch) -> None:
        if any(row["n"] < 0 for row in batch.rows()):
            raise DataError("negative")
        super().batch_insert(batch)


class Failing(MemorySink):
    """Cannot be closed."""

    def close(self) -> None:
        super().close()
        raise OSError("no way out")


def stream(**options: str) -> hr.Stream:
    return hr.stream("test", "outlets", **options).from_(MemorySource(), format="json", schema=SCHEMA, name="in")


def with_dead_letters(out: MemorySink, bad: MemorySink) -> Plan:
    return stream().dead_letters(lambda letters: letters.to(bad, name="bad")).to(out, name="out").plan()


def made(plan: Plan, *bodies: bytes, first: int = 0) -> list[Delivery]:
    """What the lane of the source gives for these records."""
    offsets = np.arange(first, first + len(bodies), dtype=np.int64)
    lane = Lane(plan, plan.sources["in"], QUEUE)
    return lane.process(RawBatch(offsets, ReadPosition(first + len(bodies)), bodies=Bodies.of(bodies)))


@contextmanager
def opened(plan: Plan) -> Iterator[Outlets]:
    """Outlets without flush threads. Closed at the end, unless the test has done so."""
    outlets = Outlets(plan, auto_flush=False)
    outlets.open()
    yield outlets
    outlets.close()


def test_rows_go_to_their_sinks_and_dead_letters_to_theirs() -> None:
    out, bad = MemorySink(), MemorySink()
    plan = with_dead_letters(out, bad)
    with opened(plan) as outlets:
        outlets.deliver(made(plan, b'{"n": 1}', b"{", b'{"n": 3}'))
        assert (outlets.dead_letters, outlets.dead_letters_by_queue) == (1, {"in/q": 1})
        [reason] = outlets.frequent_reasons()
        assert reason.count == 1
        assert [each.count for each in outlets.take_reasons()] == [1]
        assert outlets.take_reasons() == ()
    assert [row["n"] for row in out.rows] == [1, 3]
    assert [(row["offset"], row["body"]) for row in bad.rows] == [(1, b"{")]
    assert outlets.rows_written() == {"out": 2}  # sinks of dead letters are not of the main flow


def test_sinks_are_opened_at_the_start_but_those_of_dead_letters_when_one_comes() -> None:
    out, bad = MemorySink(), MemorySink()
    plan = with_dead_letters(out, bad)
    with opened(plan) as outlets:
        assert (out.opened, bad.opened) == (1, 0)
        outlets.deliver(made(plan, b"{"))
    assert (out.opened, bad.opened) == (1, 1)
    assert (out.closed, bad.closed) == (1, 1)


def test_a_row_that_the_sink_refuses_is_stored_as_dead_letter_before_the_rows_behind_it() -> None:
    """The sink keeps positions: once row 2 is stored, row 1 does not come again."""
    bad = MemorySink()
    known: list[int] = []

    class Noting(Refusing, MemoryTransactionalSink):
        def batch_insert(self, batch: SinkBatch) -> None:
            super().batch_insert(batch)
            known.extend(len(bad.rows) for row in batch.rows() if row["n"] > 1)

    out = Noting()
    plan = with_dead_letters(out, bad)
    with opened(plan) as outlets:
        outlets.deliver(made(plan, b'{"n": 1}', b'{"n": -1}', b'{"n": 2}'))
    assert [row["n"] for row in out.rows] == [1, 2]
    assert [row["offset"] for row in bad.rows] == [1]
    assert known == [1]


@pytest.mark.parametrize("where", ["main flow of a job that stops", "dead letters"])
def test_a_refused_row_that_has_nowhere_to_go_stops_the_job(where: str) -> None:
    if where == "dead letters":
        refusing = Refusing()
        job = stream().dead_letters(lambda letters: letters.select(n="-offset").to(refusing, name="bad"))
        plan = job.to(MemorySink(), name="out").plan()
        bodies = (b'{"n": 1}', b"{")
    else:
        plan = stream(bad_records="stop").to(Refusing(), name="out").plan()
        bodies = (b'{"n": 1}', b'{"n": -1}')
    outlets = Outlets(plan, auto_flush=False)
    outlets.open()
    deliveries = made(plan, *bodies)
    with pytest.raises(DataError, match=r"refuses a row: .*negative") as caught:
        _delivered(outlets, deliveries)
    assert caught.value.offset == 1
    outlets.close(flush=False)


def _delivered(outlets: Outlets, deliveries: list[Delivery]) -> None:
    outlets.deliver(deliveries)
    outlets.close()


def test_rows_that_a_sink_has_are_counted_and_not_written_again() -> None:
    stored: dict[Queue, hr.Position] = {}
    for first, written, skipped in ((0, 2, 0), (0, 0, 2), (1, 1, 1)):
        sink = MemoryTransactionalSink(stored=stored)
        plan = stream().to(sink, name="out").plan()
        with opened(plan) as outlets:
            outlets.deliver(made(plan, b'{"n": 1}', b'{"n": 2}', first=first))
        assert (outlets.rows_written(), outlets.rows_skipped()) == ({"out": written}, skipped)


def test_sinks_can_be_asked_for_their_positions_when_nothing_waits() -> None:
    asked, plain = MemoryTransactionalSink(SinkSettings(batch_size=1000)), MemorySink()
    events = stream()
    plan = events.to(asked, name="asked").also(events.to(plain, name="plain")).plan()
    with opened(plan) as outlets:
        outlets.deliver(made(plan, b'{"n": 1}', b'{"n": 2}'))
        assert asked.rows == []
        assert outlets.sinks_to_ask().get("asked") is asked
        assert "plain" not in outlets.sinks_to_ask()
        assert asked.last_offset(QUEUE) == (1, 0)


def test_a_queue_that_another_process_has_taken_over_is_forgotten_with_its_rows() -> None:
    sink = MemorySink(SinkSettings(batch_size=1000))
    plan = stream().to(sink, name="out").plan()
    with opened(plan) as outlets:
        outlets.deliver(made(plan, b'{"n": 1}'))
        outlets.discard(QUEUE)
    assert sink.rows == []


def test_rows_of_a_queue_that_is_removed_are_stored() -> None:
    out, bad = MemorySink(SinkSettings(batch_size=1000)), MemorySink(SinkSettings(batch_size=1000))
    plan = with_dead_letters(out, bad)
    with opened(plan) as outlets:
        outlets.deliver(made(plan, b'{"n": 1}', b"{"))
        outlets.on_system(QueueRemoved(QUEUE))
        assert [row["n"] for row in out.rows] == [1]
        assert [row["offset"] for row in bad.rows] == [1]


def test_every_sink_is_closed_before_the_first_error_is_raised() -> None:
    events, first, last = stream(), Failing(), MemorySink()
    plan = events.to(first, name="first").also(events.to(last, name="last")).plan()
    outlets = Outlets(plan, auto_flush=False)
    outlets.open()
    with pytest.raises(OSError, match="no way out"):
        outlets.close()
    assert (first.closed, last.closed) == (1, 1)
