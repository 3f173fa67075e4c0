"""Columns of a batch with few values: each value once, and for each row the number of its value.

The path of a program, the name of a browser, the number of an event: such columns have some hundred values in 20,000 rows. What
reads only such columns is searched and evaluated once for each value, and the rows follow by their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Integers = NDArray[np.int64]
#: A column with more values than this part of its rows is not coded.
_DISTINCT_MAX = 0.25
#: Columns with more combinations of values than this are not looked at together.
_COMBINATIONS_MAX = 1 << 20
#: With fewer rows it is as fast to look at each row.
ROWS_MIN = 200
#: Before a whole column is coded, so many of its values are looked at.
_LOOKED_AT = 256
_PAUSE_BATCHES = 8
_PAUSE_BATCHES_MAX = 512


@dataclass(slots=True)
class Coded:
    """The distinct values of a column, or of several together, and for each row the place of its value."""

    values: pl.DataFrame
    codes: Integers
    _rows: tuple[Integers, Integers] | None = None
    #: What expressions give for the values, by slot.
    _computed: dict[int, list[Any]] = field(default_factory=dict)

    def rows_of(self, places: Integers) -> tuple[Integers, Integers]:
        """Return the rows that have the values at these places, and for each row the index of its value in ``places``."""
        if self._rows is None:
            count = self.values.height
            small = self.codes.astype(np.uint16) if count < 1 << 16 else self.codes  # numpy orders these by radix
            order = np.argsort(small, kind="stable")
            self._rows = order, np.concatenate(([0], np.cumsum(np.bincount(self.codes, minlength=count))))
        order, starts = self._rows
        counts = starts[places + 1] - starts[places]
        indexes = np.repeat(np.arange(len(places)), counts)
        begins = starts[places] - np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
        return order[np.repeat(begins, counts) + np.arange(len(indexes))], indexes

    def computed(self, slot: int, expression: pl.Expr) -> list[Any]:
        """Return what an expression over the columns gives for each of the values."""
        found = self._computed.get(slot)
        if found is None:
            found = self._computed[slot] = self.values.select(expression).to_series().to_list()
        return found


class ColumnHabits:
    """Remembers which columns had too many values, so that they are not looked at in every batch. One for each engine."""

    def __init__(self) -> None:
        self._pauses: dict[str, tuple[int, int]] = {}

    def may_be_coded(self, name: str) -> bool:
        left, last = self._pauses.get(name, (0, 0))
        if left:
            self._pauses[name] = left - 1, last
        return not left

    def had_too_many(self, name: str) -> None:
        _, last = self._pauses.get(name, (0, 0))
        pause = min(max(2 * last, _PAUSE_BATCHES), _PAUSE_BATCHES_MAX)
        self._pauses[name] = pause, pause

    def had_few(self, name: str) -> None:
        self._pauses.pop(name, None)


class CodedColumns:
    """The coded columns of one frame, each made when it is first asked for."""

    def __init__(self, frame: pl.DataFrame, habits: ColumnHabits | None = None) -> None:
        self._frame = frame
        self._habits = habits or ColumnHabits()
        self._known: dict[tuple[str, ...], Coded | None] = {}
        self._present: dict[frozenset[str], NDArray[np.bool_]] = {}

    def present(self, names: frozenset[str]) -> NDArray[np.bool_]:
        """Return in which rows all these columns have a value."""
        if names not in self._present:
            every = [self._frame.get_column(name) for name in sorted(names)]
            found = np.ones(self._frame.height, dtype=np.bool_)
            for column in every:
                if column.null_count():
                    found &= column.is_not_null().to_numpy()
            self._present[names] = found
        return self._present[names]

    def of(self, *names: str) -> Coded | None:
        """Return the combined values of some columns; None if there are too many, or if a column does not hold
        texts.
        """
        if names not in self._known:
            self._known[names] = self._coded(names)
        return self._known[names]

    def _coded(self, names: tuple[str, ...]) -> Coded | None:
        if self._frame.height < ROWS_MIN:
            return None
        if len(names) > 1:
            single = [self.of(name) for name in names]
            found = [each for each in single if each is not None]
            return _combined(found) if len(found) == len(names) else None
        name = names[0]
        if not self._habits.may_be_coded(name):
            return None
        column = self._frame.get_column(name)
        coded = _coded_texts(column)
        if coded is not None:
            self._habits.had_few(name)
        elif column.dtype == pl.String:
            self._habits.had_too_many(name)
        return coded


def _coded_texts(column: pl.Series) -> Coded | None:
    if column.dtype != pl.String:
        return None
    nulls, height = column.null_count(), len(column)
    if nulls == height:
        return Coded(column.head(1).to_frame(), np.zeros(height, dtype=np.int64))
    if nulls < height // 2:
        begin = column.head(_LOOKED_AT)
        if begin.n_unique() > 2 * _DISTINCT_MAX * len(begin):
            return None
    # It has its own categories, which are freed with it.
    numbers = column.cast(pl.Categorical(pl.Categories.random())).to_physical()
    missing = int(numbers.max()) + 1  # type: ignore[arg-type]
    if missing > _DISTINCT_MAX * height:
        return None
    codes = (numbers.fill_null(missing) if nulls else numbers).to_numpy().astype(np.int64)
    first = np.full(missing + (nulls > 0), -1, dtype=np.int64)
    first[codes[::-1]] = np.arange(height - 1, -1, -1)
    if (first < 0).any():  # numbers without a value
        present = np.flatnonzero(first >= 0)
        place_of = np.zeros(len(first), dtype=np.int64)
        place_of[present] = np.arange(len(present))
        first, codes = first[present], place_of[codes]
    return Coded(column[first].to_frame(), codes)


def _combined(columns: list[Coded]) -> Coded | None:
    """Return the combinations of values of several columns that there are; None if there are too many."""
    possible = 1
    for each in columns:
        possible *= each.values.height
    if possible > _COMBINATIONS_MAX:
        return None
    keys = np.zeros(len(columns[0].codes), dtype=np.int64)
    for each in columns:
        keys = keys * each.values.height + each.codes
    present = np.flatnonzero(np.bincount(keys, minlength=possible))
    if len(present) > _DISTINCT_MAX * len(keys):
        return None
    place_of = np.zeros(possible, dtype=np.int64)
    place_of[present] = np.arange(len(present))
    left, values = present, []
    for each in reversed(columns):
        left, places = np.divmod(left, each.values.height)
        values.append(each.values.to_series()[places])
    return Coded(pl.DataFrame(values[::-1]), place_of[keys])


def held(parts: Mapping[int, list[Any]], places: Integers, condition: Any) -> NDArray[np.bool_]:
    """Return for which of some places a condition is true. ``parts``: the values of the slots that it reads, by slot."""
    row: list[Any] = [None] * (max(parts, default=-1) + 1)
    holds = np.zeros(len(places), dtype=np.bool_)
    for number, place in enumerate(places.tolist()):
        for slot, values in parts.items():
            row[slot] = values[place]
        holds[number] = condition(row) is True
    return holds
