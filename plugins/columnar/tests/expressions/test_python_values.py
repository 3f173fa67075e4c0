"""What user functions return is never nested deeper than polars is asked for."""

from __future__ import annotations

from typing import Any

import headrace as hr
import numpy as np
import polars as pl
import pytest
from headrace.flow.rows import DEPTH_MAX, pack_row, unpack_rows
from headrace.flow.schema import Schema, data_type
from headrace.foundation.errors import DataError, FunctionError
from headrace_columnar.expressions import compile_expression, evaluate
from headrace_columnar.python_values import series_of


def itself_as_dict() -> Any:
    made: dict[str, Any] = {}
    made["a"] = made
    return made


def itself_as_list() -> Any:
    made: list[Any] = []
    made.append(made)
    return made


def deep(levels: int) -> Any:
    made: Any = "x"
    for _ in range(levels):
        made = [made]
    return made


HOSTILE = [itself_as_dict(), itself_as_list(), deep(900), {"a": deep(900)}]


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("kind", ["string", "int64", "array<string>", "struct<a: string>", "array<array<int64>>"])
@pytest.mark.parametrize("value", HOSTILE, ids=["dict", "list", "deep", "deep in a dict"])
def test_a_value_without_end_fails_its_row_alone(value: Any, kind: str, vectorized: bool) -> None:
    """polars follows such a value until the stack ends (SIGSEGV), or for minutes."""

    def function(i: Any) -> Any:
        return [value if each == 2 else None for each in i] if vectorized else value if i == 2 else None

    made = hr.udf(returns=kind, name="bad", vectorized=vectorized)(function)
    schema = Schema({"i": pl.Int64()})
    values, failures = evaluate(compile_expression("bad(i)", schema, {"bad": made}), pl.DataFrame({"i": [1, 2, 3]}))
    assert values.to_list() == [None, None, None]
    [(row, error)] = failures
    assert row == 1
    assert isinstance(error, FunctionError | TypeError)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("array<int64>", [1, 2]), ("array<array<int64>>", [[1], []]), ("struct<a: array<string>>", {"a": ["x"]}),
     ("array<int64>", np.array([1, 2])), ("array<int64>", pl.Series([1, 2])), ("array<string>", ("a",))],
)  # fmt: skip
def test_values_as_deep_as_their_type(kind: str, value: Any) -> None:
    assert series_of("v", [None, value], data_type(kind))[0] is None
    assert series_of("v", [None, value], data_type(kind)).null_count() == 1


def test_packed_rows_have_a_bound() -> None:
    assert unpack_rows([pack_row({"a": deep(DEPTH_MAX)})]) == [{"a": deep(DEPTH_MAX)}]
    for value in (deep(DEPTH_MAX + 1), *HOSTILE):
        with pytest.raises(DataError, match="nested more than 100 deep"):
            pack_row({"a": value})
