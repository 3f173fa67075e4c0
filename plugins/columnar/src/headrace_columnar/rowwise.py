"""Functions that polars does not have, applied value by value in Python. They must not raise for any value."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl


def map_values(value: pl.Expr, function: Callable[[Any], Any], data_type: pl.DataType) -> pl.Expr:
    """Apply a function to each value that is not NULL; NULL stays NULL."""
    return value.map_batches(
        functools.partial(_map_series, function, data_type), return_dtype=data_type, is_elementwise=True
    )


def _map_series(function: Callable[[Any], Any], data_type: pl.DataType, series: pl.Series) -> pl.Series:
    values = [None if value is None else function(value) for value in series.to_list()]
    return pl.Series(series.name, values, dtype=data_type)


def map_rows(values: Sequence[pl.Expr], function: Callable[..., Any], data_type: pl.DataType) -> pl.Expr:
    """Apply a function to the values of each row; NULL when any of them is NULL."""
    if len(values) == 1:
        return map_values(values[0], function, data_type)
    return pl.map_batches(
        list(values), functools.partial(_map_columns, function, data_type), return_dtype=data_type, is_elementwise=True
    )


def _map_columns(function: Callable[..., Any], data_type: pl.DataType, columns: Sequence[pl.Series]) -> pl.Series:
    lists = [column.to_list() for column in columns]
    lengths = {len(values) for values in lists}
    # Constants come as one value beside columns of any height, also none.
    height = max(lengths) if len(lengths) == 1 else max(lengths - {1})
    lists = [values if len(values) == height else values * height for values in lists]
    made = [None if None in row else function(*row) for row in zip(*lists, strict=True)]
    return pl.Series(columns[0].name, made, dtype=data_type)
