"""Rows grouped by equal keys, groups in the order of their first row: by polars, or by compiled code where a plug-in offers that.

Compiled code groups by integers, instants and texts, and adds up integers of 64 bits. For everything else polars does the work. Both give
the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
from headrace.interfaces.accelerators import accelerated

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    #: Takes columns of keys and of numbers, none of which has a NULL; a column of numbers that is None is 1 in each row. Returns the first
    #: row of each group, and of each column of numbers the sums; None where it cannot.
    GroupSums = Callable[
        [Sequence[pl.Series], Sequence[pl.Series | None]],
        tuple[NDArray[np.uint32], Sequence[NDArray[np.int64]]] | None,
    ]

_ALL = "__hr_all"
#: Types of keys whose values are integers of 64 bits.
_WHOLE = (pl.Int64, pl.Datetime, pl.Duration)


@dataclass(frozen=True)
class First:
    """The value of a column in the first row of each group."""

    name: str

    @property
    def expression(self) -> pl.Expr:
        return pl.col(self.name).first()


@dataclass(frozen=True)
class RowCount:
    """The number of rows of each group, as Int64."""

    name: str

    @property
    def expression(self) -> pl.Expr:
        return pl.len().cast(pl.Int64).alias(self.name)


@dataclass(frozen=True)
class WholeSum:
    """The sum of the values of ``value``, an Int64, that are not NULL, in each group; 0 where there are none. It wraps around."""

    name: str
    value: pl.Expr
    #: What polars computes in each group.
    expression: pl.Expr


Aggregation = pl.Expr | First | RowCount | WholeSum


def expressions_of(aggregations: Sequence[Aggregation]) -> list[pl.Expr]:
    """Return the aggregations for polars."""
    return [each if isinstance(each, pl.Expr) else each.expression for each in aggregations]


def grouped(frame: pl.DataFrame, by: Sequence[str], aggregations: Sequence[Aggregation]) -> pl.DataFrame:
    """Return the columns ``by`` and the aggregations of each group, in their order. Without ``by`` all rows are one group."""
    if by:
        made = _by_compiled_code(frame, by, aggregations)
        return frame.group_by(list(by), maintain_order=True).agg(expressions_of(aggregations)) if made is None else made
    whole = frame.with_columns(pl.lit(0, dtype=pl.Int8).alias(_ALL))
    return whole.group_by(_ALL, maintain_order=True).agg(expressions_of(aggregations)).drop(_ALL)


def _by_compiled_code(
    frame: pl.DataFrame, by: Sequence[str], aggregations: Sequence[Aggregation]
) -> pl.DataFrame | None:
    """Return the groups; None where compiled code cannot make them."""
    compiled = group_sums()
    if compiled is no_group_sums or not frame.height:
        return None
    if any(isinstance(each, pl.Expr) for each in aggregations):
        return None
    keys = [frame[name] for name in by]
    if any(key.null_count() or not isinstance(key.dtype, (*_WHOLE, pl.String)) for key in keys):
        return None
    sums = [each for each in aggregations if isinstance(each, WholeSum)]
    counts = [each.name for each in aggregations if isinstance(each, RowCount)]
    # Not ``select``: a constant would be one row there.
    lifted = frame.with_columns(each.value.fill_null(0).alias(each.name) for each in sums)
    numbers = [lifted[each.name] for each in sums]
    found = compiled(
        [key if isinstance(key.dtype, pl.String) else key.to_physical() for key in keys],
        [*numbers, *(None for _ in counts)],
    )
    if found is None:
        return None
    firsts, added = found
    taken = [*by, *(each.name for each in aggregations if isinstance(each, First) and each.name not in by)]
    names = [*(each.name for each in sums), *counts]
    made = [pl.Series(name, values) for name, values in zip(names, added, strict=True)]
    rows = frame.select(taken)[pl.Series(firsts)]
    return rows.with_columns(made).select(*by, *(each.name for each in aggregations if not isinstance(each, pl.Expr)))


def no_group_sums(keys: Sequence[pl.Series], numbers: Sequence[pl.Series | None]) -> None:
    """Leave the work to polars."""


@functools.cache
def group_sums() -> GroupSums:
    return accelerated("group_sums", no_group_sums)
