"""OpenTelemetry: figures, spans and log events through the official SDK, into memory and to a real receiver of OTLP."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import JobFailedError
from headrace.testing import MemorySink, MemorySource
from headrace_metrics import OpenTelemetryExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.otlp_receiver import OtlpServer, serving


class Memory(MetricExporter):
    """Keeps what the exporter is given. ``works`` False: an away collector."""

    def __init__(self, *, works: bool = True) -> None:
        super().__init__()
        self.sent: list[MetricsData] = []
        self.works = works

    def export(self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **_: Any) -> MetricExportResult:
        self.sent.append(metrics_data)
        return MetricExportResult.SUCCESS if self.works else MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        """Nothing is open."""


def values(data: MetricsData) -> dict[str, float]:
    """Return the sum of each figure over its points; of a histogram, how many were observed."""
    found: dict[str, float] = {}
    for metric in (each for r in data.resource_metrics for scope in r.scope_metrics for each in scope.metrics):
        points: Sequence[Any] = metric.data.data_points
        found[metric.name] = sum(each.count if hasattr(each, "count") else each.value for each in points)
    return found


def source(records: int = 1_000) -> MemorySource:
    return MemorySource({"q0": [b'{"k": "a", "v": %d}' % number for number in range(records)]})


def stateless(sink: MemorySink, given: MemorySource | None = None) -> hr.Job:
    stream = hr.stream("team", "traced").from_(given or source(), format="json", schema={"k": "string", "v": "int64"})
    return stream.where("v % 2 = 0").to(sink)


def test_figures_go_to_the_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    memory = Memory()
    exporter = OpenTelemetryExporter(memory, send_interval=timedelta(hours=1))
    report = stateless(MemorySink()).run("light", metrics=exporter, max_batch_records=100)
    exporter.close()
    found = values(memory.sent[-1])
    assert found["headrace.source.records"] == report.records_read == 1_000
    assert found["headrace.sink.rows"] == 500
    assert found["headrace.batch.duration"] == 10
    [resource] = memory.sent[-1].resource_metrics
    assert resource.resource.attributes["service.name"] == "headrace"
    [point] = next(m for m in resource.scope_metrics[0].metrics if m.name == "headrace.sink.rows").data.data_points
    assert dict(point.attributes or {})["headrace.job"] == "team.traced"
    assert point.start_time_unix_nano < point.time_unix_nano


def spans_of(job: hr.Job, **options: Any) -> Sequence[ReadableSpan]:
    memory = InMemorySpanExporter()
    exporter = OpenTelemetryExporter(spans=SimpleSpanProcessor(memory))
    job.run("light", metrics=exporter, **options)
    exporter.close()
    return memory.get_finished_spans()


def links_of(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def test_what_is_stored_is_linked_to_its_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spans = spans_of(stateless(MemorySink()), max_batch_records=250)
    batches = {span.context.span_id: span for span in spans if span.name == "batch memory"}
    stores = [span for span in spans if span.name == "store to_memory"]
    assert [(span.attributes or {})["headrace.offset.first"] for span in batches.values()] == [0, 250, 500, 750]
    assert set().union(*map(links_of, stores)) == set(batches)
    for store in stores:
        assert store.parent is not None
        assert store.parent.span_id in links_of(store)
        assert store.context.trace_id == batches[store.parent.span_id].context.trace_id
    assert all(span.parent is None and not span.links for span in batches.values())
    assert all((span.start_time or 0) <= (span.end_time or 0) for span in spans)


def test_rows_of_a_window_lead_back_to_their_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stream = hr.stream("team", "traced").from_(source(), format="json", schema={"k": "string", "v": "int64"})
    spans = spans_of(stream.key_by("k").agg(n="count(*)").to(MemorySink()), max_batch_records=500)
    batches = [span for span in spans if span.name.startswith("batch ")]
    shards = [span for span in spans if span.name.startswith("shard ")]
    stores = [span for span in spans if span.name.startswith("store ")]
    assert [links_of(span) for span in shards] == [{batch.context.span_id} for batch in batches]
    assert len(shards) == 2
    assert stores
    assert set().union(*map(links_of, stores)) == {span.context.span_id for span in shards}


def test_a_collector_that_is_away_does_not_disturb_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    exporter = OpenTelemetryExporter(Memory(works=False))
    report = stateless(MemorySink()).run("light", metrics=exporter)
    exporter.close()
    assert report.records_read == 1_000
    assert "metrics of 1 jobs could not be sent" in caplog.text


def test_a_failed_job_sends_its_last_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    memory, sink = Memory(), MemorySink()
    sink.failures = [SystemError("it broke")] * 2_000
    exporter = OpenTelemetryExporter(memory)
    with pytest.raises(JobFailedError):
        stateless(sink).run("light", metrics=exporter)
    exporter.close()
    state = [
        dict(point.attributes or {})["headrace.state"]
        for metric in memory.sent[-1].resource_metrics[0].scope_metrics[0].metrics
        if metric.name == "headrace.job.state"
        for point in metric.data.data_points
        if point.value == 1  # type: ignore[union-attr]
    ]
    assert state == ["failed"]


class Receiver(OtlpServer):
    """Parses what it is sent with the official package."""

    def __init__(self) -> None:
        super().__init__(self._keep)
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.traces: list[ExportTraceServiceRequest] = []
        self.logs: list[ExportLogsServiceRequest] = []

    def _keep(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        if path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        elif path == "/v1/logs":
            self.logs.append(ExportLogsServiceRequest.FromString(body))
        else:
            assert path == "/v1/traces"
            self.traces.append(ExportTraceServiceRequest.FromString(body))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    with serving(server):
        yield server


def test_a_real_receiver_gets_figures_and_spans(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"otlp://127.0.0.1:{receiver.server_port}"
    stateless(MemorySink()).run("light", metrics=url, max_batch_records=250)
    [scope] = receiver.metrics[-1].resource_metrics[0].scope_metrics
    found = {metric.name: metric for metric in scope.metrics}
    [point] = found["headrace.sink.rows"].sum.data_points
    assert point.as_double == 500 or point.as_int == 500
    assert found["headrace.sink.rows"].sum.is_monotonic
    assert found["headrace.source.io"].unit == "By"
    [histogram] = found["headrace.batch.duration"].histogram.data_points
    assert histogram.count == sum(histogram.bucket_counts) == 4
    spans = [s for t in receiver.traces for r in t.resource_spans for each in r.scope_spans for s in each.spans]
    assert sorted({span.name for span in spans}) == ["batch memory", "store to_memory"]
    linked = {link.span_id for span in spans for link in span.links}
    assert linked == {span.span_id for span in spans if span.name == "batch memory"}
    assert len(linked) == 4


def _complain(row: dict[str, Any]) -> dict[str, Any]:
    if row["v"] == 7:
        logging.getLogger("headrace.test").warning("queue %s: v is %d", "q0", row["v"])
    return row


def test_a_real_receiver_gets_log_events_before_the_job_has_ended(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stream = hr.stream("team", "traced").from_(source(), format="json", schema={"k": "string", "v": "int64"})
    stream.map(_complain).to(MemorySink()).run("light", metrics=f"otlp://127.0.0.1:{receiver.server_port}")
    resources = [each for request in receiver.logs for each in request.resource_logs]
    [event] = [e for r in resources for scope in r.scope_logs for e in scope.log_records]
    assert event.body.string_value == "queue q0: v is 7"
    assert event.severity_text == "WARN"
    assert {each.key: each.value.string_value for each in event.attributes} == {"headrace.queue": "q0"}
    assert {each.key: each.value.string_value for each in resources[0].resource.attributes}[
        "service.name"
    ] == "headrace"
    assert [scope.scope.name for scope in resources[0].scope_logs] == ["headrace.test"]
