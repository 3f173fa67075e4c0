"""Rows for windows, aggregated by pane and key before they are sent to a shard."""

from __future__ import annotations

import numpy as np
import polars as pl
from headrace.flow.messages import COMBINED, HEADER_COLUMNS, INDEX, OFFSET, WATERMARK, watermark_times
from headrace.interfaces.operator import Combiner

from headrace_stateful.aggregates.changing_groups import ChangingGroups
from headrace_stateful.aggregates.grouping import First, RowCount
from headrace_stateful.keys.watermark import event_times_us
from headrace_stateful.windows.window_shape import NEVER, WindowShape, panes

#: Where the pane of a row begins.
_PANE = "__hr_pane"


def combiner_of(shape: WindowShape) -> WindowCombiner | None:
    """Return the combiner of windows; None if a result depends on more than the partials of each pane and key.

    Those are results that change, rows that do, aggregates that depend on the order of rows, sessions, processing time, and user functions,
    which run once for each row and where the state is.
    """
    plain = not (shape.changes or shape.plan.order_sensitive or shape.plan.calls_users)
    plain = plain and not isinstance(shape.plan, ChangingGroups)
    aligned = shape.window.on is not None and shape.window.kind != "session"
    return WindowCombiner(shape) if plain and aligned else None


class WindowCombiner(Combiner):
    """Aggregates rows of one pane and key. Rows that may be late, or that cannot be placed, are left as they are.

    Rows of a pane are in the same windows. A row is left as it is if the watermark of its own queue has passed the end of one of
    its windows. The watermark that a shard puts on a row is the least of all queues', and never less than it was before the rows
    that it takes together. So, of the rows that are combined, either all are late for a window, because it was closed before, or
    none is.
    """

    def __init__(self, shape: WindowShape) -> None:
        self._shape = shape
        self.keeps_order = shape.window.kind == "tumbling"

    def combine(self, frame: pl.DataFrame) -> pl.DataFrame:
        shape, on = self._shape, self._shape.window.on
        assert on is not None
        times, watermarks = event_times_us(frame[on]), watermark_times(frame)
        begins, first_ends = panes(shape.window, times)
        fit = (times > NEVER) & (first_ends > np.maximum.accumulate(watermarks))
        inputs, failures = shape.plan.inputs(frame)
        fit[[place for place, _ in failures]] = False
        whole = bool(fit.all())
        raw = frame.clear() if whole else frame.filter(pl.Series(~fit))
        raw = raw.with_columns(pl.lit(None, dtype=pl.Int64).alias(COMBINED))
        if not fit.any():
            return raw
        own = [name for name in (OFFSET, INDEX, WATERMARK, on) if name in frame.columns and name not in shape.keys]
        entries = pl.concat([frame.select(*own, *shape.keys), inputs], how="horizontal")
        entries = entries.with_columns(pl.Series(_PANE, begins))
        if not whole:
            entries = entries.filter(pl.Series(fit))
        others: list[First | RowCount] = [*(First(name) for name in own), RowCount(COMBINED)]
        made = shape.plan.partial(entries, [_PANE, *shape.keys], others=others).drop(_PANE)
        if whole:
            return made  # groups are in the order of their first row
        return pl.concat([raw, made], how="diagonal").sort(OFFSET, INDEX, maintain_order=True)


def taken_apart(frame: pl.DataFrame, shape: WindowShape) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows that are unchanged, and the combined rows."""
    as_they_came = frame[COMBINED].is_null()
    own = [name for name in (*HEADER_COLUMNS, *shape.schema) if name in frame.columns]
    if as_they_came.all():
        return frame.select(own), frame.clear()
    if not as_they_came.any():
        return frame.select(own).clear(), frame
    return frame.filter(as_they_came).select(own), frame.filter(~as_they_came)
