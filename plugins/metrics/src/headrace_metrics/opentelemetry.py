"""OpenTelemetry: figures, spans and log events of jobs, given to exporters of the official SDK."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, ClassVar

from headrace.foundation.clock import Clock, SystemClock
from headrace.interfaces.metrics import Family, MetricsExporter, Snapshot, Span
from headrace.interfaces.metrics import Metric as Figure
from opentelemetry import trace
from opentelemetry.sdk._logs import LogRecordProcessor
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from headrace_metrics.addresses import parts_of
from headrace_metrics.opentelemetry_logs import LogTarget

logger = logging.getLogger(__name__)
_SCOPE = "headrace"
_DEFAULT_PORT = 4318
_SEND_INTERVAL = timedelta(seconds=15)
_NANOSECONDS = 1_000_000_000
#: Spans that are remembered of each queue, and groups of them, to link what comes behind.
_REMEMBERED_MAX = 1_000
#: Queues whose spans are remembered.
_QUEUES_MAX = 1_000
#: OpenTelemetry's default limit of links.
_LINKS_MAX = 128


class OpenTelemetryExporter(MetricsExporter):
    """Gives figures to a ``MetricExporter`` of the SDK every ``send_interval``, spans to a ``SpanProcessor``,
    and the log events of this process to a ``LogRecordProcessor``.

    A span ``batch`` begins a trace. A later span (``shard``, ``store``) holds rows of several batches. It is in the
    trace of the last of them, and has links to the batches: to the newest 128 at most. Figures are cumulative. When a
    job has ended they are sent once more, and spans are flushed, before ``handle.wait()`` returns: a collector that is
    away delays it by the time-out of the SDK's exporter.
    """

    wants_spans: ClassVar[bool] = True

    def __init__(
        self,
        metrics: MetricExporter | None = None,
        spans: SpanProcessor | None = None,
        logs: LogRecordProcessor | None = None,
        *,
        send_interval: timedelta = _SEND_INTERVAL,
        clock: Clock | None = None,
    ) -> None:
        self._metrics = metrics
        self._send_seconds = send_interval.total_seconds()
        self._clock = clock or SystemClock()
        named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        self._resource = Resource.create({} if named else {"service.name": "headrace"})
        self._tracing = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        if spans is not None:
            self._tracing.add_span_processor(spans)
        self._tracer = self._tracing.get_tracer(_SCOPE)
        self._logs = None if logs is None else LogTarget(f"processor {id(logs)}", lambda: logs)
        self._jobs: dict[str, Callable[[], Snapshot]] = {}
        self._links: dict[str, _SpanLinks] = {}
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def from_url(cls, url: str) -> OpenTelemetryExporter:
        """``otlp://HOST:PORT``: OTLP over HTTP with protobuf; ``otlps``: with TLS. Headers come from OTEL_EXPORTER_OTLP_HEADERS."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        parts, port, _ = parts_of(url, default_port=_DEFAULT_PORT)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        base = f"{'https' if parts.scheme == 'otlps' else 'http'}://{host}:{port}{parts.path.rstrip('/')}"
        spans: SpanExporter = OTLPSpanExporter(endpoint=f"{base}/v1/traces")
        exporter = cls(OTLPMetricExporter(endpoint=f"{base}/v1/metrics"), BatchSpanProcessor(spans))
        exporter._logs = LogTarget.of_endpoint(f"{base}/v1/logs")
        return exporter

    def open(self) -> None:
        if self._logs is not None:
            self._logs.open(self._resource)
        with self._lock:
            if self._thread is None and self._metrics is not None:
                self._thread = threading.Thread(target=self._send_for_ever, name="headrace otlp", daemon=True)
                self._thread.start()

    def job_started(self, job: str, read: Callable[[], Snapshot]) -> None:
        with self._lock:
            self._jobs[job] = read

    def job_ended(self, job: str, last: Snapshot) -> None:
        with self._lock:
            self._jobs.pop(job, None)
            self._links.pop(job, None)
        self.send([last])
        self._tracing.force_flush()
        if self._logs is not None:
            self._logs.flush()

    def close(self) -> None:
        with self._lock:
            closed, thread = self._closing.is_set(), self._thread
            self._closing.set()
        if closed:
            return
        if thread is not None:
            thread.join()
        if self._metrics is not None:
            self._metrics.shutdown()
        self._tracing.shutdown()
        if self._logs is not None:
            self._logs.close()

    # ---------------------------------------------------------------------------------------------------- figures

    def send(self, snapshots: Iterable[Snapshot] | None = None) -> None:
        """Send the figures of all jobs now; called every ``send_interval``. What cannot be sent is logged: sums come with the next."""
        if self._metrics is None:
            return
        with self._lock:
            reading = list(self._jobs.values())
        listed = [read() for read in reading] if snapshots is None else list(snapshots)
        if not listed:
            return
        with self._sending:
            result = self._metrics.export(self._data_of(listed))
        if result is not MetricExportResult.SUCCESS:
            logger.warning("metrics of %d jobs could not be sent", len(listed))

    def _send_for_ever(self) -> None:
        while not self._clock.wait(self._closing, self._send_seconds):
            try:
                self.send()
            except Exception as error:  # the next attempt may succeed; the job is not to be disturbed
                logger.warning("metrics could not be sent: %s: %s", type(error).__name__, error)

    def _data_of(self, snapshots: Iterable[Snapshot]) -> MetricsData:
        now = int(self._clock.now() * _NANOSECONDS)
        points: dict[str, tuple[Figure, list[Any]]] = {}
        for snapshot in snapshots:
            uptime = next((f.series[0].value for f in snapshot.families if f.metric.name == "job.uptime"), 0.0)
            begun = now - int(uptime * _NANOSECONDS)
            for family in snapshot.families:
                _, listed = points.setdefault(family.metric.name, (family.metric, []))
                listed += _points(family, snapshot, begun, now)
        made = [_metric(metric, listed) for metric, listed in points.values()]
        scope = ScopeMetrics(InstrumentationScope(_SCOPE), made, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    # ------------------------------------------------------------------------------------------------------ spans

    def take_span(self, job: str, span: Span) -> None:
        with self._lock:
            links = self._links.setdefault(job, _SpanLinks())
            before = links.before(span)
            parent = trace.set_span_in_context(trace.NonRecordingSpan(before[-1])) if before else None
            made = self._tracer.start_span(
                f"{span.kind} {span.node}",
                context=parent,
                links=[trace.Link(context) for context in before[-_LINKS_MAX:]],
                start_time=span.begin_us * 1_000,
                attributes={
                    "headrace.job": job,
                    "headrace.node": span.node,
                    "headrace.queue": span.queue,
                    "headrace.offset.first": span.first,
                    "headrace.offset.last": span.last,
                    "headrace.rows": span.rows,
                },
            )
            links.remember(span, made.get_span_context())
            made.end(end_time=span.end_us * 1_000)


class _SpanLinks:
    """Which spans hold the rows that a later span has."""

    def __init__(self) -> None:
        self._of_queue: OrderedDict[str, deque[tuple[int, int, trace.SpanContext]]] = OrderedDict()
        self._of_group: OrderedDict[int, list[trace.SpanContext]] = OrderedDict()

    def before(self, span: Span) -> list[trace.SpanContext]:
        """Return the spans from which a span's rows have come, in order."""
        if span.kind == "batch":
            return []
        if span.kind == "shard":
            return [] if span.group is None else list(self._of_group.get(span.group, ()))
        held = self._of_queue.get(span.queue, ())
        return [context for first, last, context in held if first <= span.last and last >= span.first]

    def remember(self, span: Span, context: trace.SpanContext) -> None:
        """Note a span that later ones may follow."""
        if span.kind == "store":
            return
        held = self._of_queue.setdefault(span.queue, deque(maxlen=_REMEMBERED_MAX))
        held.append((span.first, span.last, context))
        self._of_queue.move_to_end(span.queue)
        while len(self._of_queue) > _QUEUES_MAX:
            self._of_queue.popitem(last=False)
        if span.group is not None:
            self._of_group.setdefault(span.group, []).append(context)
            while len(self._of_group) > _REMEMBERED_MAX:
                self._of_group.popitem(last=False)


def _points(family: Family, snapshot: Snapshot, begun: int, now: int) -> list[Any]:
    metric, points = family.metric, []
    for each in family.series:
        attributes = {"headrace.job": snapshot.job, "headrace.backend": snapshot.backend}
        attributes |= {f"headrace.{name}": value for name, value in zip(metric.labels, each.labels, strict=True)}
        if metric.kind == "histogram":
            points.append(
                # The least and the greatest value are not known.
                HistogramDataPoint(
                    attributes,
                    begun,
                    now,
                    sum(each.counts),
                    each.value,
                    list(each.counts),
                    list(metric.bounds),
                    float("inf"),
                    float("-inf"),
                )
            )
        else:
            points.append(NumberDataPoint(attributes, begun, now, each.value))  # type: ignore[arg-type]
    return points


def _metric(metric: Figure, points: list[Any]) -> Metric:
    data: Sum | Gauge | Histogram
    if metric.kind == "histogram":
        data = Histogram(points, AggregationTemporality.CUMULATIVE)
    elif metric.kind == "counter":
        data = Sum(points, AggregationTemporality.CUMULATIVE, True)
    else:
        data = Gauge(points)
    return Metric(metric.full_name, metric.help, metric.unit, data)
