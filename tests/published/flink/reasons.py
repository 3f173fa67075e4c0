"""Why programs of Flink 2.3 are refused or give other rows here. docs/sql.md says it to users ("Programs that Flink publishes").

``make flink-programs`` runs them on Flink itself, too, as a stream in one run, and takes a reason only if what it says of Flink is so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Reason:
    """Why. ``flink``: what it does of this program, run without the stop."""

    why: str
    flink: Literal["gives the same without the stop", "refuses it, too"]


_LATE = "OVER drops late rows, also behind a stop, where event time goes on; Flink begins without a watermark again and takes them"

REASONS: Mapping[str, Reason] = {
    "CorrelateTestPrograms/correlate-cross-join-unnest (CORRELATE_CROSS_JOIN_UNNEST_2)": Reason(
        "a subquery in an expression gives one column, this one gives two; none of Flink's tests runs it", "refuses it, too"
    ),
    "OverAggregateTestPrograms/over-aggregate-bounded-non-partitioned-rows-with-out-of-order-records": Reason(
        _LATE, "gives the same without the stop"
    ),
    "OverAggregateTestPrograms/over-aggregate-unbounded-partitioned-rows-with-out-of-order-records": Reason(
        _LATE, "gives the same without the stop"
    ),
    "WindowTableFunctionTestPrograms/window-table-function-tumble-tvf-union-all": Reason(
        "DESCRIPTOR names a time attribute; a column of VALUES has no WATERMARK. Flink's tests run it as a batch", "refuses it, too"
    ),
    "WatermarkAssignerTestPrograms/watermark-assigner-pushdown-computed": Reason(
        "CURRENT_WATERMARK behind a stop is what it was before; Flink begins with NULL again", "gives the same without the stop"
    ),
}  # fmt: skip
