"""The watermark: how far event time is, seen row by row along a queue."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import polars as pl
from headrace.flow.messages import TIME, Batch, Watermark, watermark_column, with_column
from headrace.flow.schema import Schema
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import OptionError, PlanError, did_you_mean
from headrace.interfaces.operator import Operator, OperatorSpec
from headrace.interfaces.windows import Duration, microseconds

from headrace_stateful.keys import keyed_rows

_NEVER = -(2**63)
_MILLISECOND_US = 1_000


class WatermarkSpec(OperatorSpec):
    """``watermark("ts", delay="5 s")``: rows may be up to ``delay`` older than one that came before them in their queue.

    ``inclusive``: rows of exactly that time are late too, to the millisecond, as Flink's watermarks say: windows close one millisecond
    earlier. A queue from which nothing comes for ``idle_timeout`` is not waited for. With ``max_future`` times further ahead than that
    of the record's own time at its source (else: of the clock) do not move the watermark beyond it. ``by_source``: what moves it is the
    time that the source gives each record, not that of the column.
    """

    name = "watermark"
    keeps_columns = True
    takes_upserts = True

    def __init__(
        self,
        on: str,
        *,
        delay: Duration = "0 s",
        idle_timeout: Duration | None = "1 min",
        max_future: Duration | None = None,
        inclusive: bool = False,
        by_source: bool = False,
    ) -> None:
        self.on = on
        self.by_source = by_source
        self.inclusive = inclusive
        self.delay_us = microseconds(delay, "delay")
        self.idle_timeout_us = None if idle_timeout is None else microseconds(idle_timeout, "idle_timeout")
        self.max_future_us = None if max_future is None else microseconds(max_future, "max_future")
        self.header_fields = frozenset({"time"}) if by_source or max_future is not None else frozenset()
        for option, value in (("delay", self.delay_us), ("max_future", self.max_future_us or 0)):
            if value < 0:
                raise OptionError("must not be negative", option=option)

    @property
    def event_time(self) -> str:
        return self.on

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        schema = keyed_rows.known(schema)
        if self.on not in schema:
            raise PlanError(f"unknown column {self.on!r}", hint=did_you_mean(self.on, list(schema), known="columns"))
        if not isinstance(schema[self.on], pl.Datetime):
            raise PlanError(
                f"column {self.on!r} is {schema[self.on]}, not a time",
                hint="declare it 'timestamp' in the schema, or make it one with CAST or TO_TIMESTAMP",
            )
        return schema

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return None if wanted is None else {*wanted, self.on}

    def open(self, schema: Schema | None) -> Operator:
        return WatermarkOperator(self)

    def describe(self) -> str:
        marks = [", inclusive"] * self.inclusive + [", by the source's times"] * self.by_source
        return f"{self.on}, delay {self.delay_us / 1_000_000:g} s" + "".join(marks)


class WatermarkOperator(Operator):
    """Puts on each row the watermark before it within this batch; the shard knows the watermark of earlier batches.

    It keeps no state, so that any process can continue with a queue.
    """

    def __init__(self, spec: WatermarkSpec, clock: Clock | None = None) -> None:
        self._spec = spec
        self._clock = clock or SystemClock()

    def process(self, batch: Batch) -> Iterable[Batch | Watermark]:
        frame = batch.frame
        times = self._source_times(frame) if self._spec.by_source else event_times_us(frame[self._spec.on])
        if self._spec.max_future_us is not None:
            times = np.minimum(times, self._latest_credible(frame) + self._spec.max_future_us)
        reached = np.maximum.accumulate(times)
        behind_us = self._spec.delay_us - (_MILLISECOND_US if self._spec.inclusive else 0)
        reached = np.where(reached == _NEVER, _NEVER, reached - behind_us)
        before = np.concatenate([np.array([_NEVER], dtype=np.int64), reached[:-1]])
        yield batch.with_frame(with_column(frame, watermark_column(before)))
        if reached[-1] > _NEVER:
            yield Watermark(batch.queue, int(reached[-1]))

    def _source_times(self, frame: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the times of the records; a record without one tells nothing."""
        if TIME not in frame.columns:
            return np.full(frame.height, _NEVER, dtype=np.int64)
        return frame[TIME].cast(pl.Int64).fill_null(_NEVER).to_numpy()

    def _latest_credible(self, frame: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        now_us = int(self._clock.now() * 1_000_000)
        if TIME not in frame.columns:
            return np.full(frame.height, now_us, dtype=np.int64)
        return frame[TIME].cast(pl.Int64).fill_null(now_us).to_numpy()


def event_times_us(column: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return times as microseconds since the Unix epoch; NULL is the smallest number."""
    kind = column.dtype
    assert isinstance(kind, pl.Datetime)
    whole = column.dt.cast_time_unit("us") if kind.time_unit != "us" else column
    numbers = whole.cast(pl.Int64)
    return (numbers.fill_null(_NEVER) if numbers.null_count() else numbers).to_numpy()
