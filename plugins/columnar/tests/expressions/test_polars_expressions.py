"""Polars expressions given by users: type and columns, and the refusal of what depends on other rows."""

from __future__ import annotations

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace_columnar.expressions import compile_expression, evaluate

SCHEMA = Schema(
    {
        "a": pl.Int64(),
        "b": pl.Int64(),
        "s": pl.String(),
        "l": pl.List(pl.Int64()),
        "x": pl.Struct({"y": pl.Int64()}),
        "t": pl.Datetime("us", "UTC"),
    }
)
A = pl.col("a")

BY_ROW = {
    "arithmetic": A * 2 + pl.col("b"),
    "alias": (A + 1).alias("z"),
    "case": pl.when(A > 1).then(A).otherwise(pl.col("b")),
    "text": pl.col("s").str.to_lowercase().str.contains("x"),
    "list of values": A.is_in([1, 2]),
    "set of values": A.is_in(pl.Series([1, 2]).implode()),
    "horizontal": pl.max_horizontal("a", "b"),
    "aggregate inside of a list": pl.col("l").list.sum(),
    "evaluation inside of a list": pl.col("l").list.eval(pl.element().sum()),
    "field": pl.col("x").struct.field("y"),
    "struct": pl.struct("a", "b"),
    "time": pl.col("t").dt.truncate("1h"),
    "format": pl.col("s").str.to_datetime("%Y", strict=False),
    "constant": pl.lit(1),
    "elementwise function": A.map_batches(lambda series: series + 1, return_dtype=pl.Int64, is_elementwise=True),
    "function of a value": A.map_elements(lambda value: value, return_dtype=pl.Int64),
    "replace": A.replace({1: 2}),
    "fill": A.fill_null(0),
    "cast": A.cast(pl.String),
}
NOT_BY_ROW = {
    "sum": A.sum(),
    "share of a sum": A / A.sum(),
    "condition on a maximum": pl.when(A.max() > 1).then(A),
    "shift": A.shift(1),
    "difference": A.diff(),
    "running sum": A.cum_sum(),
    "window": A.sum().over("b"),
    "number of rows": pl.len(),
    "row number": pl.int_range(pl.len()),
    "rank": A.rank(),
    "sort": A.sort(),
    "filter": A.filter(A > 1),
    "unique": A.unique(),
    "first": A.first(),
    "head": A.head(1),
    "explode": pl.col("l").explode(),
    "shuffle": A.shuffle(),
    "sample": A.sample(1),
    "forward fill": A.forward_fill(),
    "mean fill": A.fill_null(strategy="mean"),
    "interpolate": A.interpolate(),
    "duplicates": A.is_duplicated(),
    "rolling": A.rolling_mean(2),
    "guessed format": pl.col("s").str.to_datetime(),
    "function of a batch": A.map_batches(lambda series: series, return_dtype=pl.Int64),
    "column of the user's": A + pl.lit(pl.Series([1, 2])),
    "sorted before a list's evaluation": pl.col("l").sort().list.eval(pl.element() + 1),
    "clip to an aggregate": A.clip(0, A.mean()),
    "membership in the column": A.is_in(pl.col("b").implode()),
}
#: Those that are refused since they begin with something that no row has.
NO_VALUE = {"number of rows", "column of the user's"}


@pytest.mark.parametrize("name", BY_ROW)
def test_expressions_of_a_row(name: str) -> None:
    expression = BY_ROW[name]
    compiled = compile_expression(expression, SCHEMA)
    frame = pl.DataFrame(schema=dict(SCHEMA))
    assert compiled.data_type == frame.select(expression).to_series().dtype
    assert compiled.columns == set(expression.meta.root_names()) - {""}
    assert evaluate(compiled, frame)[1] == []


@pytest.mark.parametrize("name", NOT_BY_ROW)
def test_expressions_of_several_rows_are_refused(name: str) -> None:
    what = "is not computed from the row" if name in NO_VALUE else "depends on other rows"
    with pytest.raises(ExpressionError, match=what):
        compile_expression(NOT_BY_ROW[name], SCHEMA)


def test_unknown_columns() -> None:
    with pytest.raises(ExpressionError, match=r"unknown column 'hsot'(.|\n)*did you mean 'host'"):
        compile_expression(pl.col("hsot") + "x", Schema({"host": pl.String()}))
    with pytest.raises(ExpressionError, match=r"case-sensitive: did you mean 'a'"):
        compile_expression(pl.col("A"), SCHEMA)


def test_types_that_do_not_fit() -> None:
    with pytest.raises(ExpressionError, match="columns: a: int64"):
        compile_expression(A.str.to_lowercase(), SCHEMA)


def test_several_columns_at_once() -> None:
    with pytest.raises(ExpressionError, match="gives several columns"):
        compile_expression(pl.col("a", "b"), SCHEMA)
    with pytest.raises(ExpressionError, match="gives several columns"):
        compile_expression(pl.all(), SCHEMA)


def test_neither_text_nor_expression() -> None:
    with pytest.raises(ExpressionError, match="not int: 5"):
        compile_expression(5, SCHEMA)  # type: ignore[arg-type]
