"""A batch that makes polars raise or panic: the rows that do fail, the others have their values."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, JobError, RetriableError
from headrace_columnar.evaluation import by_parts
from headrace_columnar.expressions import CompiledExpression, compile_expression, evaluate, evaluate_all

FRAME = pl.DataFrame({"i": [1, 7, 2, None, 7, 3]})


def raising(error: Any) -> CompiledExpression:
    """An expression that raises for batches with a 7, as polars does for what it cannot hold."""

    def values(series: pl.Series) -> pl.Series:
        if (series == 7).any():
            raise error
        return series * 2

    made = pl.col("i").map_batches(values, return_dtype=pl.Int64)
    return CompiledExpression(made, pl.Int64(), frozenset(["i"]), "made up", staged=made)


def panicking(series: pl.Series) -> pl.Series:
    if (series == 7).any():
        # Beyond the calendar of polars: a panic, which Python's "except Exception" does not catch.
        pl.Series([2**31 - 1], dtype=pl.Int32).cast(pl.Date).dt.month_start()
    return series


def test_rows_that_raise_fail_alone() -> None:
    values, failures = evaluate(raising(ValueError("no 7")), FRAME)
    assert values.to_list() == [2, None, 4, None, None, 6]
    assert [(row, type(error)) for row, error in failures] == [(1, DataError), (4, DataError)]
    assert "no 7" in str(failures[0][1])


def test_rows_that_panic_fail_alone(capfd: pytest.CaptureFixture[str]) -> None:
    made = pl.col("i").map_batches(panicking, return_dtype=pl.Int64)
    compiled = CompiledExpression(made, pl.Int64(), frozenset(["i"]), "made up", staged=made)
    values, failures = evaluate(compiled, FRAME)
    assert values.to_list() == [1, None, 2, None, None, 3]
    assert [row for row, _ in failures] == [1, 4]
    capfd.readouterr()  # what Rust says of a panic


def test_predicates_are_false_where_rows_fail() -> None:
    made = pl.col("i").map_batches(panicking, return_dtype=pl.Int64) > 0
    compiled = CompiledExpression(made, pl.Boolean(), frozenset(["i"]), "made up", staged=made, is_predicate=True)
    assert evaluate(compiled, FRAME)[0].to_list() == [True, False, True, None, False, True]


def test_failures_of_checks_and_of_what_raises_come_in_order() -> None:
    schema = Schema({"i": pl.Int64()})
    compiled = [raising(ValueError("no 7")), compile_expression("1 / (i - 2)", schema)]
    values, failures = evaluate_all(compiled, FRAME)
    assert [row for row, _ in failures] == [1, 2, 4]
    assert values.rows() == [(2, -1), (None, None), (None, None), (None, None), (None, None), (6, 1)]


@pytest.mark.parametrize("error", [RetriableError("later"), JobError("wrong"), MemoryError()])
def test_what_is_no_rows_fault_is_raised(error: Exception) -> None:
    def evaluated(frame: pl.DataFrame) -> Any:
        raise error

    with pytest.raises(type(error)):
        by_parts(evaluated, FRAME)


def test_a_frame_without_the_columns_is_an_error() -> None:
    compiled = compile_expression("i + 1", Schema({"i": pl.Int64()}))
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        evaluate(compiled, pl.DataFrame({"other": [1, 2]}))
