"""Parts of rules without a trigger, evaluated once for each distinct value of a column, or of several together.

Columns such as the path of a program or the name of a browser have few values. A part of a condition that reads only such columns is
evaluated on these values. Rows that no part excludes are candidates, which are verified as all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_rules.prepared import CheapPart, PreparedCondition, Preparer

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
#: Of a column with more values than this part of its rows the values are not looked at.
_DISTINCT_MAX = 0.25
#: A rule that more than this part of the rows may match is evaluated on whole columns.
_KEPT_MAX = 0.1
#: Columns with more combinations of values than this are not looked at together.
_COMBINATIONS_MAX = 1 << 20
#: With fewer rows it is as fast to evaluate whole columns.
_ROWS_MIN = 200
#: Parts of a condition, with the columns that each reads.
_Parts = list[tuple[tuple[str, ...], CheapPart]]


@dataclass(frozen=True, slots=True)
class _Values:
    """The distinct values of a column, and for each row the place of its value."""

    values: pl.DataFrame
    codes: Integers


class DistinctValues:
    """Finds the rows that rules without a trigger may match."""

    def __init__(self, conditions: Sequence[PreparedCondition], preparer: Preparer) -> None:
        self._conditions = conditions
        self._preparer = preparer
        self._slots = preparer.slots
        self._known_parts: dict[int, _Parts] = {}

    def candidates(self, frame: pl.DataFrame, rules: Integers, count: int) -> tuple[Integers, Integers]:
        """Return candidates (``row * count + rule``, in any order) of some of the rules, and the rules that this decides nothing of."""
        if frame.height < _ROWS_MIN:
            return np.zeros(0, dtype=np.int64), rules
        known: dict[tuple[str, ...], _Values | None] = {}
        pairs = []
        rest = []
        for rule in rules.tolist():
            rows = self._rows(frame, self._parts(rule), known)
            if rows is None or len(rows) > _KEPT_MAX * frame.height:
                rest.append(rule)
            else:
                pairs.append(rows * count + rule)
        found = np.concatenate(pairs) if pairs else np.zeros(0, dtype=np.int64)
        return found, np.array(rest, dtype=np.int64)

    def _parts(self, rule: int) -> _Parts:
        """Return the parts of a rule that read columns, with these; those of few columns and the cheapest first."""
        found = self._known_parts.get(rule)
        if found is None:
            condition = self._conditions[rule]
            cheap = () if condition.is_whole else self._preparer.parts(condition).cheap
            found = [(tuple(sorted(part.columns_of(self._slots))), part) for part in cheap if part.slots]
            found.sort(key=lambda one: (len(one[0]), one[1].cost))
            self._known_parts[rule] = found
        return found

    def _rows(
        self,
        frame: pl.DataFrame,
        parts: Iterable[tuple[tuple[str, ...], CheapPart]],
        known: dict[tuple[str, ...], _Values | None],
    ) -> Integers | None:
        """Return the rows that no part excludes; None if there is no part that can be looked at."""
        kept: Booleans | None = None
        for names, part in parts:
            values = _known_values(frame, names, known)
            if values is None:
                continue
            holds = self._holds(values.values, part)[values.codes]
            kept = holds if kept is None else kept & holds
            if not kept.any():
                break
        return None if kept is None else np.flatnonzero(kept).astype(np.int64, copy=False)

    def _holds(self, values: pl.DataFrame, part: CheapPart) -> Booleans:
        wanted = sorted(part.slots)
        found = values.select([self._slots.expressions[slot] for slot in wanted])
        columns: list[Sequence[object]] = [()] * (wanted[-1] + 1)
        for slot, column in zip(wanted, found.get_columns(), strict=True):
            columns[slot] = column.to_list()
        condition = part.condition
        row: list[object] = [None] * len(columns)
        holds = np.zeros(values.height, dtype=np.bool_)
        for place in range(values.height):
            for slot in wanted:
                row[slot] = columns[slot][place]
            holds[place] = condition(row) is True
        return holds


def _known_values(
    frame: pl.DataFrame, names: tuple[str, ...], known: dict[tuple[str, ...], _Values | None]
) -> _Values | None:
    """Return the distinct values of some columns together; None if there are too many."""
    if names not in known:
        if len(names) == 1:
            known[names] = _values_of(frame.get_column(names[0]))
        else:
            single = [_known_values(frame, (name,), known) for name in names]
            found = [each for each in single if each is not None]
            known[names] = _combined(found) if len(found) == len(names) else None
    return known[names]


def _combined(columns: Sequence[_Values]) -> _Values | None:
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
    return _Values(pl.DataFrame(values[::-1]), place_of[keys])


def _values_of(column: pl.Series) -> _Values | None:
    """Return the distinct values of a column of texts; None if it has too many, or another type."""
    if column.dtype != pl.String or column.n_unique() > _DISTINCT_MAX * len(column):
        return None
    # Categories of its own: they are freed with it.
    coded = column.cast(pl.Categorical(pl.Categories.random()))
    values = coded.unique()
    numbers = values.to_physical()
    missing = int(numbers.max() or 0) + 1  # type: ignore[arg-type]
    place_of = np.zeros(missing + 1, dtype=np.int64)
    place_of[numbers.fill_null(missing).to_numpy()] = np.arange(len(values))
    codes = place_of[coded.to_physical().fill_null(missing).to_numpy()]
    return _Values(values.cast(pl.String).to_frame(), codes)
