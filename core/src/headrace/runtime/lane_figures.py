"""Metrics that a lane and a sink writer count, once per batch. Made only for jobs with ``metrics``."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.flow.messages import OFFSET, TIME, Batch, Queue, RawBatch
from headrace.interfaces import metrics as m
from headrace.interfaces.meter import Meter
from headrace.interfaces.metrics import Span

if TYPE_CHECKING:
    import polars as pl

_MICROSECONDS = 1_000_000


class LaneFigures:
    """The metrics of one lane. Those of a batch are added when it is done, so that a batch that is tried again counts
    once.
    """

    def __init__(self, meter: Meter, stage: str) -> None:
        self._meter = meter
        self._stage = stage
        self._pending: list[tuple[str, int, int, int, int, float]] = []

    def now(self) -> float:
        """Return seconds for differences."""
        return self._meter.clock.monotonic()

    def begin(self) -> float:
        """Begin a batch or message, and forget what one before it left that failed. Returns ``now()``."""
        self._pending.clear()
        return self.now()

    def decoded(self, raw: RawBatch, rows: pl.DataFrame, begun: float) -> None:
        """The source's records were decoded."""
        self._pending.append((self._stage, len(raw), rows.height, 0, int(rows.estimated_size()), self.now() - begun))

    def worked(self, node_id: str, came: Iterable[Batch], gave: Iterable[Batch], begun: float) -> None:
        """An operator was at work on rows or on a message."""
        rows_in = size_in = rows_out = size_out = 0
        for batch in came:
            rows_in += batch.frame.height
            size_in += int(batch.frame.estimated_size())
        for batch in gave:
            rows_out += batch.frame.height
            size_out += int(batch.frame.estimated_size())
        self._pending.append((node_id, rows_in, rows_out, size_in, size_out, self.now() - begun))

    def through(self) -> None:
        """The batch or message was processed without error: add its counts."""
        meter = self._meter
        for node, rows_in, rows_out, size_in, size_out, seconds in self._pending:
            meter.add(m.NODE_INPUT_ROWS, rows_in, node)
            meter.add(m.NODE_OUTPUT_ROWS, rows_out, node)
            meter.add(m.NODE_INPUT_SIZE, size_in, node)
            meter.add(m.NODE_OUTPUT_SIZE, size_out, node)
            meter.add(m.NODE_DURATION, seconds, node)
        self._pending.clear()

    def read(self, queue: Queue, raw: RawBatch, begun: float) -> None:
        """A batch of a source is through."""
        meter, seconds = self._meter, self.now() - begun
        meter.add(m.SOURCE_IO, _bytes_of(raw), queue.source)
        meter.observe(m.BATCH_DURATION, seconds, queue.source)
        if not len(raw):
            return
        if raw.times is not None:
            meter.set(m.QUEUE_TIME, int(raw.times[-1]) / _MICROSECONDS, queue.source, queue.name)
        if meter.spans:
            tell_span(meter, "batch", queue.source, queue, int(raw.offsets[0]), int(raw.offsets[-1]), len(raw), seconds)

    def entry(self, queue: Queue, sequence: int, rows: int, begun: float) -> None:
        """A shard has taken an entry."""
        meter, seconds = self._meter, self.now() - begun
        meter.observe(m.BATCH_DURATION, seconds, queue.source)
        if meter.spans and rows:
            tell_span(meter, "shard", queue.source, queue, sequence, sequence, rows, seconds)


def stored(meter: Meter, sink_id: str, queue: Queue, rows: pl.DataFrame, seconds: float) -> None:
    """Count rows that a sink has stored. Called by its writer after each insert."""
    meter.add(m.SINK_IO, int(rows.estimated_size()), sink_id)
    meter.observe(m.SINK_DURATION, seconds, sink_id)
    if TIME in rows.columns:
        now_us = int(meter.clock.now() * _MICROSECONDS)
        counts, total = ages(rows.get_column(TIME), now_us, m.RECORD_LATENCY.bounds)
        if any(counts):
            meter.observe_many(m.RECORD_LATENCY, counts, total, sink_id)
    if meter.spans:
        offsets = rows.get_column(OFFSET)
        tell_span(meter, "store", sink_id, queue, offsets[0], offsets[-1], rows.height, seconds)


def ages(times: pl.Series, now_us: int, bounds: Sequence[float]) -> tuple[list[int], float]:
    """Return the number of times in each age bucket, and the sum of the ages in seconds. NULL is not counted.

    Without a loop over rows: one comparison for each bound between the youngest and the oldest.
    """
    counts = [0] * (len(bounds) + 1)
    numbers = times.to_physical()
    known = len(numbers) - numbers.null_count()
    if not known:
        return counts, 0.0
    newest, oldest, mean = numbers.max(), numbers.min(), numbers.mean()
    assert isinstance(newest, int)
    assert isinstance(oldest, int)
    assert isinstance(mean, float)
    first = bisect_left(bounds, (now_us - newest) / _MICROSECONDS)
    last = bisect_left(bounds, (now_us - oldest) / _MICROSECONDS)
    before = 0
    for place in range(first, last):
        within = int((numbers >= now_us - round(bounds[place] * _MICROSECONDS)).sum())
        counts[place] = within - before
        before = within
    counts[last] = known - before
    return counts, max(0.0, known * (now_us - mean) / _MICROSECONDS)


def tell_span(
    meter: Meter, kind: str, node: str, queue: Queue, first: int, last: int, rows: int, seconds: float
) -> None:
    """Tell of a step that ends now."""
    end_us = int(meter.clock.now() * _MICROSECONDS)
    begin_us = end_us - int(seconds * _MICROSECONDS)
    meter.span(Span(kind, node, queue.branched("").id, first, last, rows, begin_us, end_us, meter.group))  # type: ignore[arg-type]


def _bytes_of(raw: RawBatch) -> int:
    if raw.frame is not None:
        return int(raw.frame.estimated_size())
    bodies = raw.bodies
    if bodies is None or not len(bodies):
        return 0
    if bodies.newline_separated:
        return int(bodies.ends[-1] - bodies.starts[0])
    return int(bodies.ends.sum() - bodies.starts.sum())
