"""Errors on their way from a worker to the driver."""

from __future__ import annotations

import traceback
from datetime import timedelta

import pytest
from headrace.foundation.errors import DataError, ExpressionError, HeadraceError, JobError, RetriableError
from headrace_spark.transit.failures import WorkerFailure, carried_to_driver, original_error


def carried(error: Exception) -> Exception:
    """Return the error as the driver sees it: through the text of a traceback inside a text of Spark's."""
    with pytest.raises(WorkerFailure) as raised, carried_to_driver():
        raise error
    trace = "".join(traceback.format_exception(raised.value))
    found = original_error(f"Job aborted due to stage failure: Task 0 failed 4 times: {trace}\n\tat org.apache.spark.X")
    assert found is not None
    return found


def test_a_headrace_error_comes_back_as_it_was() -> None:
    error = DataError("bad “record”", job="a.b", queue="q/0", offset=17, hint="look at it")
    found = carried(error)
    assert type(found) is DataError
    assert str(found) == str(error)
    assert (found.queue, found.offset, found.hint) == ("q/0", 17, "look at it")
    assert any("in a worker process" in note and "DataError" in note for note in found.__notes__)


def test_attributes_that_are_no_text_or_number_become_none() -> None:
    found = carried(RetriableError("busy", after=timedelta(seconds=3)))
    assert isinstance(found, RetriableError)
    assert found.after is None


def test_an_expression_error_keeps_its_place() -> None:
    error = ExpressionError("unknown column", text="a + bb", position=4, length=2)
    assert str(carried(error)) == str(error)


class ConnectorError(JobError):
    """An error of a plug-in's own kind."""


def test_a_plugins_own_error_comes_back_as_the_kind_that_it_extends() -> None:
    found = carried(ConnectorError("no such topic", hint="create it"))
    assert type(found) is JobError
    assert str(found) == "no such topic\n  hint: create it"


@pytest.mark.parametrize("error", [ValueError("x"), ZeroDivisionError("division by zero"), OSError("disk full")])
def test_pythons_own_errors_come_back(error: Exception) -> None:
    found = carried(error)
    assert (type(found), str(found)) == (type(error), str(error))


def test_any_other_error_is_named() -> None:
    class Odd(Exception):
        pass

    assert str(carried(Odd("what"))) == "Odd: what"
    assert str(carried(KeyError("k"))) == "KeyError: 'k'"


def test_nothing_of_ours_in_a_text() -> None:
    assert original_error("Py4JJavaError: java.lang.OutOfMemoryError") is None


def test_a_failure_is_not_wrapped_twice() -> None:
    with pytest.raises(WorkerFailure) as raised, carried_to_driver(), carried_to_driver():
        raise ValueError("once")
    assert str(raised.value).count("headrace-failure") == 1
    assert not isinstance(raised.value, HeadraceError)
