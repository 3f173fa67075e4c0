"""Joins of rows in the same window: all pairs of a window are given when it closes. Both sides add rows only.

A row whose window has closed before it came is late: it goes to the output ``late``, with NULL for the other side's columns. A row
without a time belongs to no window and goes to the dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, SystemMessage, Tick, Watermark, watermark_times
from headrace.interfaces.operator import RejectedRows
from headrace.interfaces.windows import Window

from headrace_stateful.joins.join_logs import SIDES, TimedJoinLogs
from headrace_stateful.joins.join_shape import NEVER, JoinShape, PairFilter, Part, assembled, has_null
from headrace_stateful.keys.columns import Flags, Places
from headrace_stateful.keys.row_log import RowLog, spread
from headrace_stateful.keys.watermark import event_times_us

WINDOW_START = "window_start"
WINDOW_END = "window_end"
_START = "__hr_window_start"
_END = "__hr_window_end"


def windows_of(window: Window, times: Places) -> tuple[Places, Places, Places]:
    """Return (row, start, end) of all windows of all rows, by row, then by end. Not for sessions."""
    size, every, offset = window.size_us, window.every_us, window.offset_us
    if window.kind == "cumulative":
        start = (times - offset) // size * size + offset
        first = (times - start) // every + 1
        rows, step = spread(first, size // every - first + 1)
        return rows, start[rows], start[rows] + step * every
    last = (times - offset) // every * every + offset
    count = (
        last + size - times - 1
    ) // every + 1  # windows that begin at last, last - every, … and still hold the time
    rows, back = spread(np.zeros_like(count), count)
    start = last[rows] - (count[rows] - 1 - back) * every
    return rows, start, start + size


class WindowJoin(TimedJoinLogs):
    """The running join. ``times``: the event-time columns of the two sides; None: processing time."""

    _time_mark = _END

    def __init__(self, shape: JoinShape, window: Window, times: tuple[str, str] | None, time_type: pl.Datetime) -> None:
        self._shape = shape
        self._window = window
        self._times = times
        self._time_type = time_type
        self._condition = PairFilter(shape)
        bounds = {_START: pl.Int64(), _END: pl.Int64()}
        super().__init__(
            *(RowLog({**shape.schema(side), **bounds}, (*shape.keys(side), _START, _END), (_END,)) for side in range(2))
        )
        self._now_us = NEVER
        self._has_watermarks = True

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        side, frame = SIDES.index(batch.output), batch.frame
        self._has_watermarks = WATERMARK in frame.columns
        if self._times is None:
            times = np.full(frame.height, self._now_us, dtype=np.int64)
            watermarks = times
        else:
            times = event_times_us(frame[self._times[side]])
            watermarks = watermark_times(frame)
        watermarks = np.maximum(watermarks, self._closed_us)
        user = frame.select(list(self._shape.schema(side)))
        if (timeless := np.flatnonzero(times == NEVER)).size:
            assert self._times is not None
            reason = f"no time in column {self._times[side]!r}: the row belongs to no window"
            yield RejectedRows(frame[timeless], [reason] * timeless.size)
        timed = np.flatnonzero(times != NEVER)
        rows, starts, ends = windows_of(self._window, times[timed])
        rows = timed[rows]
        open_still = ends > watermarks[rows]
        yield from self._late_rows(side, batch, frame, user, rows, starts, ends, open_still)
        rows, starts, ends = rows[open_still], starts[open_still], ends[open_still]
        if not self._keeps(side):
            meets = ~has_null(user, self._shape.keys(side))[rows]
            rows, starts, ends = rows[meets], starts[meets], ends[meets]
        bounds = [pl.Series(_START, starts), pl.Series(_END, ends)]
        self._logs[side].append(user[rows].with_columns(bounds), **{_END: ends})
        if self._times is not None:
            yield from self._close(batch.queue, int(watermarks[-1]))

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        if isinstance(message, Tick):
            self._now_us = message.time_us
            if self._times is None:
                yield from self._close(Queue(""), max(message.time_us, self._closed_us))
        elif isinstance(message, Watermark) and self._times is not None:
            yield from self._close(message.queue, max(message.time_us, self._closed_us))
        elif isinstance(message, EndOfInput):
            ends = [log.mark(_END, log.places()) for log in self._logs]
            last = max((int(each.max()) for each in ends if each.size), default=None)
            if last is not None:
                self._closed_us = max(self._closed_us, last)
                yield from self._close(Queue(""), self._closed_us)

    # -------------------------------------------------------------------------------------------------- closing

    def _late_rows(
        self, side: int, batch: Batch, frame: pl.DataFrame, user: pl.DataFrame,
        rows: Places, starts: Places, ends: Places, open_still: Flags,
    ) -> Iterable[Batch]:  # fmt: skip
        """Give the rows that have windows when all of these are closed, with the last of them."""
        if open_still.all():
            return
        has_open: Flags = np.zeros(frame.height, dtype=bool)
        has_open[rows[open_still]] = True
        behind = ~has_open[rows]
        behind[:-1] &= rows[1:] != rows[:-1]
        late = rows[behind]
        if late.size == 0:
            return
        self._late += late.size
        if side == 1 and self._shape.one_sided:
            return  # counted only: the output has no columns for them
        made = self._shape.padded(side, user[late])
        made = made.with_columns(self._bounds(starts[behind], ends[behind]))
        if self._has_watermarks:
            made = made.with_columns(frame[WATERMARK][late])
        yield batch.with_frame(made, "late")

    def _close(self, queue: Queue, watermark_us: int) -> Iterable[Batch]:
        """Return the results of all windows that end at ``watermark_us`` or before, and remove their rows."""
        closing = [log.places_where_below(_END, watermark_us + 1) for log in self._logs]
        if not (closing[0].size or closing[1].size):
            return
        left, right = (log.take(places) for log, places in zip(self._logs, closing, strict=True))
        at, places = self._logs[1].find(left, (*self._shape.left_keys, _START, _END))
        partner = np.searchsorted(closing[1], places)
        meets = ~has_null(left, self._shape.left_keys)[at]
        at, partner = at[meets], partner[meets]
        if self._condition.active and at.size:
            kept, failures = self._condition.kept(left[at], right[partner])
            if failures:
                raise failures[0][1]
            at, partner = at[kept], partner[kept]
        frame = assembled(self._parts(left, right, at, partner), with_watermark=self._has_watermarks, with_change=False)
        for log, gone in zip(self._logs, closing, strict=True):
            log.remove(gone)
            log.tidy()
        if frame is not None:
            yield Batch(queue, frame)

    def _parts(self, left: pl.DataFrame, right: pl.DataFrame, at: Places, partner: Places) -> list[Part]:
        shape, parts = self._shape, []
        if not shape.one_sided and at.size:
            parts.append(self._part(shape.pairs(left[at], right[partner]), left[at]))
        partners = (np.bincount(at, minlength=left.height), np.bincount(partner, minlength=right.height))
        for side, rows in enumerate((left, right)):
            if not self._keeps(side) and not (side == 0 and shape.one_sided):
                continue
            which = np.flatnonzero((partners[side] > 0) == (shape.how == "semi"))
            parts.append(self._part(shape.padded(side, rows[which]), rows[which]))
        return parts

    def _part(self, frame: pl.DataFrame, windowed: pl.DataFrame) -> Part:
        starts, ends = windowed[_START].to_numpy(), windowed[_END].to_numpy()
        return Part(frame.with_columns(self._bounds(starts, ends)), ends, ends - 1)

    def _bounds(self, starts: Places, ends: Places) -> list[pl.Series]:
        instant = pl.Datetime("us", self._time_type.time_zone)
        return [
            pl.Series(name, values).cast(instant).dt.cast_time_unit(self._time_type.time_unit)
            for name, values in ((WINDOW_START, starts), (WINDOW_END, ends))
        ]

    def _keeps(self, side: int) -> bool:
        return self._shape.keeps(side) or (side == 0 and self._shape.how == "anti")
