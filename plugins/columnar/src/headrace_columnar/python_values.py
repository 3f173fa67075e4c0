"""Values that user functions return, as columns: polars must not get a value that is nested more deeply than its type.

polars follows a list that holds itself until the stack ends and the process with it, and takes minutes for one that is
nested 900 deep where a text is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.rows import DEPTH_MAX

_CONTAINERS = (Mapping, list, tuple, set, frozenset, pl.Series)


def series_of(name: str, values: Sequence[Any], data_type: pl.DataType) -> pl.Series:
    """Return the column of these values. Raises TypeError, ValueError, OverflowError or PolarsError for one that is not of
    the type, also when polars panics on it."""
    kinds = {type(value) for value in values}
    if any(issubclass(kind, np.ndarray) for kind in kinds):
        # polars takes arrays of numpy only where every value is one.
        values = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    if any(issubclass(kind, _CONTAINERS) for kind in kinds):
        depth = _depth(data_type)
        if not all(_is_within(value, depth) for value in values):
            raise TypeError(f"a value is nested deeper than {data_type}")
    try:
        return pl.Series(name, values, dtype=data_type, strict=True)
    except pl.exceptions.PanicException as error:
        raise TypeError(str(error)) from None


def is_shallow(value: Any) -> bool:
    """Return whether a value ends: whether it is nested at most as deep as a row may be."""
    return _is_within(value, DEPTH_MAX)


def _depth(data_type: pl.DataType) -> int:
    if isinstance(data_type, pl.List | pl.Array):
        return 1 + _depth(_instance(data_type.inner))
    if isinstance(data_type, pl.Struct):
        return 1 + max((_depth(_instance(field.dtype)) for field in data_type.fields), default=0)
    return DEPTH_MAX if isinstance(data_type, pl.Object) else 0


def _instance(data_type: Any) -> pl.DataType:
    made: pl.DataType = data_type() if isinstance(data_type, type) else data_type
    return made


def _is_within(value: Any, depth: int) -> bool:
    if isinstance(value, pl.Series):
        return depth >= 1
    if not isinstance(value, _CONTAINERS):
        return True
    inner = value.values() if isinstance(value, Mapping) else value
    return depth > 0 and all(_is_within(each, depth - 1) for each in inner)
