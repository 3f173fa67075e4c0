"""Envelopes with rows in ``data`` and, of updates, the values that changed in ``old``: Canal and Maxwell."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
from headrace.flow.messages import ChangeKind

from headrace_changes.envelopes import ChangeEnvelope, Parsed, Rows, codes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

INSERT, UPDATE, DELETE, NOTHING, EMPTIED = range(5)


class DataOldEnvelope(ChangeEnvelope):
    """An operation, rows, and for updates the old values of columns that have changed. A column that is not in ``old``
    has the value of ``data``.
    """

    operations: ClassVar[Mapping[str, int]]
    #: The field with the operation.
    operation = "type"

    @abstractmethod
    def several(self, value: Any) -> Sequence[Any]:
        """Return the rows in ``data`` or ``old`` of an envelope: none where it is NULL."""

    def rows(self, parsed: Parsed, wanted: NDArray[np.int64]) -> Rows:
        codes = codes_of(parsed[self.operation], self.operations, wanted)
        faults = self._faults(parsed, wanted[codes == -1], wanted[codes == EMPTIED])
        known = (codes >= 0) & (codes < NOTHING)
        at, codes = wanted[known], codes[known]
        data = [self.several(parsed["data"][each]) for each in at.tolist()]
        with_old = np.zeros(len(at), dtype=bool) if self.upserts else codes == UPDATE
        old = [self.several(parsed["old"][each]) for each in at[with_old].tolist()]
        if not _are_whole(data, old, with_old):
            befores = iter(old)
            said = [
                _fault(rows, next(befores) if has else None) for rows, has in zip(data, with_old.tolist(), strict=True)
            ]
            faults |= {each: fault for each, fault in zip(at.tolist(), said, strict=True) if fault is not None}
            good = np.fromiter((fault is None for fault in said), np.bool_, len(said))
            old = [rows for rows, kept in zip(old, good[with_old].tolist(), strict=True) if kept]
            data = [rows for rows, kept in zip(data, good.tolist(), strict=True) if kept]
            at, codes = at[good], codes[good]
        counts = np.fromiter(map(len, data), np.int64, len(data))
        rows, olds = list(chain.from_iterable(data)), list(chain.from_iterable(old))
        return self._made(rows, olds, np.repeat(at, counts), np.repeat(codes, counts), faults)

    def _made(
        self,
        data: Sequence[msgspec.Struct],
        old: Sequence[msgspec.Struct],
        envelopes: NDArray[np.int64],
        codes: NDArray[np.int8],
        faults: dict[int, str],
    ) -> Rows:
        values = self.values(data)
        inserted = ChangeKind.UPDATE_AFTER if self.upserts else ChangeKind.INSERT
        kinds = np.choose(codes, [inserted, ChangeKind.UPDATE_AFTER, ChangeKind.DELETE]).astype(np.int8)
        ranks = np.arange(len(data), dtype=np.int64) * 2 + 1
        if not old:
            return Rows(values, ranks, envelopes, kinds, faults)
        updated = np.flatnonzero(codes == UPDATE)
        places = updated.tolist()
        for column, before in zip(values, self.values(old), strict=True):
            column += [
                column[place] if value is msgspec.UNSET else value for place, value in zip(places, before, strict=True)
            ]
        return Rows(
            values,
            np.concatenate([ranks, updated * 2]),
            np.concatenate([envelopes, envelopes[updated]]),
            np.concatenate([kinds, np.full(len(old), ChangeKind.UPDATE_BEFORE, dtype=np.int8)]),
            faults,
        )

    def _faults(self, parsed: Parsed, unknown: NDArray[np.int64], emptied: NDArray[np.int64]) -> dict[int, str]:
        faults = {}
        for at in unknown.tolist():
            said = parsed[self.operation][at]
            known = ", ".join(name for name, code in self.operations.items() if code < NOTHING)
            faults[at] = (
                f'there is no "{self.operation}"'
                if said is None
                else f'"{self.operation}" is {said!r}, which is none of {known}'
            )
        for at in emptied.tolist():
            faults[at] = (
                f"{parsed[self.operation][at]!r} removes or renames the table, which cannot be said of single rows: "
                "empty what was made of it, and read it anew"
            )
        return faults


def _are_whole(data: Sequence[Sequence[Any]], old: Sequence[Sequence[Any]], with_old: NDArray[np.bool_]) -> bool:
    """Say whether all envelopes have rows, and updates an old row for each, without looking at each."""
    counts = np.fromiter(map(len, data), np.int64, len(data))
    old_counts = np.fromiter(map(len, old), np.int64, len(old))
    if not counts.all() or not np.array_equal(counts[with_old], old_counts):
        return False
    return None not in chain.from_iterable(data) and None not in chain.from_iterable(old)


def _fault(rows: Sequence[Any], befores: Sequence[Any] | None) -> str | None:
    """Return the reason why the rows of an envelope are bad. ``befores``: the old rows of an update."""
    if not rows:
        return '"data" has no row'
    if any(row is None for row in rows):
        return '"data" has a row that is null'
    if befores is None:
        return None
    if len(befores) != len(rows):
        return f'"data" has {len(rows)} rows, and "old" {len(befores)}: an update has as many old rows'
    return '"old" has a row that is null' if any(row is None for row in befores) else None
