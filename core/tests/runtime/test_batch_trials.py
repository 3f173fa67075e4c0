"""Operators that raise for a batch: the rows that are to blame are found, and whose fault it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, TIME, Batch, Queue
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, JobFailedError
from headrace.interfaces.operator import Operator, OperatorSpec, RejectedRows
from headrace.runtime.batch_trials import process_by_rows
from headrace.testing import MemorySink, MemorySource


def batch(*numbers: int) -> Batch:
    count = len(numbers)
    times = pl.Series(TIME, [None] * count, dtype=pl.Datetime("us", "UTC"))
    frame = pl.DataFrame({OFFSET: range(count), INDEX: [0] * count, "n": numbers}, schema_overrides={INDEX: pl.Int32})
    return Batch(Queue("q", "in"), frame.insert_column(2, times))


def inverse(given: Batch) -> Iterable[Batch]:
    """Raises for a batch with a zero in it."""
    return [
        given.with_frame(given.frame.with_columns(pl.Series("n", [60 // n for n in given.frame["n"]], dtype=pl.Int64)))
    ]


def tried(
    process: Callable[[Batch], Any], given: Batch, error: BaseException
) -> tuple[list[int], list[tuple[int, str]]]:
    """Return the numbers that came through, and (offset, reason) of the rows that were rejected."""
    good: list[int] = []
    bad: list[tuple[int, str]] = []
    for each in process_by_rows(process, given, error):
        if isinstance(each, RejectedRows):
            bad += list(zip(each.frame[OFFSET].to_list(), each.reasons, strict=True))
        elif isinstance(each, Batch):
            good += each.frame["n"].to_list()
    return good, bad


def test_rows_that_raise_alone_are_rejected_and_the_others_come_through_in_order() -> None:
    error = ZeroDivisionError("integer division or modulo by zero")
    good, bad = tried(inverse, batch(1, 2, 0, 3, 4, 0, 5), error)
    assert good == [60, 30, 20, 15, 12]
    reason = "this row cannot be processed: integer division or modulo by zero"
    assert bad == [(2, reason), (5, reason)]


def test_a_panic_of_polars_is_taken_like_any_error() -> None:
    def panics(given: Batch) -> Iterable[Batch]:
        if 0 in given.frame["n"]:
            raise pl.exceptions.PanicException("index out of bounds")
        return [given]

    assert tried(panics, batch(1, 0, 2), pl.exceptions.PanicException("index out of bounds"))[0] == [1, 2]


@pytest.mark.parametrize("numbers", [(0,), (1, 2), (0, 0)])
def test_an_operator_that_raises_for_no_rows_is_broken(numbers: tuple[int, ...]) -> None:
    def broken(given: Batch) -> Iterable[Batch]:
        raise KeyError("mistake")

    with pytest.raises(KeyError, match="mistake"):
        process_by_rows(broken, batch(*numbers), KeyError("mistake"))


def test_an_operator_that_raises_for_every_row_is_broken() -> None:
    with pytest.raises(ZeroDivisionError):
        process_by_rows(inverse, batch(0, 0, 0), ZeroDivisionError("by zero"))


def test_errors_raised_on_purpose_are_raised() -> None:
    def refuses(given: Batch) -> Iterable[Batch]:
        if given.frame.height == 1:
            raise DataError("on purpose")
        raise ValueError("not on purpose") if given.frame.height else StopAsyncIteration

    with pytest.raises((DataError, ValueError)):
        process_by_rows(refuses, batch(1, 2), ValueError("not on purpose"))


class Inverse(OperatorSpec):
    name = "inverse"

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def open(self, schema: Schema | None) -> Operator:
        return _Inverse()


class _Inverse(Operator):
    def process(self, batch: Batch) -> Iterable[Batch]:
        return inverse(batch)


def test_a_job_goes_on_and_the_dead_letters_say_which_row_it_was() -> None:
    bodies = [b'{"n": %d}' % n for n in (1, 2, 0, 3)]
    good, bad = MemorySink(), MemorySink()
    stream = hr.stream("test", "trials").from_(MemorySource({"q": bodies}), format="json", schema={"n": "int64"})
    report = stream.apply(Inverse()).dead_letters(lambda letters: letters.to(bad)).to(good).run("light")
    assert [row["n"] for row in good.rows] == [60, 30, 20]
    assert [(row["offset"], row["origin"], row["error"], row["row"]) for row in bad.rows] == [
        (2, "inverse", "ZeroDivisionError", '{"n":0}')
    ]
    assert report.dead_letters == 1


def test_a_lack_of_memory_stops_the_job_instead_of_making_dead_letters() -> None:
    def fills_memory(row: dict[str, Any]) -> dict[str, Any]:
        raise MemoryError

    bad = MemorySink()
    source = MemorySource({"q": [b'{"n": 1}', b'{"n": 2}']})
    stream = hr.stream("test", "trials").from_(source, format="json", schema={"n": "int64"}).map(fills_memory)
    with pytest.raises(JobFailedError, match="MemoryError"):
        stream.dead_letters(lambda letters: letters.to(bad)).to(MemorySink()).run("light")
    assert bad.rows == []


def test_a_stateful_operator_that_raises_fails_the_job_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace_stateful.aggregates.top_n import RunningTopN

    def fails(self: RunningTopN, batch: Batch) -> Iterable[Batch]:
        raise pl.exceptions.PanicException("index out of bounds")

    monkeypatch.setattr(RunningTopN, "process", fails)
    bodies = [b'{"n": %d}' % n for n in (1, 2, 3)]
    stream = hr.stream("test", "trials").from_(MemorySource({"q": bodies}), format="json", schema={"n": "int64"})
    with pytest.raises(JobFailedError, match="'top_n' failed on 3 rows: PanicException: index out of bounds") as caught:
        stream.key_by("n").top_n(1, by="n").to(MemorySink()).run("light")
    cause = caught.value.__cause__
    assert isinstance(cause, JobFailedError)
    assert (cause.job, cause.plugin) == ("test.trials", "top_n")
    assert cause.queue is not None
    assert cause.offset is not None
    assert isinstance(cause.__cause__, pl.exceptions.PanicException)
