"""Envelopes with the old row in ``before`` and the new one in ``after``: Debezium and Oracle GoldenGate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from headrace.flow.messages import ChangeKind

from headrace_changes.envelopes import ChangeEnvelope, Parsed, Rows, codes_of, missing_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

CREATE, UPDATE, DELETE, TRUNCATE = range(4)


class BeforeAfterEnvelope(ChangeEnvelope):
    """An operation, the row before it, and the row after it."""

    #: The field with the operation, its values, and the hint for an update without an old row.
    operation: ClassVar[str]
    operations: ClassVar[Mapping[str, int]]
    no_before: ClassVar[str]
    #: The hint for an envelope without an operation.
    no_operation: ClassVar[str] = ""

    def fields(self) -> Mapping[str, Any]:
        return {self.operation: str | None, "before": self.row | None, "after": self.row | None}

    def rows(self, parsed: Parsed, wanted: NDArray[np.int64]) -> Rows:
        befores, afters = parsed["before"], parsed["after"]
        codes = codes_of(parsed[self.operation], self.operations, wanted)
        by_number = np.full(len(befores), -1, dtype=np.int8)
        by_number[wanted] = codes
        new = wanted[(codes == CREATE) | (codes == UPDATE)]
        old = wanted[codes == DELETE] if self.upserts else wanted[(codes == UPDATE) | (codes == DELETE)]
        faults = self._faults(parsed, wanted[codes == -1], wanted[codes == TRUNCATE])
        no_after, no_before = missing_rows(afters, new), missing_rows(befores, old)
        for at in new[no_after].tolist():
            faults[at] = f'"after" is missing, where "{self.operation}" is {parsed[self.operation][at]!r}'
        for at in old[no_before].tolist():
            faults[at] = (
                f'"before" is missing, where "{self.operation}" is {parsed[self.operation][at]!r}: {self.no_before}'
            )
        new, old = new[~no_after], old[~no_before]
        taken = [befores[at] for at in old.tolist()] + [afters[at] for at in new.tolist()]
        inserted = ChangeKind.UPDATE_AFTER if self.upserts else ChangeKind.INSERT
        return Rows(
            self.values(taken),
            np.concatenate([old * 2, new * 2 + 1]),
            np.concatenate([old, new]),
            np.concatenate(
                [
                    np.where(by_number[old] == DELETE, ChangeKind.DELETE, ChangeKind.UPDATE_BEFORE),
                    np.where(by_number[new] == UPDATE, ChangeKind.UPDATE_AFTER, inserted),
                ]
            ).astype(np.int8),
            faults,
        )

    def _faults(self, parsed: Parsed, unknown: NDArray[np.int64], truncates: NDArray[np.int64]) -> dict[int, str]:
        faults = {}
        for at in unknown.tolist():
            said = parsed[self.operation][at]
            faults[at] = (
                f'there is no "{self.operation}"{self.no_operation}'
                if said is None
                else f'"{self.operation}" is {said!r}, which is none of {", ".join(self.operations)}'
            )
        for at in truncates.tolist():
            faults[at] = (
                "the table was truncated, which cannot be said of single rows: empty what was made of it, and read it anew"
            )
        return faults
