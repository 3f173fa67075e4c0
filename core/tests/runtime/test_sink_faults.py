"""What a writer takes for the rows' fault and what for the sink's."""

from __future__ import annotations

import threading
from collections.abc import Callable

import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Batch, Queue
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import DataError, JobFailedError
from headrace.interfaces.sink import SinkBatch, SinkSettings
from headrace.runtime.sink_faults import NEVER_STORED_ROWS, STORED_BEFORE_ROWS
from headrace.runtime.sink_writer import SinkWriter
from headrace.testing import MemorySink, MemoryTransactionalSink

QUEUE = Queue("q0", "src")


def rows(first: int, count: int) -> Batch:
    offsets = list(range(first, first + count))
    header = {OFFSET: offsets, INDEX: pl.Series([0] * count, dtype=pl.Int32)}
    return Batch(QUEUE, pl.DataFrame({**header, "v": offsets}))


def no_value(value: int) -> bool:
    return True


class Refusing(MemorySink):
    """Raises ``error`` when a row's value is refused, and counts its calls."""

    def __init__(self, refused: Callable[[int], bool] = no_value, error: Callable[[], Exception] = TypeError) -> None:
        super().__init__(SinkSettings(batch_size=10_000))
        self.refused, self.error, self.calls = refused, error, 0

    def batch_insert(self, batch: SinkBatch) -> None:
        self.calls += 1
        if any(self.refused(row["v"]) for row in batch.rows()):
            raise self.error()
        super().batch_insert(batch)


class RefusingTransactional(Refusing, MemoryTransactionalSink):
    """The same with a position in the sink."""

    def __init__(self, refused: Callable[[int], bool] = no_value, error: Callable[[], Exception] = TypeError) -> None:
        MemoryTransactionalSink.__init__(self, SinkSettings(batch_size=10_000))
        self.refused, self.error, self.calls = refused, error, 0


class CheckingTransactional(RefusingTransactional):
    """The same, able to check rows without storing them."""

    def check_rows(self, batch: SinkBatch) -> None:
        if any(self.refused(row["v"]) for row in batch.rows()):
            raise self.error()


class Harness:
    """A writer whose dead letters come as batches."""

    def __init__(self, sink: MemorySink) -> None:
        self.dead: list[Batch] = []
        self.clock = ManualClock()
        self.stopping = threading.Event()
        self.sink = sink
        self.writer = SinkWriter(
            sink,
            "to_memory",
            on_dead_letters=self.dead.append,
            clock=self.clock,
            auto_flush=False,
            stopping=self.stopping,
        )

    def write(self, first: int, count: int) -> None:
        self.writer.write(rows(first, count))
        self.writer.flush()

    @property
    def dead_offsets(self) -> list[int]:
        return [offset for batch in self.dead for offset in batch.frame["offset"].to_list()]


def test_a_sink_that_fails_with_every_row_stops_the_job_naming_itself_and_the_place() -> None:
    sink = Refusing(error=lambda: TypeError("unsupported operand"))
    made = Harness(sink)
    with pytest.raises(JobFailedError) as caught:
        made.write(0, 10_000)
    text = str(caught.value)
    for part in ("'to_memory'", "test_sink_faults.Refusing", "TypeError: unsupported operand", "in batch_insert",
                 "raise self.error()", "src/q0", "headrace.DataError"):  # fmt: skip
        assert part in text
    assert isinstance(caught.value.__cause__, TypeError)
    assert caught.value.__cause__.__traceback__ is not None
    assert made.dead == []
    assert sink.calls < 60


def test_a_small_batch_that_fails_as_a_whole_stops_the_job() -> None:
    made = Harness(Refusing())
    with pytest.raises(JobFailedError, match="each of 3 rows"):
        made.write(0, 3)
    assert made.dead == []


def test_rows_that_come_one_by_one_and_all_fail_stop_the_job_after_a_while() -> None:
    made = Harness(Refusing())
    for offset in range(NEVER_STORED_ROWS - 1):
        made.write(offset, 1)
    assert len(made.dead_offsets) == NEVER_STORED_ROWS - 1
    with pytest.raises(JobFailedError):
        made.write(NEVER_STORED_ROWS, 1)


@pytest.mark.parametrize("kind", [Refusing, RefusingTransactional, CheckingTransactional])
def test_a_batch_of_bad_rows_goes_to_the_dead_letters(kind: type[Refusing]) -> None:
    made = Harness(kind(error=lambda: DataError("too long")))
    made.write(0, 50)
    assert made.dead_offsets == list(range(50))


def test_the_bad_rows_of_a_batch_are_one_batch_of_dead_letters() -> None:
    made = Harness(Refusing(lambda value: value % 3 == 0, lambda: DataError("too long")))
    made.write(0, 300)
    assert [len(batch) for batch in made.dead] == [100]
    assert len(made.sink.rows) == 200


def test_bad_rows_of_a_transactional_sink_are_dead_letters_before_its_position_is_behind_them() -> None:
    sink = RefusingTransactional(lambda value: value in (2, 3), lambda: DataError("too long"))
    made = Harness(sink)
    seen: list[tuple[int, list[int]]] = []
    insert = sink.batch_insert

    def noting(batch: SinkBatch) -> None:
        insert(batch)
        seen.append((batch.last.offset, list(made.dead_offsets)))

    sink.batch_insert = noting  # type: ignore[method-assign]
    made.write(0, 8)
    assert made.dead_offsets == [2, 3]
    assert all(dead == [2, 3] for last, dead in seen if last > 3)
    assert [row["v"] for row in sink.rows] == [0, 1, 4, 5, 6, 7]


def test_a_transactional_sink_that_checks_rows_has_one_batch_of_dead_letters_and_one_of_rows() -> None:
    sink = CheckingTransactional(lambda value: value % 3 == 0, lambda: DataError("too long"))
    made = Harness(sink)
    inserted: list[tuple[int, int]] = []
    insert = sink.batch_insert

    def noting(batch: SinkBatch) -> None:
        insert(batch)
        inserted.append((len(batch), len(made.dead_offsets)))

    sink.batch_insert = noting  # type: ignore[method-assign]
    made.write(0, 300)
    assert [len(batch) for batch in made.dead] == [100]
    assert made.dead_offsets == list(range(0, 300, 3))
    assert inserted == [(200, 100)], "the rows come behind the dead letters, together"
    made.write(0, 300)
    assert [len(batch) for batch in made.dead] == [100], "a replay finds none of them again"


def test_rows_that_pass_the_check_and_are_refused_all_the_same_are_found_one_by_one() -> None:
    sink = CheckingTransactional(lambda value: value in (2, 3, 7), lambda: DataError("known already"))
    check = sink.check_rows

    def blind(batch: SinkBatch) -> None:
        if [row["v"] for row in batch.rows()] == [3]:
            check(batch)

    sink.check_rows = blind  # type: ignore[method-assign]
    made = Harness(sink)
    made.write(0, 10)
    assert made.dead_offsets == [2, 3, 7]
    assert [row["v"] for row in sink.rows] == [0, 1, 4, 5, 6, 8, 9]


def test_a_sink_whose_check_fails_with_every_row_stops_the_job() -> None:
    made = Harness(CheckingTransactional(error=lambda: TypeError("unsupported operand")))
    with pytest.raises(JobFailedError, match=f"each of {NEVER_STORED_ROWS} rows"):
        made.write(0, 1_000)
    assert made.dead == []


@pytest.mark.parametrize("kind", [Refusing, RefusingTransactional, CheckingTransactional])
def test_bad_rows_between_good_ones_are_no_fault_of_the_sink(kind: type[Refusing]) -> None:
    made = Harness(kind(lambda value: value % 2 == 0))
    made.write(0, 8 * NEVER_STORED_ROWS)
    assert len(made.dead_offsets) == 4 * NEVER_STORED_ROWS


def test_some_bad_rows_are_no_fault_of_the_sink_whatever_they_raise() -> None:
    made = Harness(Refusing(lambda value: value < 10))
    made.write(0, 40)
    assert made.dead_offsets == list(range(10))
    assert len(made.sink.rows) == 30


def test_a_sink_that_has_stored_rows_may_refuse_many_before_the_job_stops() -> None:
    bad = range(10, 10 + STORED_BEFORE_ROWS - 1)
    made = Harness(Refusing(lambda value: value in bad))
    made.write(0, 2_000)
    assert made.dead_offsets == list(bad)


def test_a_sink_that_breaks_while_the_job_runs_stops_it() -> None:
    made = Harness(Refusing(lambda value: value >= 10))
    made.write(0, 10)
    with pytest.raises(JobFailedError, match=f"each of {STORED_BEFORE_ROWS} rows"):
        made.write(10, 5_000)


def test_errors_from_different_places_are_those_of_rows() -> None:
    class TwoPlaces(MemorySink):
        def batch_insert(self, batch: SinkBatch) -> None:
            if batch.rows()[0]["v"] % 2:
                raise ValueError("odd")
            raise ValueError("even")

    made = Harness(TwoPlaces())
    made.write(0, 40)
    assert len(made.dead_offsets) == 40


def test_a_job_that_is_told_to_stop_does_not_try_every_row_first() -> None:
    sink = Refusing(error=lambda: DataError("too long"))
    made = Harness(sink)

    def slow(value: int) -> bool:
        made.clock.advance(0.01)
        made.stopping.set()
        return True

    sink.refused = slow
    with pytest.raises(JobFailedError, match="stopped while"):
        made.write(0, 10_000)
    assert sink.calls < 600
    assert made.dead == []


def test_a_job_that_is_told_to_stop_finishes_a_batch_with_a_bad_row() -> None:
    made = Harness(Refusing(lambda value: value == 7))
    made.stopping.set()
    made.write(0, 100)
    assert made.dead_offsets == [7]
    assert len(made.sink.rows) == 99
