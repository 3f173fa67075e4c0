"""The base of every window operator: it takes rows, returns those that belong to no window, and advances time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from headrace.flow import changelog
from headrace.flow.messages import (
    CHANGE,
    COMBINED,
    INDEX,
    OFFSET,
    Batch,
    EndOfInput,
    Queue,
    SystemMessage,
    Tick,
    Watermark,
    watermark_times,
)
from headrace.interfaces.operator import RejectedRows, StatefulOperator

from headrace_stateful.aggregates.changing_groups import ChangingGroups
from headrace_stateful.keys.watermark import event_times_us
from headrace_stateful.windows.window_combiner import taken_apart
from headrace_stateful.windows.window_shape import NEVER, Times, WindowShape

Results = Iterable[Batch | RejectedRows]


@dataclass(frozen=True, slots=True)
class Arrived:
    """Rows that can be placed: as they came, with keys and inputs of the aggregates, event times and watermarks."""

    frame: pl.DataFrame
    values: pl.DataFrame
    times: Times
    watermarks: Times

    def rows(self, places: Times) -> Arrived:
        """Return some of the rows."""
        return Arrived(self.frame[places], self.values[places], self.times[places], self.watermarks[places])


class WindowOperator(StatefulOperator):
    """Takes batches and messages; what windows there are and when they give results is up to ``accept`` and ``advance``.

    Time is event time, in microseconds since the Unix epoch; for windows of processing time that of the clock when the entry was
    first taken in, which is watermark and time of its rows.
    """

    #: Whether rows bring time on, or only the Watermark that comes behind them.
    advances_by_rows = True

    def __init__(self, shape: WindowShape) -> None:
        self.shape = shape
        self._event_time = shape.window.on is not None
        #: The time that was reached: all results that were due until then have been returned.
        self.reached_us = NEVER
        #: At the end of an input all windows were closed: rows for these and older ones are late.
        self.closed_us = NEVER
        #: Whether there is something to tell since the last delta.
        self.touched = False
        self._late = 0
        self._last_offset = 0

    @abstractmethod
    def accept(self, arrived: Arrived) -> tuple[list[pl.DataFrame], Times | None]:
        """Take rows; return results, and the places of those that came too late."""

    def accept_combined(self, arrived: Arrived | None, combined: pl.DataFrame) -> int:
        """Take rows and combined rows; return how many were late. Called only if there is a combiner for the shape."""
        raise NotImplementedError

    @abstractmethod
    def advance(self, time_us: int) -> list[pl.DataFrame]:
        """Advance time; return the results that are due then. Sets ``reached_us``."""

    @abstractmethod
    def close_all(self) -> list[pl.DataFrame]:
        """Close all windows; return their results. Sets ``closed_us``."""

    # ---------------------------------------------------------------------------------------------------- input

    def process(self, batch: Batch) -> Results:
        frame = batch.frame
        if frame.height == 0:
            return
        self.touched = True
        self._last_offset = int(frame[OFFSET][-1])
        if COMBINED in frame.columns:
            yield from self._process_combined(frame)
            return
        arrived, rejected = self._arrived(frame)
        if rejected is not None:
            yield rejected
        if not len(arrived.times):
            return
        results, late = self.accept(arrived)
        if self._event_time and self.advances_by_rows:
            results += self.advance(int(arrived.watermarks[-1]))
        if late is not None and len(late):
            self._late += len(late)
            yield batch.with_frame(_added(arrived.frame[late]).drop(OFFSET, INDEX), "late")
        yield from self._given(batch.queue, results)

    def _process_combined(self, frame: pl.DataFrame) -> Results:
        """Take rows, some of which are combined rows.

        Only the Watermark behind them brings time on: which row was combined must not change the order of the results.
        """
        rows, combined = taken_apart(frame, self.shape)
        arrived = None
        if rows.height:
            arrived, rejected = self._arrived(rows)
            if rejected is not None:
                yield rejected
            if not len(arrived.times):
                arrived = None
        if arrived is not None or combined.height:
            self._late += self.accept_combined(arrived, combined)

    def on_system(self, message: SystemMessage) -> Results:
        if isinstance(message, Tick) and not self._event_time:
            results = self.advance(message.time_us) if message.time_us > self.reached_us else []
            self.touched = True
        elif isinstance(message, Watermark) and self._event_time:
            results = self.advance(message.time_us)
        elif isinstance(message, EndOfInput):
            results = self.close_all()
        else:
            return
        yield from self._given(message.queue if isinstance(message, Watermark) else Queue(""), results)

    def late_rows(self) -> int:
        return self._late

    def _arrived(self, frame: pl.DataFrame) -> tuple[Arrived, RejectedRows | None]:
        """Return the rows that can be placed, and those that cannot: without a time, or with an input that fails."""
        shape, reasons = self.shape, dict[int, str]()
        if self._event_time:
            assert shape.window.on is not None
            times = event_times_us(frame[shape.window.on])
            for place in np.flatnonzero(times == NEVER).tolist():
                reasons[place] = f"no time in column {shape.window.on!r}: the row belongs to no window"
            watermarks = self._watermarks(frame)
        else:
            times = np.full(frame.height, self.reached_us, dtype=np.int64)
            watermarks = times
        inputs, failures = shape.plan.inputs(frame)
        for place, error in failures:
            reasons.setdefault(place, str(error))
        values = pl.concat([frame.select(shape.keys), inputs], how="horizontal") if shape.keys else inputs
        arrived = Arrived(frame, values, times, watermarks)
        if not reasons:
            return arrived, None
        bad = sorted(reasons)
        good = np.setdiff1d(np.arange(frame.height), bad)
        return arrived.rows(good), RejectedRows(frame[bad], [reasons[place] for place in bad])

    def _watermarks(self, frame: pl.DataFrame) -> Times:
        known = watermark_times(frame)
        floor = max(self.closed_us, self.reached_us)
        return np.maximum(known, floor) if floor > NEVER else known

    # --------------------------------------------------------------------------------------------------- output

    def _given(self, queue: Queue, results: Sequence[pl.DataFrame]) -> Results:
        found = [frame for frame in results if frame.height]
        rejected, self._failed = [*self._failed, *self.shape.plan.take_failed()], []
        for frame, reasons in rejected:
            place = pl.lit(self._last_offset, dtype=pl.Int64).alias(OFFSET), pl.lit(0, dtype=pl.Int32).alias(INDEX)
            yield RejectedRows(frame.with_columns(*place), reasons)
        if found:
            yield Batch(queue, self.shape.put_out(pl.concat(found, how="diagonal")))

    #: Results that could not be made: their groups, and why.
    _failed: list[tuple[pl.DataFrame, list[str]]] = []  # noqa: RUF012  # replaced, never changed in place

    def finished(self, groups: pl.DataFrame, partials: pl.DataFrame) -> pl.DataFrame:
        """Return groups with their results; those that fail go to the dead letters. A group of which no row is left gives none."""
        if isinstance(self.shape.plan, ChangingGroups):
            has_rows = self.shape.plan.has_rows(partials)
            groups, partials = groups.filter(has_rows), partials.filter(has_rows)
        made, failed, reasons = self.shape.table(groups, partials)
        if reasons:
            kept = [name for name in failed.columns if not name.startswith("__hr_")]
            self._failed = [*self._failed, (failed.select(kept), reasons)]
        return made


def _added(late: pl.DataFrame) -> pl.DataFrame:
    """Return the late rows that add something: the output of late rows knows no changes."""
    if CHANGE not in late.columns:
        return late
    return late.filter(pl.Series(changelog.signs(late) > 0)).drop(CHANGE)
