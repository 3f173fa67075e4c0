"""Distinct values of groups that have many: the values of a batch are looked up, so that the cost depends on the batch only.

Partials of ``count(DISTINCT …)`` are lists, and to merge two of them is to look at every value of both. For a group with few values that
is the fastest way; for one with tens of thousands, of which a batch brings some hundred, the values are kept in order beside the list.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_stateful.aggregates.aggregates import AggregatePlan
from headrace_stateful.keys.columns import Places

#: Groups with fewer values are merged as they are.
_MANY = 1_000


class DistinctValues:
    """Merges partials of which some are lists of different whole numbers. ``group``: the column that says which group a row is of."""

    def __init__(self, plan: AggregatePlan, group: str) -> None:
        self._plan = plan
        self._group = group
        self._names = [each.name for each in plan.partials if each.kind == "distinct" and _is_whole(each.data_type)]
        #: By slot and column, ascending.
        self._known: dict[int, dict[str, NDArray[np.int64]]] = {}

    def merge(self, before: pl.DataFrame, new: pl.DataFrame, slots: Places) -> pl.DataFrame:
        """Return the merged partials of groups. ``new`` has each of the groups once, ``before`` at most; ``slots``: theirs, by group."""
        before = before.select(new.columns)
        many = self._have_many(before)
        if not many.any():
            return self._plan.merge(pl.concat([before, new]), [self._group])
        groups = before[self._group].to_numpy()
        is_long = np.zeros(slots.size, dtype=bool)
        is_long[groups[many]] = True
        chosen = pl.Series(is_long[new[self._group].to_numpy()])
        # Long lists are not filtered with the other columns: that would copy them.
        at = np.flatnonzero(many)
        long, more = before.drop(self._names)[at], new.filter(chosen)
        # In the order of the values that were there before.
        places = np.empty(slots.size, dtype=np.int64)
        places[more[self._group].to_numpy()] = np.arange(more.height)
        more = more[places[long[self._group].to_numpy()]]
        own = slots[long[self._group].to_numpy()].tolist()
        lists = [self._grown(name, own, before[name], at.tolist(), more[name]) for name in self._names]
        others = pl.concat([long, more.drop(self._names)])
        merged = self._plan.merge(others, [self._group], without=frozenset(self._names))
        made = merged.with_columns(lists).select(new.columns)
        if long.height == before.height and more.height == new.height:
            return made
        rest = pl.concat([before.filter(pl.Series(~many)), new.filter(~chosen)])
        return pl.concat([made, self._plan.merge(rest, [self._group])])

    def forget(self, slots: Places) -> None:
        """Slots are given to other keys, or to none."""
        if self._known:
            for slot in slots.tolist():
                self._known.pop(slot, None)

    def clear(self) -> None:
        self._known = {}

    def _have_many(self, before: pl.DataFrame) -> NDArray[np.bool_]:
        if not self._names or not before.height:
            return np.zeros(before.height, dtype=bool)
        lengths = before.select(pl.max_horizontal(pl.col(name).list.len() for name in self._names))
        return lengths.to_series().fill_null(0).to_numpy() >= _MANY

    def _grown(self, name: str, slots: list[int], before: pl.Series, rows: list[int], new: pl.Series) -> pl.Series:
        """Return the lists in ``rows`` of ``before``, each with the values behind it that its slot has not had, in their order."""
        empty = pl.Series([], dtype=new.dtype.inner)  # type: ignore[attr-defined]
        found = []
        for place, (row, slot) in enumerate(zip(rows, slots, strict=True)):
            had, given = before[row], new[place]
            had = empty if had is None else had
            fresh = self._fresh(slot, name, had, _numbers(given))
            whole = pl.concat([had, pl.Series(fresh, dtype=had.dtype)]) if fresh.size else had
            found.append(whole.implode())
        return pl.concat(found).alias(name)

    def _fresh(self, slot: int, name: str, had: pl.Series, values: Places) -> Places:
        """Return the values that the slot has not had, and note them."""
        known = self._of(slot, name, had)
        at = np.searchsorted(known, values)
        fresh = values[(at == known.size) | (known[np.minimum(at, known.size - 1)] != values)] if known.size else values
        if fresh.size:
            ordered = np.sort(fresh)
            self._known[slot][name] = np.insert(known, np.searchsorted(known, ordered), ordered)
        return fresh

    def _of(self, slot: int, name: str, values: pl.Series) -> NDArray[np.int64]:
        columns = self._known.setdefault(slot, {})
        known = columns.get(name)
        if known is None or known.size != len(values):
            known = columns[name] = np.sort(_numbers(values))
        return known


def _numbers(values: pl.Series | None) -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64) if values is None else values.to_numpy().astype(np.int64, copy=False)


def _is_whole(kind: pl.DataType) -> bool:
    return isinstance(kind, pl.List) and kind.inner in (pl.Int8, pl.Int16, pl.Int32, pl.Int64)
