"""Why programs of Flink 2.3 are refused or give other rows here. docs/sql.md says it to users ("Programs that Flink publishes")."""

from __future__ import annotations

from collections.abc import Mapping

_LATE = "OVER drops late rows, also behind a restart, where event time goes on; Flink begins without a watermark again and takes them"
_LAST_WINDOW = (
    "windows of processing time that are open when the input ends are given; Flink leaves out those of HOP and CUMULATE"
)
_UNORDERED = "ORDER BY without LIMIT sorts by a time attribute; the option is one of Flink's own tests"

REASONS: Mapping[str, str] = {
    "CorrelateTestPrograms/correlate-cross-join-unnest": "a subquery in an expression gives one column, this one gives two",
    "OverAggregateTestPrograms/over-aggregate-bounded-partitioned-rows-with-out-of-order-records": _LATE,
    "OverAggregateTestPrograms/over-aggregate-bounded-non-partitioned-rows-with-out-of-order-records": _LATE,
    "OverAggregateTestPrograms/over-aggregate-unbounded-partitioned-rows-with-out-of-order-records": _LATE,
    "SortTestPrograms/sort-asc": _UNORDERED,
    "SortTestPrograms/sort-desc": _UNORDERED,
    "WindowTableFunctionTestPrograms/window-table-function-tumble-tvf-union-all": (
        "DESCRIPTOR names a time attribute; a column of VALUES has no WATERMARK"
    ),
    "WindowTableFunctionTestPrograms/window-table-function-hop-tvf-agg-proc-time": _LAST_WINDOW,
    "WindowTableFunctionTestPrograms/window-table-function-cumulate-tvf-agg-proc-time": _LAST_WINDOW,
    "WatermarkAssignerTestPrograms/watermark-assigner-pushdown-computed": (
        "CURRENT_WATERMARK behind a restart is what it was before; Flink begins with NULL again"
    ),
}  # fmt: skip
