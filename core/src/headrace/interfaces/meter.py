"""The meter, with which runtimes and operators count. Each process of a job has one; the counts of workers are added to
the driver's.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.foundation.clock import Clock, SystemClock
from headrace.interfaces import metrics as m
from headrace.interfaces.metrics import OTHERS, Family, Metric, Series, Snapshot, Span

if TYPE_CHECKING:
    from headrace.interfaces.backend import JobStatus

#: The maximum number of label combinations of a metric; later ones are added up as ``(others)``.
SERIES_MAX = 1_000
#: Spans that wait in a worker until its task ends.
_SPANS_MAX = 1_000
_Key = tuple[str, tuple[str, ...]]


class Meter:
    """Adds up metrics. Used by all threads of a process, once per batch and never per row.

    If ``enabled`` is False, the job has no ``metrics``, and callers should not compute any. A pickled copy is empty.
    """

    def __init__(
        self, *, enabled: bool = True, spans: bool = False, series_max: int = SERIES_MAX, clock: Clock | None = None
    ) -> None:
        self.enabled = enabled
        #: Whether ``span`` is to be called.
        self.spans = spans and enabled
        #: The entry or micro-batch that is being processed, for spans. The thread that drives the job sets it.
        self.group: int | None = None
        self.clock: Clock = clock or SystemClock()
        self._series_max = series_max
        self._lock = threading.Lock()
        self._counters: dict[_Key, float] = {}
        self._gauges: dict[_Key, float] = {}
        self._histograms: dict[_Key, tuple[list[int], list[float]]] = {}
        self._waiting_spans: list[Span] = []
        #: The label combinations that have their own series, by metric: the first ones, until the end of the job.
        self._known: dict[str, set[tuple[str, ...]]] = {}

    def __reduce__(self) -> Any:
        return (_meter, (self.enabled, self.spans, self._series_max))

    # --------------------------------------------------------------------------------------------------- counting

    def add(self, metric: Metric, amount: float, *labels: str) -> None:
        """Add to a counter."""
        if not self.enabled:
            return
        with self._lock:
            key = self._key(metric, labels)
            self._counters[key] = self._counters.get(key, 0) + amount

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        if not self.enabled:
            return
        with self._lock:
            self._gauges[self._key(metric, labels)] = value

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        if not self.enabled:
            return
        counts = [0] * (len(metric.bounds) + 1)
        counts[bisect_left(metric.bounds, value)] = 1
        self.observe_many(metric, counts, value, *labels)

    def observe_many(self, metric: Metric, counts: Sequence[int], total: float, *labels: str) -> None:
        """Add many values to a histogram: how many are in each bucket, and their sum."""
        if not self.enabled:
            return
        with self._lock:
            self._observe(self._key(metric, labels), counts, total)

    def span(self, span: Span) -> None:
        """Record a span. A worker process keeps it until ``take``, at most 1,000 spans per task."""
        with self._lock:
            if len(self._waiting_spans) < _SPANS_MAX:
                self._waiting_spans.append(span)

    # ------------------------------------------------------------------------------------- from process to process

    def take(self) -> dict[str, Any]:
        """Return the counts since the last call, as JSON for ``merge`` in another process; ``{}``: there are none."""
        with self._lock:
            taken: dict[str, Any] = {
                "counters": [[*key, value] for key, value in self._counters.items()],
                "gauges": [[*key, value] for key, value in self._gauges.items()],
                "histograms": [[*key, counts, total[0]] for key, (counts, total) in self._histograms.items()],
                "spans": [_span_to_json(span) for span in self._waiting_spans],
            }
            for held in (self._counters, self._gauges, self._histograms, self._waiting_spans):
                held.clear()
        return {name: values for name, values in taken.items() if values}

    def merge(self, taken: Mapping[str, Any], *, group: int | None = None) -> None:
        """Add the counts that another process returned from ``take``. ``group``: the group of its spans, if it did not
        know that.
        """
        if not self.enabled:
            return
        with self._lock:
            for name, labels, value in taken.get("counters", ()):
                key = self._bounded(name, tuple(labels))
                self._counters[key] = self._counters.get(key, 0) + value
            for name, labels, value in taken.get("gauges", ()):
                self._gauges[self._bounded(name, tuple(labels))] = value
            for name, labels, counts, total in taken.get("histograms", ()):
                self._observe(self._bounded(name, tuple(labels)), counts, total)
        for values in taken.get("spans", ()):
            span = Span(*values)
            self.span(span if group is None else replace(span, group=group))

    # ---------------------------------------------------------------------------------------------------- reading

    def gauge(self, metric: Metric, *labels: str) -> float | None:
        """Return the value of one gauge; None: it was not set. Cheaper than a snapshot, which has all metrics."""
        with self._lock:
            return self._gauges.get((metric.name, labels))

    def snapshot(self, status: JobStatus, definitions: Mapping[str, Metric]) -> Snapshot:
        """Return all figures of the job: the figures of ``status``, and the figures that were counted here.

        ``definitions``: the figures of plug-ins, by name.
        """
        known = {**m.METRICS, **definitions}
        made: dict[str, dict[tuple[str, ...], Series]] = {}
        with self._lock:
            for (name, labels), value in (*self._counters.items(), *self._gauges.items()):
                made.setdefault(name, {})[labels] = Series(labels, value)
            for (name, labels), (counts, total) in self._histograms.items():
                made.setdefault(name, {})[labels] = Series(labels, total[0], tuple(counts))
            times = {labels: each.value for labels, each in made.get(m.QUEUE_TIME.name, {}).items()}
            for metric, value, labels in _of_status(status, times, self.clock.now()):
                key = self._key(metric, labels)[1]
                own = made.setdefault(metric.name, {})
                before = own.get(key)
                if before is not None:
                    value = before.value + value if metric.join == "sum" else max(before.value, value)
                own[key] = Series(key, value)
        families = [Family(known[name], tuple(own.values())) for name, own in sorted(made.items()) if name in known]
        return Snapshot(status.job, status.backend, tuple(families))

    def ended(self, status: JobStatus) -> None:
        """The job has ended with this status. Called by backends, before ``handle.wait()`` returns."""

    # ---------------------------------------------------------------------------------------------------- private

    def _observe(self, key: _Key, counts: Sequence[int], total: float) -> None:
        held = self._histograms.get(key)
        if held is None:
            self._histograms[key] = (list(counts), [total])
            return
        for place, count in enumerate(counts):
            held[0][place] += count
        held[1][0] += total

    def _key(self, metric: Metric, labels: tuple[str, ...]) -> _Key:
        assert len(labels) == len(metric.labels), f"{metric.name} has the labels {metric.labels}"
        return self._bounded(metric.name, labels)

    def _bounded(self, name: str, labels: tuple[str, ...]) -> _Key:
        """Return the key of a series. Beyond the limit the last label says ``(others)``; the first ones keep their
        series.
        """
        known = self._known.setdefault(name, set())
        if labels in known:
            return name, labels
        if len(known) < self._series_max:
            known.add(labels)
            return name, labels
        return name, (*labels[:-1], OTHERS) if labels else labels


class NodeMeter:
    """The meter of one node of the plan: ``self.meter.add(metric, 3, "label")``. The first label of the metric is the
    node.
    """

    __slots__ = ("_meter", "_node", "enabled")

    def __init__(self, meter: Meter, node: str) -> None:
        self._meter = meter
        self._node = node
        #: Whether the job has ``metrics``. If not, values need not be computed.
        self.enabled = meter.enabled

    def add(self, metric: Metric, amount: float, *labels: str) -> None:
        """Add to a counter."""
        self._meter.add(metric, amount, self._node, *labels)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        self._meter.observe(metric, value, self._node, *labels)


NO_METER = Meter(enabled=False)
NO_NODE_METER = NodeMeter(NO_METER, "")


def _meter(enabled: bool, spans: bool, series_max: int) -> Meter:
    return Meter(enabled=enabled, spans=spans, series_max=series_max)


def _span_to_json(span: Span) -> list[Any]:
    return [getattr(span, name) for name in Span.__slots__]


def _of_status(
    status: JobStatus, times: Mapping[tuple[str, ...], float], now: float
) -> list[tuple[Metric, float, tuple[str, ...]]]:
    """Return the figures of a status. ``times``: the time of the last record, by source and queue."""
    made: list[tuple[Metric, float, tuple[str, ...]]] = []
    for queue in status.queues:
        source, _, name = queue.queue.partition("/")
        place = (source, name)
        made.append((m.SOURCE_RECORDS, queue.records, place))
        if queue.lag is not None:
            made.append((m.QUEUE_LAG, queue.lag, place))
            if queue.lag == 0:
                made.append((m.QUEUE_LAG_TIME, 0.0, place))
            elif place in times:
                made.append((m.QUEUE_LAG_TIME, max(0.0, now - times[place]), place))
    made += [(m.SINK_ROWS, rows, (sink,)) for sink, rows in status.rows_written.items()]
    made += [
        (m.SINK_SKIPPED, status.rows_skipped, ()),
        (m.LATE_ROWS, status.late_rows, ()),
        (m.STATE_ROWS, status.state_rows, ()),
        (m.BROKEN_QUEUES, sum(queue.broken is not None for queue in status.queues), ()),
        (m.JOB_UPTIME, status.seconds, ()),
    ]
    if status.watermark is not None:
        made.append((m.WATERMARK_LAG, now - status.watermark.timestamp(), ()))
    made += [(m.JOB_STATE, float(state is status.state), (state.value,)) for state in type(status.state)]
    return made
