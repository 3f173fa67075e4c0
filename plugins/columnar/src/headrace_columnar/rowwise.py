"""What polars does not have: functions applied value by value in Python, and float arithmetic by numpy.

The functions must not raise for any value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
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


def by_series(values: Sequence[pl.Expr], function: Callable[..., pl.Series], data_type: pl.DataType) -> pl.Expr:
    """Apply a function of whole series, of one height; it must treat each row by itself.

    For functions that use their operands several times: in an expression, each use would evaluate the operand again, and
    nested uses would multiply.
    """
    return pl.map_batches(
        list(values), functools.partial(_by_series, function), return_dtype=data_type, is_elementwise=True
    )


def _by_series(function: Callable[..., pl.Series], columns: Sequence[pl.Series]) -> pl.Series:
    lengths = {len(column) for column in columns}
    # Constants come as one value beside columns of any height, also none.
    height = max(lengths) if len(lengths) == 1 else max(lengths - {1})
    return function(*(column if len(column) == height else column.new_from_index(0, height) for column in columns))


def float_quotient(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Return a / b of floats, rounded as IEEE 754 says.

    polars divides a column by one value by multiplying with its reciprocal, which differs in the last digit: the result
    would depend on whether a batch holds one row or more.
    """
    return pl.map_batches([a, b], functools.partial(_by_numpy, np.divide), return_dtype=pl.Float64, is_elementwise=True)


def float_remainder(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Return the exact remainder of a / b with the sign of a (C's fmod); polars' depends on the batch as above."""
    return pl.map_batches([a, b], functools.partial(_by_numpy, np.fmod), return_dtype=pl.Float64, is_elementwise=True)


def float_power(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Return a to the power of b; polars' differs in the last digit where b is one value for the whole batch."""
    return by_series([a, b], _power, pl.Float64())


def _power(a: pl.Series, b: pl.Series) -> pl.Series:
    # Both as columns of one height: for one value beside a column, numpy too has another way.
    return _by_numpy(np.power, [a, b])


def _by_numpy(function: np.ufunc, columns: Sequence[pl.Series]) -> pl.Series:
    first, second = columns
    height = len(first) if len(first) != 1 else len(second)
    with np.errstate(all="ignore"):
        values = function(first.to_numpy(), second.to_numpy())
    result = pl.Series(first.name, np.broadcast_to(values, (height,)), dtype=pl.Float64)
    if first.null_count() or second.null_count():
        # numpy has NaN for NULL.
        known = first.is_not_null() & second.is_not_null()
        result = result.zip_with(known, pl.Series([None], dtype=pl.Float64).new_from_index(0, height))
    return result
