"""``changelog-json``: each row of a changelog with its kind, ``{"data": {…}, "op": "+I"}``, as Flink's connectors wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from headrace.flow.changelog import KIND_MARKS
from headrace.flow.messages import ChangeKind
from headrace.interfaces import settings as declared

from headrace_changes.codec import ChangeCodec
from headrace_changes.encoder import Wrapping
from headrace_changes.envelopes import ChangeEnvelope, Parsed, Rows, codes_of, missing_rows
from headrace_changes.settings import ChangeSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KINDS = {mark: kind for kind, mark in KIND_MARKS.items()}


class ChangelogEnvelope(ChangeEnvelope):
    """``op`` and ``data``."""

    def fields(self) -> Mapping[str, Any]:
        return {"op": str | None, "data": self.row | None}

    def rows(self, parsed: Parsed, wanted: NDArray[np.int64]) -> Rows:
        kinds = codes_of(parsed["op"], _KINDS, wanted)
        faults = {}
        for at in wanted[kinds == -1].tolist():
            faults[at] = f'"op" is {parsed["op"][at]!r}, which is none of {", ".join(_KINDS)}'
        known = wanted[kinds >= 0]
        absent = missing_rows(parsed["data"], known)
        for at in known[absent].tolist():
            faults[at] = '"data" is missing'
        there, kinds = known[~absent], kinds[kinds >= 0][~absent]
        if self.upserts:
            kept = kinds != ChangeKind.UPDATE_BEFORE
            there, kinds = there[kept], kinds[kept]
        return Rows(self.values([parsed["data"][at] for at in there.tolist()]), there, there, kinds, faults)


class ChangelogJsonCodec(ChangeCodec):
    """Rows of a changelog with their kinds: +I, -U, +U, -D."""

    Settings: ClassVar[type[declared.Settings]] = ChangeSettings
    envelope: ClassVar[type[ChangeEnvelope]] = ChangelogEnvelope
    wrapping = Wrapping.by_kind(
        {kind: (b'{"data":', b',"op":"%s"}' % mark.encode()) for kind, mark in KIND_MARKS.items()}
    )
