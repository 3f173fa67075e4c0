"""Parts of rules, evaluated once for each distinct value of a column, or of several together (see ``coded_columns``).

Of a rule without a trigger this finds the rows that it may match: rows that no part excludes are candidates, which are verified as all
others. Of a rule whose trigger is met in many rows it excludes most of these before they are verified row by row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_rules.coded_columns import ROWS_MIN, CodedColumns, held
from headrace_rules.prepared import CheapPart, PreparedCondition, Preparer

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
#: A rule that more than this part of the rows may match is evaluated on whole columns.
_KEPT_MAX = 0.1
#: A rule with fewer candidates is verified row by row.
_MANY = 100
#: A part is evaluated for values only if there are so many rows for each.
_ROWS_PER_VALUE = 2
#: Parts of a condition, with the columns that each reads.
_Parts = list[tuple[tuple[str, ...], CheapPart]]


class DistinctValues:
    """Finds the rows that rules may match, by the values of columns that have few."""

    def __init__(self, conditions: Sequence[PreparedCondition], preparer: Preparer) -> None:
        self._conditions = conditions
        self._preparer = preparer
        self._slots = preparer.slots
        self._known_parts: dict[int, _Parts] = {}

    def candidates(
        self, frame: pl.DataFrame, coded: CodedColumns, rules: Integers, count: int
    ) -> tuple[Integers, Integers]:
        """Return candidates (``row * count + rule``, in any order) of some of the rules, and the rules that this decides nothing of."""
        if frame.height < ROWS_MIN:
            return np.zeros(0, dtype=np.int64), rules
        pairs = []
        rest = []
        for rule in rules.tolist():
            kept = self._kept(coded, rule)
            if kept is None or kept.sum() > _KEPT_MAX * frame.height:
                rest.append(rule)
            else:
                pairs.append(np.flatnonzero(kept) * count + rule)
        found = np.concatenate(pairs) if pairs else np.zeros(0, dtype=np.int64)
        return found, np.array(rest, dtype=np.int64)

    def possible(self, coded: CodedColumns, candidates: Integers, count: int) -> Integers:
        """Return the candidates (ordered) without those of rules with many that the values of columns exclude."""
        rules = candidates % count
        sizes = np.bincount(rules, minlength=count)
        many = np.flatnonzero(sizes >= _MANY)
        if not len(many):
            return candidates
        order = np.argsort(rules.astype(np.uint16) if count < 1 << 16 else rules, kind="stable")
        ends = np.cumsum(sizes)
        stays = np.ones(len(candidates), dtype=np.bool_)
        for rule in many.tolist():
            places = order[ends[rule] - sizes[rule] : ends[rule]]
            kept = self._kept(coded, rule, candidates[places] // count)
            if kept is not None:
                stays[places[~kept]] = False
        return candidates[stays]

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

    def _kept(self, coded: CodedColumns, rule: int, rows: Integers | None = None) -> Booleans | None:
        """Return which of some rows (default: all) no part excludes; None if there is no part that can be looked at."""
        kept: Booleans | None = None
        condition = self._conditions[rule]
        needed = self._preparer.parts(condition).needed if rows is None and not condition.is_whole else None
        if needed:
            kept = coded.present(needed)
            if not kept.any():
                return kept
        for names, part in self._parts(rule):
            values = coded.of(*names)
            if values is None:
                continue
            codes = values.codes if rows is None else values.codes[rows]
            asked = codes if kept is None else codes[kept]
            present = np.flatnonzero(np.bincount(asked, minlength=values.values.height))
            if rows is not None and _ROWS_PER_VALUE * len(present) > len(asked):
                continue
            parts = {slot: values.computed(slot, self._slots.expressions[slot]) for slot in part.slots}
            holds = np.zeros(values.values.height, dtype=np.bool_)
            holds[present] = held(parts, present, part.condition)
            found = holds[codes]
            kept = found if kept is None else kept & found
            if not kept.any():
                break
        return kept
