"""Joins within a time bound: ``low <= right time - left time <= high``. Both sides add rows only.

A row is kept as long as a row of the other side that is not late could still join it: a left row of time t until the watermark is
beyond t + high, a right row until it is beyond t - low. A row that comes after that (a late row) still joins the rows
of the other side that are kept then, as in Flink SQL, but is not kept itself. Which rows meet is decided by each row's
own watermark, so that it does not depend on how the input is cut. Rows without a partner are given when their time to
be kept is over.

By the clock (processing time) the time of a row, and the watermark, is that of the clock when its entry was first taken in: rows are
removed as the clock advances, and none is late.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, SystemMessage, Tick, Watermark, watermark_times
from headrace.interfaces.operator import RejectedRows

from headrace_stateful.joins.join_logs import SIDES, TimedJoinLogs
from headrace_stateful.joins.join_shape import (
    NEVER,
    JoinShape,
    PairFilter,
    Part,
    assembled,
    has_null,
    moved,
    rejected_pairs,
)
from headrace_stateful.keys.columns import Flags, Places
from headrace_stateful.keys.row_log import RowLog
from headrace_stateful.keys.watermark import event_times_us

#: The last watermark at which a row can still find a partner.
_UNTIL = "until"
_MATCHED = "matched"
_TIME = "time"
_FOREVER = 2**63 - 1


class IntervalJoin(TimedJoinLogs):
    """The running join. ``low_us`` and ``high_us`` bound how much later than the left row the right one is.

    ``times``: the event-time columns of the two sides; None: processing time.

    Its results are at most ``delay_us`` behind the input watermark: it passes watermarks on that are earlier by this amount.
    """

    _time_mark = _UNTIL

    def __init__(self, shape: JoinShape, times: tuple[str, str] | None, low_us: int, high_us: int) -> None:
        self._shape = shape
        self._times = times
        self._low_us, self._high_us = low_us, high_us
        self._reach = (high_us, -low_us)
        self.delay_us = max(high_us, -low_us, 0)
        self._condition = PairFilter(shape)
        marks = (_UNTIL, _MATCHED, _TIME)
        super().__init__(*(RowLog(dict(shape.schema(side)), shape.keys(side), marks) for side in range(2)))
        self._has_watermarks = True
        self._now_us = NEVER

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        side, frame = SIDES.index(batch.output), batch.frame
        if self._times is None:
            self._has_watermarks = False
            times = np.full(frame.height, self._now_us, dtype=np.int64)
            watermarks = np.maximum(times, self._closed_us)
        else:
            self._has_watermarks = WATERMARK in frame.columns
            times = event_times_us(frame[self._times[side]])
            watermarks = np.maximum(watermark_times(frame), self._closed_us)
        rows = frame.select(list(self._shape.schema(side)))
        alone = has_null(rows, self._shape.keys(side)) | (times == NEVER)
        until = moved(times, self._reach[side])
        at, places, rejected = self._pairs(side, frame, rows, times, watermarks, alone)
        matched = np.zeros(frame.height, dtype=bool)
        matched[at] = True
        parts = self._given(side, rows, watermarks, at, places, matched)
        missed = (until < watermarks) & ~alone
        if self._times is not None:  # by the clock it is only that no partner can come behind the row
            self._late += int(np.count_nonzero(missed))
        if self._waits(side):
            given_up = np.flatnonzero((missed | alone) & ~matched)
            padded = self._shape.padded(side, rows[given_up])
            parts.append(Part(padded, self._rank(watermarks[given_up], 1), watermarks[given_up]))
        kept = np.flatnonzero(~missed & ~alone)
        self._logs[side].append(
            rows[kept],
            **{_UNTIL: until[kept], _MATCHED: matched[kept].astype(np.int64), _TIME: times[kept]},
        )
        parts += self._expired(int(watermarks[-1]))
        yield from self._batches(batch.queue, parts)
        if rejected is not None:
            yield rejected

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows | Watermark]:
        if self._times is None and isinstance(message, Tick):
            self._now_us = max(self._now_us, message.time_us)
            yield from self._batches(Queue(""), self._expired(max(self._now_us, self._closed_us)))
        elif self._times is not None and isinstance(message, Watermark):
            yield from self._batches(message.queue, self._expired(max(message.time_us, self._closed_us)))
            yield Watermark(message.queue, message.time_us - self.delay_us)
        elif isinstance(message, EndOfInput) and (self._waits(0) or self._waits(1)):
            waiting = [log.mark(_UNTIL, log.places()) for log in self._logs]
            last = max((int(each.max()) for each in waiting if each.size), default=None)
            if last is not None:
                self._closed_us = max(self._closed_us, last + 1)
                yield from self._batches(Queue(""), self._expired(self._closed_us))

    # -------------------------------------------------------------------------------------------------- matching

    def _pairs(
        self, side: int, frame: pl.DataFrame, rows: pl.DataFrame, times: Places, watermarks: Places, alone: Flags
    ) -> tuple[Places, Places, RejectedRows | None]:
        """Return (new row, place of a kept row of the other side) of those that join."""
        other = self._logs[1 - side]
        at, places = other.find(rows, self._shape.keys(side))
        theirs = other.mark(_TIME, places)
        apart = times[at] - theirs if side else theirs - times[at]
        fits = (apart >= self._low_us) & (apart <= self._high_us) & ~alone[at]
        fits &= other.mark(_UNTIL, places) >= watermarks[at]
        at, places = at[fits], places[fits]
        rejected = None
        if self._condition.active and at.size:
            new, old = rows[at], other.take(places)
            kept, failures = self._condition.kept(*((old, new) if side else (new, old)))
            rejected = rejected_pairs(frame, at, failures)
            at, places = at[kept], places[kept]
        return at, places, rejected

    def _given(
        self, side: int, rows: pl.DataFrame, watermarks: Places, at: Places, places: Places, matched: Flags
    ) -> list[Part]:
        """Mark the partners of new rows; return pairs, or for a semi join the left rows that have their first partner."""
        shape, other = self._shape, self._logs[1 - side]
        partners, first = np.unique(places, return_index=True)
        fresh = other.mark(_MATCHED, partners) == 0
        other.set_mark(_MATCHED, partners[fresh], np.ones(np.count_nonzero(fresh), dtype=np.int64))
        if not shape.one_sided:
            if at.size == 0:
                return []
            new, old = rows[at], other.take(places)
            pairs = shape.pairs(old, new) if side else shape.pairs(new, old)
            return [Part(pairs, self._rank(watermarks[at], 0), watermarks[at])]
        if shape.how == "anti":
            return []
        if side == 0:
            which = np.flatnonzero(matched)
            return [Part(rows[which], self._rank(watermarks[which], 0), watermarks[which])]
        row = at[first[fresh]]
        order = np.argsort(row, kind="stable")
        found = other.take(partners[fresh][order])
        return [Part(found, self._rank(watermarks[row[order]], 0), watermarks[row[order]])]

    def _expired(self, watermark_us: int) -> list[Part]:
        """Remove the rows that nothing can join any more; return those that become results without a partner."""
        parts = []
        for side, log in enumerate(self._logs):
            places = log.places_where_below(_UNTIL, watermark_us)
            if places.size == 0:
                continue
            if self._waits(side):
                waited = places[log.mark(_MATCHED, places) == 0]
                until = log.mark(_UNTIL, waited)
                order = np.argsort(until, kind="stable")
                padded = self._shape.padded(side, log.take(waited[order]))
                parts.append(Part(padded, self._rank(until[order], 1), until[order]))
            log.remove(places)
        return parts

    def _waits(self, side: int) -> bool:
        """Whether rows of that side come out when they have found no partner."""
        return self._shape.keeps(side) or (self._shape.how == "anti" and side == 0)

    @staticmethod
    def _rank(watermarks: Places, phase: int) -> Places:
        """Order by watermark, then pairs before rows without a partner."""
        return np.clip(watermarks, -(2**61), 2**61) * 2 + phase

    def _batches(self, queue: Queue, parts: list[Part]) -> Iterable[Batch]:
        for part in parts:
            part.watermarks = moved(part.watermarks, -self.delay_us)
        frame = assembled(parts, with_watermark=self._has_watermarks, with_change=False)
        for log in self._logs:
            log.tidy()
        if frame is not None:
            yield Batch(queue, frame)
