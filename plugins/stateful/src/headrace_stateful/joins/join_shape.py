"""What every join has in common: the columns that come out, the condition on pairs, rows without a partner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import polars as pl
from headrace.flow.messages import CHANGE, WATERMARK
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError, did_you_mean
from headrace.interfaces.operator import RejectedRows
from headrace_columnar.evaluation import evaluate
from headrace_columnar.expressions import CompiledExpression, compile_predicate

from headrace_stateful.keys.columns import Flags, Places

How = Literal["inner", "left", "right", "full", "semi", "anti"]
HOWS: Sequence[How] = ("inner", "left", "right", "full", "semi", "anti")
NEVER = -(2**63)


@dataclass(frozen=True)
class JoinShape:
    """The two sides of a join and its output. Immutable; part of the plan."""

    how: How
    left: Schema
    right: Schema
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    suffix: str = "_right"
    where: str | None = None
    functions: Mapping[str, Any] = field(default_factory=dict)
    #: Columns behind those of the two sides.
    extra: Mapping[str, pl.DataType] = field(default_factory=dict)

    def check(self) -> None:
        """Raise PlanError for keys that do not fit and names that meet, ExpressionError for a wrong condition."""
        for left, right in zip(self.left_keys, self.right_keys, strict=True):
            for name, schema in ((left, self.left), (right, self.right)):
                if name not in schema:
                    raise PlanError(
                        f"unknown column {name!r} in the {'left' if schema is self.left else 'right'} stream",
                        hint=did_you_mean(name, list(schema), known="columns"),
                    )
            if not _comparable(self.left[left], self.right[right]):
                raise PlanError(
                    f"{left!r} is {self.left[left]} and {right!r} is {self.right[right]}: values of these types are never equal",
                    hint="convert them to one type with with_columns(…=CAST(… AS …)) before the join",
                )
        names = [*self.left, *self.right_names.values()]
        for name in (*names, *self.extra):
            if [*names, *self.extra].count(name) > 1:
                raise PlanError(f"two columns after the join are called {name!r}", hint="rename one, or give a suffix")
        self.predicate()

    @property
    def right_names(self) -> dict[str, str]:
        """The columns of the right side that pairs have, and their names in the output."""
        once = set()
        if self.how not in ("right", "full"):
            once = {r for left, r in zip(self.left_keys, self.right_keys, strict=True) if left == r}
        return {name: name + self.suffix if name in self.left else name for name in self.right if name not in once}

    @property
    def one_sided(self) -> bool:
        """Whether only columns of the left side come out."""
        return self.how in ("semi", "anti")

    def keeps(self, side: int) -> bool:
        """Return whether rows of that side (0: left) come out without a partner too."""
        return self.how == "full" or self.how == ("left", "right")[side]

    def keys(self, side: int) -> tuple[str, ...]:
        return self.right_keys if side else self.left_keys

    def schema(self, side: int) -> Schema:
        return self.right if side else self.left

    def output_schema(self) -> Schema:
        """Return the columns that come out."""
        return Schema({**self._pair_types(padded=True), **self.extra})

    def predicate(self) -> CompiledExpression | None:
        """Return the compiled condition on pairs, or None."""
        if self.where is None:
            return None
        return compile_predicate(self.where, Schema(self._pair_types(padded=False)), self.functions)

    def pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Return rows that belong together side by side."""
        names = self.right_names
        return pl.concat([left.select(list(self.left)), right.select(list(names)).rename(names)], how="horizontal")

    def padded(self, side: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of one side with NULL for the columns of the other."""
        names = self.right_names
        if self.one_sided:
            return rows.select(list(self.left))
        mine = rows.select(list(names)).rename(names) if side else rows.select(list(self.left))
        types = self._pair_types(padded=True)
        return mine.select(
            [name if name in mine.columns else pl.lit(None, dtype=kind).alias(name) for name, kind in types.items()]
        )

    def _pair_types(self, *, padded: bool) -> dict[str, pl.DataType]:
        types = dict(self.left)
        if not (padded and self.one_sided):
            types |= {new: self.right[old] for old, new in self.right_names.items()}
        return types


class PairFilter:
    """The condition on pairs, ready to run."""

    def __init__(self, shape: JoinShape) -> None:
        self._shape = shape
        self._predicate = shape.predicate()
        self.active = self._predicate is not None

    def kept(self, left: pl.DataFrame, right: pl.DataFrame) -> tuple[Flags, Sequence[tuple[int, Exception]]]:
        """Return which pairs fulfil the condition, and those for which it failed (they do not)."""
        assert self._predicate is not None
        if left.height == 0:
            return np.zeros(0, dtype=bool), ()
        result, failures = evaluate(self._predicate, self._shape.pairs(left, right))
        return result.to_numpy(), failures


@dataclass
class Part:
    """Rows to be given, with what orders them: ``rank`` (then in the order in which they stand), and their watermarks."""

    frame: pl.DataFrame
    rank: Places
    watermarks: Places
    kinds: Places | None = None


def assembled(parts: Sequence[Part], *, with_watermark: bool, with_change: bool) -> pl.DataFrame | None:
    """Return all parts as one frame, ordered by rank; None when there is no row."""
    parts = [part for part in parts if part.frame.height]
    if not parts:
        return None
    frame = parts[0].frame if len(parts) == 1 else pl.concat([part.frame for part in parts])
    rank = np.concatenate([part.rank for part in parts])
    columns = []
    if with_change:
        kinds = [np.zeros(len(part.rank), dtype=np.int64) if part.kinds is None else part.kinds for part in parts]
        columns.append(pl.Series(CHANGE, np.concatenate(kinds).astype(np.int8)))
    if with_watermark:
        columns.append(nullable(WATERMARK, np.concatenate([part.watermarks for part in parts])))
    frame = frame.with_columns(columns)
    if len(rank) > 1 and bool((rank[1:] < rank[:-1]).any()):
        frame = frame[np.argsort(rank, kind="stable")]
    return frame


def rejected_pairs(frame: pl.DataFrame, rows: Places, failures: Sequence[tuple[int, Exception]]) -> RejectedRows | None:
    """Return the rows of a batch for which the condition failed with some partner, each once with the first reason.

    ``rows`` says for each pair which row of the batch it has.
    """
    first: dict[int, Exception] = {}
    for pair, error in failures:
        first.setdefault(int(rows[pair]), error)
    if not first:
        return None
    places = sorted(first)
    reasons = [str(first[place]) for place in places]
    return RejectedRows(frame[places], reasons, [type(first[place]).__name__ for place in places])


def nullable(name: str, values: Places) -> pl.Series:
    """Return whole numbers as a column, NULL for the smallest number."""
    column = pl.Series(name, values)
    return column.set(column == NEVER, None) if bool((values == NEVER).any()) else column


def moved(times: Places, by: int) -> Places:
    """Return times moved by a length; the smallest number stays."""
    return np.where(times == NEVER, NEVER, times + by)


def has_null(frame: pl.DataFrame, columns: Sequence[str]) -> Flags:
    """Return which rows have NULL in one of these columns: they join with nothing."""
    result: Flags = np.zeros(frame.height, dtype=bool)
    for name in columns:
        if frame[name].null_count():
            result |= frame[name].is_null().to_numpy()
    return result


def _comparable(left: pl.DataType, right: pl.DataType) -> bool:
    if left == right:
        return True
    return left.is_integer() and right.is_integer() and pl.UInt64() not in (left, right)
