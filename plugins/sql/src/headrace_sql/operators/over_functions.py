"""Functions with OVER: what each row gets from the rows of its frame.

Rows stand by group, then in their order; ``over`` gives the results as a column. Where those rows come from, and when they are given,
is a matter of the operators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import polars as pl
from headrace.interfaces.functions import AggregateFunction
from headrace.interfaces.state_definition import quoted
from headrace_stateful.aggregates.aggregate_partials import UserFold

#: Columns that rows have beside their own: the number of their group, and what orders them within it.
GROUP, ORDER = "__over_group", "__over_ts"


@dataclass(frozen=True)
class OverCall:
    """One aggregate. ``preceding``: rows, or microseconds with RANGE; None: all rows before."""

    FUNCTIONS: ClassVar[tuple[str, ...]] = (
        "COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LAG", "LEAD", "LISTAGG", "STDDEV_POP", "STDDEV_SAMP", "VAR_POP",
        "VAR_SAMP", "ROW_NUMBER", "RANK", "DENSE_RANK",
        "NTILE", "PERCENT_RANK", "CUME_DIST",
    )  # fmt: skip
    #: Functions that number the rows, and what tells where a row stands among all; they have no argument.
    RANKS: ClassVar[tuple[str, ...]] = ("ROW_NUMBER", "RANK", "DENSE_RANK", "NTILE", "PERCENT_RANK", "CUME_DIST")
    #: Functions that ask for the rows behind a row.
    AHEAD: ClassVar[tuple[str, ...]] = ("LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST")

    function: str
    argument: str | None
    kind: str
    preceding: int | None
    distance: int = 1
    distinct: bool = False
    #: The value of LAG if there is no such row, and the separator of LISTAGG.
    default: Any = None
    #: The user's aggregate function of that name, and the columns of its arguments.
    user: AggregateFunction | None = None
    arguments: tuple[str, ...] = ()

    def setting(self) -> dict[str, Any]:
        """Return the call as JSON values, for the definition of a state."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("user", "arguments")}
        given |= {"argument": None if self.argument is None else quoted(self.argument), "default": repr(self.default)}
        return given if self.user is None else {**given, "arguments": [quoted(each) for each in self.arguments]}

    def result_type(self, schema: Mapping[str, pl.DataType]) -> pl.DataType:
        """Return the type of the result for a type of the argument."""
        if self.user is not None:
            return self.user.return_type
        if self.function in ("PERCENT_RANK", "CUME_DIST"):
            return pl.Float64()
        if self.function == "COUNT" or self.function in self.RANKS:
            return pl.Int64()
        kind = schema[str(self.argument)]
        if self.function == "SUM" and kind.is_integer():
            return pl.Int64()
        if self.function == "SUM" and isinstance(kind, pl.Decimal):
            return pl.Decimal(38, kind.scale)
        if self.function == "AVG" and isinstance(kind, pl.Decimal):
            return pl.Decimal(38, max(6, kind.scale))
        if self.function == "AVG" and not isinstance(kind, pl.Float32):
            return pl.Int64() if kind.is_integer() else pl.Float64()
        if self.function.startswith(("STDDEV", "VAR")) and isinstance(kind, pl.Decimal):
            return pl.Decimal(38, max(6, kind.scale))
        return kind


def over(call: OverCall, rows: pl.DataFrame) -> pl.Series:
    """Return the result of a call for each row; rows stand by group, then in their order."""
    height = rows.height
    if not height:
        return pl.Series([], dtype=call.result_type(rows.schema))
    groups = rows[GROUP].to_numpy()
    places = np.arange(height)
    begins = np.searchsorted(groups, groups, "left")
    ends = places + 1
    times = rows[ORDER].to_numpy()
    if call.function in call.RANKS:
        return _placed(call, groups, times, begins)
    if call.function in ("LAG", "LEAD"):
        # Rows of equal times are one frame: the row before is that before the last of them.
        last = _range(groups, times, begins, None)[1] - 1 if call.kind == "RANGE" else places
        at = last - call.distance if call.function == "LAG" else last + call.distance
        valid = (at >= begins) & (at < np.searchsorted(groups, groups, "right"))
        taken = rows[str(call.argument)][np.where(valid, at, 0)]
        default = pl.lit(call.default, dtype=None if call.default is None else taken.dtype)
        return pl.select(pl.when(pl.Series(valid)).then(taken).otherwise(default)).to_series()
    starts = begins
    if call.kind == "ROWS" and call.preceding is not None:
        starts = np.maximum(begins, places - call.preceding)
    elif call.kind == "RANGE":
        starts, ends = _range(groups, times, begins, call.preceding)
    if call.user is not None:
        return _of_user(call, call.user, rows, starts, ends)
    if call.argument is None:
        return pl.Series(ends - starts)
    return _reduced(call, rows[call.argument], starts, ends, begins)


def _placed(call: OverCall, groups: Any, times: Any, begins: Any) -> pl.Series:
    """Return the place of each row in its group."""
    places = np.arange(len(groups))
    if call.function == "ROW_NUMBER":
        return pl.Series(places - begins + 1)
    sizes = np.searchsorted(groups, groups, "right") - begins
    if call.function == "NTILE":  # the first of the parts have one row more
        least, more = np.divmod(sizes, call.distance)
        place = places - begins
        longer = more * (least + 1)
        return pl.Series(
            np.where(place < longer, place // (least + 1), more + (place - longer) // np.maximum(least, 1)) + 1
        )
    new = np.ones(len(groups), dtype=bool)
    new[1:] = (times[1:] != times[:-1]) | (groups[1:] != groups[:-1])
    if call.function == "DENSE_RANK":
        passed = np.cumsum(new)
        return pl.Series(passed - passed[begins] + 1)
    if call.function == "CUME_DIST":
        return pl.Series((_range(groups, times, begins, None)[1] - begins) / sizes)
    ranks = np.maximum.accumulate(np.where(new, places, 0)) - begins + 1
    return pl.Series(ranks if call.function == "RANK" else (ranks - 1) / np.maximum(sizes - 1, 1))


def _range(groups: Any, times: Any, begins: Any, preceding: int | None) -> tuple[Any, Any]:
    """Return the first and last row of RANGE frames: rows of equal times belong to each other's frames."""
    starts, ends = begins.copy(), np.empty_like(begins)
    for begin in np.unique(begins):
        end = np.searchsorted(groups, groups[begin], "right")
        own = times[begin:end]
        ends[begin:end] = begin + np.searchsorted(own, own, "right")
        if preceding is not None:
            starts[begin:end] = begin + np.searchsorted(own, own - preceding, "left")
    return starts, ends


def _reduced(call: OverCall, values: pl.Series, starts: Any, ends: Any, begins: Any) -> pl.Series:
    """Return an aggregate of the values that are not NULL between two places of each row."""
    present = values.is_not_null().to_numpy()
    before = np.concatenate([[0], np.cumsum(present)])
    first, last = before[starts], before[ends]
    counts = last - first
    if call.function == "COUNT" and not call.distinct:
        return pl.Series(counts)
    known = values.drop_nulls()
    if call.function in ("FIRST_VALUE", "LAST_VALUE"):
        at = np.where(counts > 0, first if call.function == "FIRST_VALUE" else last - 1, 0)
        taken = known[at] if known.len() else values.clear(len(at))
        return pl.select(pl.when(pl.Series(counts > 0)).then(taken)).to_series()
    if call.distinct or call.function not in ("SUM", "AVG", "MIN", "MAX"):
        segments = zip(first.tolist(), last.tolist(), strict=True)
        listed = known.to_list()
        kind = call.result_type({str(call.argument): values.dtype})
        return pl.Series([_of_values(call, listed[a:b]) for a, b in segments], dtype=kind, strict=False)
    ufunc = {"MIN": np.minimum, "MAX": np.maximum}.get(call.function, np.add)
    numeric = values.dtype.is_integer() or values.dtype.is_float()
    array = (
        known.cast(pl.Int64).to_numpy()
        if values.dtype.is_integer()
        else known.cast(pl.Float64).to_numpy()  # sums of FLOAT are rounded to FLOAT in the end only
        if numeric
        else np.array(known.to_list(), dtype=object)
    )
    totals = _segments(ufunc, array, first, last, before[begins], unbounded=call.preceding is None)
    if call.function == "AVG":
        if isinstance(values.dtype, pl.Float32):  # as that of a group
            totals = pl.Series(totals, dtype=pl.Float32).to_list()
        totals = [
            None if total is None else _average(total, count)
            for total, count in zip(totals, counts.tolist(), strict=True)
        ]
    dtype = None if numeric or call.function == "AVG" else values.dtype
    if isinstance(values.dtype, pl.Decimal) and call.function == "AVG":
        scale = max(6, values.dtype.scale)
        step = Decimal(1).scaleb(-scale)
        rounded = [None if each is None else each.quantize(step, rounding=ROUND_HALF_UP) for each in totals]
        return pl.Series(rounded, dtype=pl.Decimal(38, scale))
    if dtype is not None and isinstance(dtype, pl.Decimal) and call.function == "SUM":
        dtype = pl.Decimal(38, dtype.scale)
    return pl.Series(totals, dtype=dtype, strict=False)


def _of_user(call: OverCall, function: AggregateFunction, rows: pl.DataFrame, starts: Any, ends: Any) -> pl.Series:
    """Return the result of a user's aggregate for the frame of each row. It also gets rows with NULL."""
    fold, given = UserFold(function), rows.select(call.arguments).to_dicts()
    made: list[Any] = []
    start, end, state = -1, -1, None
    for first, last in zip(starts.tolist(), ends.tolist(), strict=True):
        if first != start or last < end:
            start, end, state = first, first, None
        if last > end or state is None:
            state = fold.extended(state, given[end:last])
            end = last
        made.append(fold.result(state))
    return pl.Series(made, dtype=function.return_type, strict=False)


def _of_values(call: OverCall, values: list[Any]) -> Any:
    """Return an aggregate of the values of one frame, of which none is NULL."""
    if call.distinct:
        values = list(dict.fromkeys(values))
    if call.function == "COUNT":
        return len(values)
    if not values:
        return None
    if call.function == "LISTAGG":
        return ("," if call.default is None else str(call.default)).join(values)
    if call.function in ("MIN", "MAX"):
        return min(values) if call.function == "MIN" else max(values)
    total = sum(values[1:], values[0])
    if call.function == "SUM":
        return total
    if call.function == "AVG":
        return _average(total, len(values))
    count = len(values) - call.function.endswith("SAMP")
    if not count:
        return None
    mean = float(total) / len(values)
    variance = math.fsum((float(each) - mean) ** 2 for each in values) / count
    made = math.sqrt(variance) if call.function.startswith("STDDEV") else variance
    return int(made) if isinstance(values[0], int) else Decimal(repr(made)) if isinstance(values[0], Decimal) else made


def _average(total: Any, count: int) -> Any:
    if isinstance(total, int):
        return int(abs(total) // count) * (1 if total >= 0 else -1)
    if isinstance(total, Decimal):
        return total / count
    return float(total) / count


def _segments(ufunc: Any, array: Any, first: Any, last: Any, begins: Any, *, unbounded: bool) -> list[Any]:
    """Return the reduction of each segment [first, last), None for empty ones."""
    if not len(array):
        return [None] * len(first)
    empty = last <= first
    if unbounded:
        running = np.empty_like(array)
        cuts = [*np.unique(begins).tolist(), len(array)]
        for begin, end in pairwise(cuts):
            if end > begin:
                running[begin:end] = ufunc.accumulate(array[begin:end])
        made = running[np.where(empty, 0, last - 1)]
    else:
        padded = np.concatenate([array, array[-1:]])
        pairs = np.stack(
            [np.minimum(first, len(array)), np.minimum(np.maximum(last, first), len(array))], axis=1
        ).ravel()
        made = ufunc.reduceat(padded, pairs)[::2]
    return [None if none else value for none, value in zip(empty.tolist(), made.tolist(), strict=True)]
